// The functions of the program through which a call was reached: for calls that are made in helpers which many share.
//
//   fm::show_callers(true);                // or FERMATA_CALLERS=1
//
//   FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)
//     at   app/layers.h:12
//     from app/model.cpp:31 (Encoder::forward)
//     from app/main.cpp:9 (main)
//
// Errors, profiles, traces and reports have them then. Every call costs some microseconds more.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// Whether callers are found and shown. Lines need debug information (-g) in the program; without it there are names of
/// functions, as far as they are exported. Gives what was set before.
///
/// Errors   UnsupportedError FM5740 in a build without libbacktrace.
bool show_callers(bool on, Location where = Location::current());

}  // namespace fermata
