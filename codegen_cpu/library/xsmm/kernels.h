// Kernels of libxsmm, from a shared library of their own (fermata_xsmm): libxsmm has 800 bytes of thread-local
// variables, which would count among those of libfermata. Those must fit into the 1,664 bytes that glibc keeps for
// libraries that a program opens by dlopen.
#pragma once

namespace fermata::xsmm {

/// out = rhs^T lhs^T, column-major: of fixed sizes.
template <class T> using Kernel = void (*)(const T* rhs, const T* lhs, T* out);

struct Functions {
  /// Whether libxsmm knows this processor; with `only_avx2` it makes no other kernels. To be called first.
  bool (*is_usable)(bool only_avx2);
  /// The kernel for n columns, m rows and a depth of k, and for rows that lie so many elements apart; null if there is
  /// none.
  Kernel<float> (*find_f32)(int n, int m, int k, int rhs_row, int lhs_row);
  Kernel<double> (*find_f64)(int n, int m, int k, int rhs_row, int lhs_row);
};
/// What the library exports, under this name: whoever opens it with dlopen needs no other.
extern "C" const Functions fermata_xsmm_functions;
inline constexpr const char* kFunctionsSymbol = "fermata_xsmm_functions";

/// Null where there is no libxsmm. Defined by who uses the library: by linking to it, or by opening it.
const Functions* functions();

}  // namespace fermata::xsmm
