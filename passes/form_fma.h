// Forms fused multiply-adds in a scalar program: a * b + c with one use of the product becomes fma(a, b, c).
//
// This is the only place that forms them: compilers never contract. Off unless FERMATA_FMA=1 or set_form_fma(true),
// because with it off a compiled plan gives exactly the bits of eager mode (docs/adr/004).
#pragma once

#include "ir/kernel.h"

namespace fermata {

/// Rewrites the kernel's program if the pass is on. Returns true if it changed.
bool form_fma(Kernel& kernel);
/// The rewrite itself, regardless of the switch.
bool form_fma_always(Kernel& kernel);
/// Returns the previous setting.
bool set_form_fma(bool on);

}  // namespace fermata
