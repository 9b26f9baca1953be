// What a backend implements, and the kernel variants it registers.
//
// A backend is registered per backend key, private-use keys included: a third party adds a device without a change
// here. Its kernels are variants of a cell, each in one of three forms; see kernel_table.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "ir/key_set.h"
#include "runtime/executable.h"
#include "runtime/storage.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// What was compiled, for dumps.
struct KernelListing {
  std::string kernel, llvm, assembly;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Can kernel descriptions be compiled here? If not, `why_not` says why and emitting ops run as call steps.
  virtual bool can_compile(std::string* why_not) const = 0;
  /// What kernels are compiled for, such as an instruction set; empty where none are compiled.
  virtual std::string_view target() const { return {}; }
  /// Machine code for a kernel. UnsupportedError or InternalError where that fails; nothing is left behind.
  virtual std::shared_ptr<const Executable> compile(const Kernel& kernel, KernelListing* listing) = 0;
  virtual Storage* allocate(std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronise() = 0;
};

/// Null where no backend is registered under the key.
Backend* backend(BackendKey key);
void register_backend(BackendKey key, std::unique_ptr<Backend> backend);

}  // namespace fermata
