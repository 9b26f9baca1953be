// The kernels of control flow, which run the functions owned by a node. The engine registers them for every backend,
// and libfermata_run for the CPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "dispatch/backend.h"
#include "dispatch/copy_view.h"
#include "dispatch/kernel_table.h"
#include "ir/ops/control.h"
#include "ir/random_stream.h"
#include "ir/tuple_layout.h"
#include "runtime/backend_memory.h"
#include "runtime/call_attributes.h"
#include "runtime/cancellation.h"
#include "runtime/runnable_subgraph.h"

namespace fermata {
namespace control_kernels {

inline std::size_t bytes_of(const TensorType& type) {
  return static_cast<std::size_t>(element_count(type.shape)) * byte_size(type.dtype);
}

/// Reads one element from host or device memory.
template <class T, BackendKey B> T read_element(const void* from) {
  T value;
  if constexpr (B == BackendKey::cpu)
    std::memcpy(&value, from, sizeof value);
  else
    backend(B)->copy_to_host(&value, from, sizeof value);
  return value;
}

/// Double-buffered loop state: read from one set of buffers, written to the other. The last set written is copied to
/// the results unless it already is them.
class LoopState {
 public:
  LoopState(std::span<const TensorType> types, std::span<const TensorView> init, std::span<void* const> results,
            BackendKey backend)
      : types_(types), backend_(backend), current_(init.begin(), init.end()), results_(results) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      buffers_.emplace_back(allocate_on(backend, bytes_of(types[i])));
      strides_.push_back(dense_strides(types[i].shape));
    }
  }
  std::span<const TensorView> current() const { return current_; }
  void* next(std::size_t i) const { return runs_ % 2 == 0 ? results_[i] : buffers_[i]->data; }
  void advance() {
    for (std::size_t i = 0; i < types_.size(); ++i)
      current_[i] = {next(i), types_[i].dtype, static_cast<std::uint8_t>(types_[i].shape.rank()),
                     types_[i].shape.data(), strides_[i].data()};
    ++runs_;
  }
  void deliver(Location where) const {
    if (runs_ % 2 != 0) return;
    for (std::size_t i = 0; i < types_.size(); ++i) copy_view(current_[i], results_[i], backend_, where);
  }

 private:
  std::span<const TensorType> types_;
  BackendKey backend_;
  std::vector<TensorView> current_;
  std::span<void* const> results_;
  std::vector<StoragePtr> buffers_;
  std::vector<Shape> strides_;
  std::uint64_t runs_ = 0;
};

inline TensorView slice(const TensorView& sequence, std::int64_t at) {
  const std::int64_t offset = at * sequence.strides[0] * static_cast<std::int64_t>(byte_size(sequence.dtype));
  return {static_cast<std::byte*>(sequence.data) + offset, sequence.dtype, static_cast<std::uint8_t>(sequence.rank - 1),
          sequence.sizes + 1, sequence.strides + 1};
}

/// The buffers of results within the node's buffer.
inline std::vector<void*> buffers_of(const TensorView& packed, std::span<const TensorType> results) {
  std::vector<void*> buffers;
  for (const std::int64_t offset : tuple_layout(results).offsets)
    buffers.push_back(static_cast<std::byte*>(packed.data) + offset);
  return buffers;
}

/// Reads the operands of a call in order.
template <BackendKey B> class OperandReader {
 public:
  explicit OperandReader(const CallArgs& args) : rest_(args.inputs) {}
  std::span<const TensorView> next(std::size_t count) {
    const auto found = rest_.first(count);
    rest_ = rest_.subspan(count);
    return found;
  }
  double seed(bool is_given) { return is_given ? read_element<double, B>(next(1)[0].data) : 0; }

 private:
  std::span<const TensorView> rest_;
};

template <BackendKey B> void run_cond(const CallArgs& args) {
  const auto op = attributes_of<ops::Cond>(args);
  OperandReader<B> operands(args);
  const bool taken = read_element<bool, B>(operands.next(1)[0].data);
  const double seed = operands.seed(op.seeded.value);
  const RunnableSubgraph& branch = runnable(taken ? *op.when_true.value : *op.when_false.value);
  branch.run(operands.next(branch.arguments().size()), buffers_of(args.outputs[0], branch.results()),
             stream_key(seed, 0));
}

