// Kernels of libxsmm, from a shared library of their own (fermata_xsmm): libxsmm has 800 bytes of thread-local
// variables, which would count among those of libfermata. Those must fit into the 1,664 bytes that glibc keeps for
// libraries that a program opens by dlopen.
#pragma once

namespace fermata::xsmm {

/// out = rhs^T lhs^T, column-major: of fixed sizes.
template <class T> using Kernel = void (*)(const T* rhs, const T* lhs, T* out);

/// Whether libxsmm knows this processor; with `only_avx2` it makes no other kernels. To be called first.
bool is_usable(bool only_avx2);
/// The kernel for n columns, m rows and a depth of k, and for rows that lie so many elements apart; null if there is
/// none.
Kernel<float> find(float, int n, int m, int k, int rhs_row, int lhs_row);
Kernel<double> find(double, int n, int m, int k, int rhs_row, int lhs_row);

}  // namespace fermata::xsmm
