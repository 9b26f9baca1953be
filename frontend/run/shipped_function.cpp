// See shipped_function.h.
#include "frontend/run/shipped_function.h"

#include <algorithm>

#include "dispatch/copy_view.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "runtime/backend_memory.h"

namespace fermata {

void ShippedFunction::set(std::span<const std::int64_t> symbols, std::span<const TensorType> arguments) {
  if (is_bound_ && std::ranges::equal(symbols, symbols_) && std::ranges::equal(arguments, arguments_)) return;
  is_bound_ = false;
  if (arguments.size() != function_.arguments) throw_damaged(path_, "a function has the wrong number of arguments");
  records_.set(symbols, arguments);
  bound_.bind(*function_.plan, records_.nodes());
  arguments_.assign(arguments.begin(), arguments.end()), symbols_.assign(symbols.begin(), symbols.end());
  results_.clear();
  for (const std::uint32_t output : function_.results)
    results_.push_back(records_.nodes()[function_.plan->output_records[output]]->type());
  is_bound_ = true;
}

Graph ShippedFunction::graph() const { throw_internal("functions of exported programs have no graph"); }

LeafBuffer ShippedFunction::buffer_of(const ProgramLeaf& leaf, const TensorView& v,
                                      std::vector<StoragePtr>& copies) const {
  const std::span<const std::int64_t> sizes(v.sizes, v.rank), strides(v.strides, v.rank);
  if (!leaf.strides.empty() || leaf.offset != 0) {
    if (!std::ranges::equal(leaf.strides, strides)) throw_damaged(path_, "an argument has the wrong strides");
    return {static_cast<std::byte*>(v.data) - leaf.offset * static_cast<std::int64_t>(byte_size(v.dtype)), v.buffer};
  }
  if (is_dense(sizes, strides)) return {v.data, v.buffer};
  const BackendKey backend = function_.plan->backend;
  copies.emplace_back(allocate_on(backend, static_cast<std::size_t>(v.element_count()) * byte_size(v.dtype)));
  copy_view(v, copies.back()->data, backend, {});
  return {copies.back()->data};
}

void ShippedFunction::run(std::span<const TensorView> arguments, std::span<void* const> results,
                          std::uint64_t key) const {
  const Plan& plan = *function_.plan;
  std::vector<StoragePtr> held;
  leaves_.clear(), buffers_.assign(plan.output_slots.size(), nullptr);
  for (const ProgramLeaf& leaf : function_.leaves) leaves_.push_back(buffer_of(leaf, arguments[leaf.number], held));
  for (std::size_t i = 0; i < results.size(); ++i) buffers_[function_.results[i]] = results[i];
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i] == nullptr) {
      held.emplace_back(allocate_on(plan.backend, bound_.output_bytes(i)));
      buffers_[i] = held.back()->data;
    }
  for (const ProgramDraw& d : function_.draws)
    bound_.scalars()[d.slot] = d.is_key ? key : static_cast<std::uint64_t>(value_of(d.delta, symbols_, path_));
  bound_.run(plan, leaves_, buffers_);
}

}  // namespace fermata
