// See shipped_executable.h.
#include "frontend/run/shipped_executable.h"

#include <utility>

#include "codegen_cpu/exchanged_axes.h"
#include "codegen_cpu/joined_rows.h"
#include "codegen_cpu/staged_columns.h"
#include "codegen_cpu/turned_rows.h"
#include "runtime/streaming.h"

namespace fermata {

ShippedExecutable::ShippedExecutable(std::string_view object, Kernel kernel, std::vector<Variant> variants)
    : LoadedExecutable(object), kernel_(std::move(kernel)), may_exchange_axes_(may_exchange_axes(kernel_)) {
  for (const Variant& v : variants) {
    switch (v.form) {
      case ObjectForm::plain: streams_ = true; break;
      case ObjectForm::turned: turns_ = true; break;
      case ObjectForm::joined: joins_ = true; break;
      case ObjectForm::reductions: staged_ = staged_kernels(kernel_); break;
      case ObjectForm::results: break;  // of the stages
    }
    variants_.push_back(std::make_unique<Loaded>(v));
  }
}

void ShippedExecutable::launch(const KernelLaunch& launch) const {
  if (!may_exchange_axes_) return LoadedExecutable::launch(launch);
  launch_exchanged(kernel_, launch, [this](const KernelLaunch& exchanged) { LoadedExecutable::launch(exchanged); });
}

const Executable& ShippedExecutable::variant_for(const KernelLaunch& launch, bool may_stream) const {
  const Executable* found = nullptr;
  if (joins_ && has_rows_to_join(kernel_, launch)) found = find(ObjectForm::joined);
  if (found == nullptr && turns_ && has_short_rows(kernel_, launch, kLongestTurnedRowOfStages))
    found = find(ObjectForm::turned);
  if (found == nullptr && staged_ && may_stream && has_tall_columns(kernel_, *staged_, launch))
    found = find(ObjectForm::reductions);
  if (found != nullptr) return *found;
  if (!may_stream || !streams_) return *this;
  std::int64_t points = 1;
  for (unsigned axis = 0; axis < kernel_.rank; ++axis) points *= launch.sizes[axis];
  constexpr std::int64_t kLargestElement = 8;
  if (points * kLargestElement < stream_threshold()) return *this;
  const StreamedStores streamed = stores_to_stream(kernel_, launch) & streamable();
  if (streamed != 0) found = find(ObjectForm::plain, streamed);
  return found != nullptr ? *found : *this;
}

const Executable* ShippedExecutable::find(ObjectForm form, StreamedStores streamed) const {
  for (const auto& v : variants_) {
    if (v->variant.form != form || v->variant.streamed != streamed) continue;
    if (const Executable* const ready = v->ready.load(std::memory_order_acquire)) return ready;
    const std::lock_guard lock(mutex_);
    if (!std::exchange(v->was_tried, true)) {
      v->executable = load(v->variant);
      v->ready.store(v->executable.get(), std::memory_order_release);
    }
    return v->executable.get();
  }
  return nullptr;
}

std::shared_ptr<const Executable> ShippedExecutable::load(const Variant& variant) const {
  try {
    auto code = std::make_shared<LoadedExecutable>(variant.object);
    switch (variant.form) {
      case ObjectForm::turned: return turned_executable(kernel_, std::move(code));
      case ObjectForm::joined: return joined_executable(kernel_, std::move(code));
      case ObjectForm::reductions: return load_stages(std::move(code));
      case ObjectForm::plain:
      case ObjectForm::results: break;
    }
    return may_exchange_axes_ ? exchanging_executable(kernel_, std::move(code)) : code;
  } catch (const std::exception&) { return nullptr; }  // it would only have been faster
}

std::shared_ptr<const Executable> ShippedExecutable::load_stages(std::shared_ptr<const Executable> reductions) const {
  std::string_view object;
  std::vector<Variant> streamed;
  for (const auto& v : variants_)
    if (v->variant.form != ObjectForm::results)
      continue;
    else if (v->variant.streamed == 0)
      object = v->variant.object;
    else
      streamed.push_back({ObjectForm::plain, v->variant.streamed, v->variant.object});
  if (!staged_ || object.empty()) return nullptr;
  return staged_executable(kernel_, *staged_, std::move(reductions),
                           std::make_shared<const ShippedExecutable>(object, staged_->results, std::move(streamed)));
}

}  // namespace fermata
