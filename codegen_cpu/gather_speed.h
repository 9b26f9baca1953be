// Whether this processor's gathers are faster than loads: measured, as processors of one instruction set differ by a
// factor of three both ways.
#pragma once

namespace fermata {

/// Whether AVX-512 gathers 16 elements of f32 in less time than one load for each takes. Measured once, in some 20 us;
/// false where there is no AVX-512.
bool gathers_are_fast();

}  // namespace fermata
