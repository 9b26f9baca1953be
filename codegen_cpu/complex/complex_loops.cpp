// See complex_loops.h.
#include "codegen_cpu/complex/complex_loops.h"

#include <complex>

namespace fermata {
namespace {

using Number = std::complex<float>;

Number number(const float* x) { return {x[0], x[1]}; }
void put(Number z, float* to) { to[0] = z.real(), to[1] = z.imag(); }

}  // namespace

void exact_divide(const float* a, const float* b, float* result) { put(number(a) / number(b), result); }
void exact_exp(const float* a, const float*, float* result) { put(std::exp(number(a)), result); }
void exact_log(const float* a, const float*, float* result) { put(std::log(number(a)), result); }

const ComplexLoops& complex_loops_in_use() {
#if defined(__x86_64__) && !defined(FERMATA_EAGER_BASELINE_ONLY)
  static const ComplexLoops& loops = eager::instruction_set() == "avx512" ? complex_loops::avx512::loops_of_isa()
                                     : eager::instruction_set() == "avx2" ? complex_loops::avx2::loops_of_isa()
                                                                          : complex_loops::baseline::loops_of_isa();
  return loops;
#else
  return complex_loops::baseline::loops_of_isa();
#endif
}

}  // namespace fermata
