// An object in memory that can be started, and which of its stores a launch should send past the caches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "codegen_cpu/code_symbols.h"
#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/loader.h"
#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// Stores of a kernel, by index, that go past the caches. A kernel that streams must get all of these at addresses that
/// are equal modulo a cache line in every row.
using StreamedStores = std::uint64_t;

/// What a launch should stream: results of at least stream_threshold() bytes that are written in order, in a kernel
/// that reads too, and that are not written where they were read.
StreamedStores stores_to_stream(const Kernel& kernel, const KernelLaunch& launch);

class LoadedExecutable : public Executable {
 public:
  /// `name` is for debuggers and perf. Throws ObjectError if the object is damaged or of another version of this
  /// library, and NoMemoryForObject.
  explicit LoadedExecutable(std::string_view object, std::string_view name = {});
  void launch(const KernelLaunch& launch) const override;
  bool can_split() const override { return info_.state_bytes != 0; }
  std::size_t block_bytes(const KernelLaunch& launch) const override { return jit::block_bytes(info_, launch); }
  void partial(const KernelLaunch& launch) const override { enter(launch, jit::Part::partial, nullptr); }
  void finish(const KernelLaunch& launch) const override { enter(launch, jit::Part::finish, nullptr); }
  std::size_t code_bytes() const override { return object_->mapped_bytes(); }
  /// The stores that a variant of it may stream.
  StreamedStores streamable() const { return info_.streamable; }

 private:
  void enter(const KernelLaunch& launch, jit::Part part, void* scratch) const;

  std::shared_ptr<const LoadedObject> object_;
  const CodeSymbol symbol_;
  jit::ObjectInfo info_;
  std::optional<Kernel> checked_;  // the kernel of checked code
  jit::EntryPoint entry_;
};

}  // namespace fermata
