// Machine code of a kernel that was compiled elsewhere, with its variants for launches that stream.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "codegen_cpu/loaded_executable.h"

namespace fermata {

class ShippedExecutable final : public LoadedExecutable {
 public:
  struct Variant {
    StreamedStores streamed;
    std::string_view object;
  };
  /// The variants stay where they are, and are loaded when a launch first wants them.
  ShippedExecutable(std::string_view object, Kernel kernel, std::vector<Variant> variants);
  const Executable& variant_for(const KernelLaunch& launch, bool may_stream) const override;

 private:
  struct Loaded {
    StreamedStores streamed;
    std::string_view object;
    std::unique_ptr<const LoadedExecutable> executable{};  // null until it is wanted
  };
  const Kernel kernel_;
  mutable std::mutex mutex_;
  mutable std::vector<Loaded> variants_;
};

}  // namespace fermata
