// Machine code of kernels as bytes, for processors by name: what exported programs are made of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "ir/key_set.h"

namespace fermata {

struct ObjectCode {
  std::uint64_t streamed;  // the stores that go past the caches
  std::string bytes;
};

struct ObjectCompiler {
  std::span<const std::string_view> targets;  // best first
  /// The target of this machine.
  std::string_view (*own_target)() = nullptr;
  /// The code of a kernel that is used much: that without streamed stores comes first. UnsupportedError FM2101 where it
  /// cannot be compiled.
  std::vector<ObjectCode> (*compile)(const Kernel& kernel, std::string_view target) = nullptr;
};

/// Null where a backend has none.
const ObjectCompiler* object_compiler(BackendKey backend);
/// For the life of the process.
void set_object_compiler(BackendKey backend, const ObjectCompiler* compiler);

}  // namespace fermata
