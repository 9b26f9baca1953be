// An OpenBLAS that does not know the processor still uses what the processor has
// (codegen_cpu/library/lapack_calls.cpp).
#include <gtest/gtest.h>

#include <cstdlib>

extern "C" const char* gotoblas_corename() __attribute__((weak));

TEST(OpenBlas, HasKernelsForTheProcessor) {
  if (gotoblas_corename == nullptr) GTEST_SKIP() << "LAPACK is not an OpenBLAS of several processors";
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "the environment says which kernels it uses";
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "the processor has no AVX2";
  EXPECT_STRNE(gotoblas_corename(), "Prescott");
}
