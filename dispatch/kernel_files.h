// Self-registration of kernels next to their code, without a central list.
//
//   FERMATA_KERNELS(cpu) {
//     add_variant(Op::sort, BackendKey::cpu, {.name = "native", .dtypes = kNumbersOrBoolean, .call = &sort_call});
//   }
//
// at the end of a file of the backend, once.
#pragma once

#include <source_location>

#include "dispatch/kernel_table.h"

namespace fermata {

/// The kernels that a file adds for a backend. A static object; its constructor only appends it to a list, which is
/// read once, after all static objects of the library are constructed (cmake/library.cmake).
class KernelFile {
 public:
  KernelFile(BackendKey backend, void (*add)(), std::source_location where = std::source_location::current());
  KernelFile(const KernelFile&) = delete;
  KernelFile& operator=(const KernelFile&) = delete;

 private:
  friend void add_kernel_files(BackendKey);
  BackendKey backend_;
  void (*add_)();
  std::source_location where_;
  const KernelFile* next_;
};

/// Adds the kernels of a backend's files, ordered by file name. Called once, after all files have joined the list.
void add_kernel_files(BackendKey backend);

}  // namespace fermata

#define FERMATA_KERNELS(backend)                                                                                \
  static void fermata_add_kernels();                                                                            \
  static const ::fermata::KernelFile fermata_kernel_file(::fermata::BackendKey::backend, &fermata_add_kernels); \
  static void fermata_add_kernels()
