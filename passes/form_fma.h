// Forms fused multiply-adds in a scalar program: a * b + c with one use of the product becomes fma(a, b, c).
//
// The only place where one is formed: compilers never contract. Off unless FERMATA_FMA=1 or set_form_fma(true), because
// with it off a compiled plan gives the very bits of eager mode (docs/adr/004).
#pragma once

#include "ir/kernel.h"

namespace fermata {

/// Rewrites the kernel's program if the pass is on. True if something changed.
bool form_fma(Kernel& kernel);
/// The rewriting itself, whatever the switch says.
bool form_fma_always(Kernel& kernel);
/// Returns the setting before.
bool set_form_fma(bool on);

}  // namespace fermata
