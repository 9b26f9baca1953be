// Machine code of a kernel that was compiled elsewhere, with its variants for launches that stream, for short rows and
// for tall columns.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "codegen_cpu/loaded_executable.h"
#include "codegen_cpu/staged_columns.h"
#include "dispatch/object_compiler.h"

namespace fermata {

class ShippedExecutable final : public LoadedExecutable {
 public:
  struct Variant {
    ObjectForm form;
    StreamedStores streamed;
    std::string_view object;
  };
  /// The variants stay where they are, and are loaded when a launch first wants them.
  ShippedExecutable(std::string_view object, Kernel kernel, std::vector<Variant> variants);
  void launch(const KernelLaunch& launch) const override;
  const Executable& variant_for(const KernelLaunch& launch, bool may_stream) const override;

 private:
  struct Loaded {
    Variant variant;
    std::atomic<const Executable*> ready{nullptr};
    std::shared_ptr<const Executable> executable{};  // null until it is wanted, and where it cannot be loaded
    bool was_tried = false;
  };
  const Executable* find(ObjectForm form, StreamedStores streamed = 0) const;
  std::shared_ptr<const Executable> load(const Variant& variant) const;
  std::shared_ptr<const Executable> load_stages(std::shared_ptr<const Executable> reductions) const;

  const Kernel kernel_;
  const bool may_exchange_axes_;
  bool streams_ = false, turns_ = false, joins_ = false;
  std::optional<StagedKernels> staged_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Loaded>> variants_;
};

}  // namespace fermata
