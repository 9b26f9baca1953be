// Call stacks of recorded calls, for calls inside helper functions that have many callers.
//
//   fm::show_callers(true);                // or FERMATA_CALLERS=1
//
//   FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)
//     at   app/layers.h:12
//     from app/model.cpp:31 (Encoder::forward)
//     from app/main.cpp:9 (main)
//
// Errors, profiles, traces and reports then show the callers. Every call costs a few microseconds more.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// Turns the collection of callers on or off and returns the previous setting. Lines need debug information (-g) in the
/// program; without it only the names of exported functions are shown.
///
/// Errors   UnsupportedError FM5740 in a build without libbacktrace.
bool show_callers(bool on, Location where = Location::current());

}  // namespace fermata
