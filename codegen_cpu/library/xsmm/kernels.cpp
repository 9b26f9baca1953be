// See kernels.h.
#include "codegen_cpu/library/xsmm/kernels.h"

#include <libxsmm.h>

namespace fermata::xsmm {
namespace {

template <class T> Kernel<T> found(auto dispatch, int n, int m, int k, int rhs_row, int lhs_row) {
  const libxsmm_blasint lda = rhs_row, ldb = lhs_row, ldc = n;
  const T one = 1, zero = 0;
  const auto kernel = dispatch(n, m, k, &lda, &ldb, &ldc, &one, &zero, nullptr, nullptr);
  return reinterpret_cast<Kernel<T>>(kernel);  // its type has more arguments, which are for prefetches
}

bool is_usable(bool only_avx2) {
  libxsmm_init();
  if (only_avx2 && libxsmm_get_target_archid() > LIBXSMM_X86_AVX2) libxsmm_set_target_archid(LIBXSMM_X86_AVX2);
  return libxsmm_get_target_archid() >= LIBXSMM_X86_AVX2;
}
Kernel<float> find_f32(int n, int m, int k, int rhs_row, int lhs_row) {
  return found<float>(libxsmm_smmdispatch, n, m, k, rhs_row, lhs_row);
}
Kernel<double> find_f64(int n, int m, int k, int rhs_row, int lhs_row) {
  return found<double>(libxsmm_dmmdispatch, n, m, k, rhs_row, lhs_row);
}

}  // namespace

extern "C" const Functions fermata_xsmm_functions{is_usable, find_f32, find_f64};

const Functions* functions() { return &fermata_xsmm_functions; }

}  // namespace fermata::xsmm
