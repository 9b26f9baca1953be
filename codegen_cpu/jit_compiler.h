// Compiles kernel descriptions to machine code, by way of the LLVM plugin, which is loaded when first needed.
//
// The plugin and its LLVM may be missing; available() then says why, and callers play kernels some other way. Objects
// are position-independent and whole, so that they can be kept and loaded again without the plugin.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "codegen_cpu/jit_executable.h"

namespace fermata {

/// What a compilation can show of itself.
struct JitDump {
  std::string ir;  // LLVM IR
  std::string assembly;
};

class JitCompiler {
 public:
  static JitCompiler& instance();

  /// Whether kernels can be compiled for this machine. `failure_reason` gets the reason. Where machine code is kept on
  /// disk a plugin that is there is believed to work, so that a process which finds all its kernels never loads LLVM.
  bool available(std::string* failure_reason = nullptr);
  /// The instruction set that is compiled for: "avx512" or "avx2", or "" with the reason where neither will do.
  /// Detected, or forced by FERMATA_CPU. Part of the key of everything that is kept on disk.
  static std::string_view target(std::string* failure_reason = nullptr);

  /// The object of a kernel. Throws UnsupportedError where it cannot be compiled. Thread-safe, and kernels of several
  /// threads compile at the same time. `target` as above, for this machine where empty.
  std::string object_for(const Kernel& kernel, JitDump* dump = nullptr, std::string_view target = {},
                         const JitVariant& variant = {});
  /// The same for this machine, from the disk if it is kept there (runtime/disk_cache.h), and kept otherwise.
  std::string kept_object(const Kernel& kernel, const JitVariant& variant);
  /// Only if it is kept on the disk.
  std::optional<std::string> found_object(const Kernel& kernel, const JitVariant& variant);
  /// The stores that a variant of an object may stream. Throws UnsupportedError where the object cannot be loaded, and
  /// NoMemoryForObject.
  static StreamedStores streamable(std::string_view object);
  /// Loads the plugin; false where it cannot be.
  bool load();
  /// The kernel, ready to run. For this machine and without a dump, kept objects serve.
  std::shared_ptr<const Executable> compile(const Kernel& kernel, JitDump* dump = nullptr,
                                            std::string_view target = {});

  JitCompiler(const JitCompiler&) = delete;
  JitCompiler& operator=(const JitCompiler&) = delete;

 private:
  JitCompiler() = default;
  struct Plugin;
  const Plugin& plugin();
};

}  // namespace fermata