template <BackendKey B> void run_while(const CallArgs& args) {
  const auto op = attributes_of<ops::WhileLoop>(args);
  const RunnableSubgraph &condition = runnable(*op.condition.value), &body = runnable(*op.body.value);
  OperandReader<B> operands(args);
  const double seed = operands.seed(op.seeded.value);
  const auto given = operands.next(body.arguments().size());
  const std::vector<void*> results = buffers_of(args.outputs[0], body.results());
  LoopState state(body.results(), given.first(results.size()), results, B);
  std::vector<TensorView> views(given.begin(), given.end());
  const StoragePtr holds(allocate_on(B, sizeof(bool)));
  void* const holds_at[] = {holds->data};
  std::vector<void*> next(results.size());
  for (std::uint64_t run = 0;; run += 2) {
    check_stop(stop_of_run);
    std::ranges::copy(state.current(), views.begin());
    condition.run(views, holds_at, stream_key(seed, run));
    if (!read_element<bool, B>(holds->data)) break;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = state.next(i);
    body.run(views, next, stream_key(seed, run + 1));
    state.advance();
  }
  state.deliver(args.where);
}

template <BackendKey B> void run_scan(const CallArgs& args) {
  const auto op = attributes_of<ops::ScanLoop>(args);
  const RunnableSubgraph& body = runnable(*op.body.value);
  const std::span<const TensorType> types = body.results();
  const auto carries = static_cast<std::size_t>(op.carries.value);
  OperandReader<B> operands(args);
  const double seed = operands.seed(op.seeded.value);
  const auto init = operands.next(carries), sequences = operands.next(static_cast<std::size_t>(op.sequences.value)),
             rest = operands.next(body.arguments().size() - init.size() - sequences.size());
  const std::vector<void*> results = buffers_of(args.outputs[0], op.stacked(types));
  LoopState state(types.first(carries), init, std::span(results).first(carries), B);
  std::vector<TensorView> views(init.begin(), init.end());
  views.insert(views.end(), sequences.begin(), sequences.end());
  views.insert(views.end(), rest.begin(), rest.end());
  if (body.run_scan(op, views, results)) return;
  std::vector<void*> next(types.size());
  for (std::int64_t step = 0; step < op.length.value; ++step) {
    check_stop(stop_of_run);
    const std::int64_t at = op.reverse.value ? op.length.value - 1 - step : step;
    std::ranges::copy(state.current(), views.begin());
    for (std::size_t k = 0; k < sequences.size(); ++k) views[carries + k] = slice(sequences[k], at);
    for (std::size_t i = 0; i < next.size(); ++i)
      next[i] = i < carries ? state.next(i)
                            : static_cast<std::byte*>(results[i]) + static_cast<std::size_t>(at) * bytes_of(types[i]);
    body.run(views, next, stream_key(seed, static_cast<std::uint64_t>(at)));
    state.advance();
  }
  state.deliver(args.where);
}

template <BackendKey B> void run_unpack(const CallArgs& args) {
  const TensorView &bytes = args.inputs[0], &out = args.outputs[0];
  StoragePtr dense;
  void* data = bytes.data;
  if (bytes.sizes[0] > 1 && bytes.strides[0] != 1) {
    dense.reset(allocate_on(B, static_cast<std::size_t>(bytes.sizes[0])));
    copy_view(bytes, dense->data, B, args.where);
    data = dense->data;
  }
  const Shape sizes(std::span(out.sizes, out.rank)), strides = dense_strides(sizes);
  const std::int64_t offset = attributes_of<ops::Unpack>(args).offset.value;
  copy_view({static_cast<std::byte*>(data) + offset, out.dtype, out.rank, sizes.data(), strides.data()}, out.data, B,
            args.where);
  if constexpr (B == BackendKey::cpu)
    if (out.dtype == DType::boolean) {  // a text program may unpack any bytes
      auto* const bytes_of_bools = static_cast<std::uint8_t*>(out.data);
      std::transform(bytes_of_bools, bytes_of_bools + out.element_count(), bytes_of_bools,
                     [](std::uint8_t b) { return std::uint8_t{b != 0}; });
    }
}

template <BackendKey B> void run_after(const CallArgs& args) {
  copy_view(args.inputs[0], args.outputs[0].data, B, args.where);
}

}  // namespace control_kernels

template <BackendKey B> void add_control_kernels() {
  using namespace control_kernels;
  DTypeSet all;
  for (std::size_t t = 0; t < kDTypeCount; ++t) all = all | static_cast<DType>(t);
  add_variant(Op::cond, B, {.name = "functions", .dtypes = all, .call = run_cond<B>});
  add_variant(Op::while_loop, B, {.name = "functions", .dtypes = all, .call = run_while<B>});
  add_variant(Op::scan, B, {.name = "functions", .dtypes = all, .call = run_scan<B>});
  add_variant(Op::unpack, B, {.name = "copy", .dtypes = all, .call = run_unpack<B>});
  add_variant(Op::after, B, {.name = "copy", .dtypes = all, .call = run_after<B>});
}

}  // namespace fermata
