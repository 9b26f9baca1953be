// Kernels that register themselves beside their code, so that no list names them.
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

/// What a file adds for a backend. An object of static duration: all that its constructor does is to join a list, which
/// is read once, when the last objects of the library are made (cmake/library.cmake).
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

/// Adds what the files of a backend have, in the order of their names. Once, after all of them have joined.
void add_kernel_files(BackendKey backend);

}  // namespace fermata

#define FERMATA_KERNELS(backend)                                                                                \
  static void fermata_add_kernels();                                                                            \
  static const ::fermata::KernelFile fermata_kernel_file(::fermata::BackendKey::backend, &fermata_add_kernels); \
  static void fermata_add_kernels()
