// See interpreter.h.
#include "frontend/engine/interpreter.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/call.h"
#include "dispatch/kernel_table.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/operation_count.h"
#include "ir/per_thread.h"
#include "ir/view.h"
#include "runtime/bound_plan.h"
#include "runtime/cancellation.h"
#include "runtime/few.h"

namespace fermata {
namespace {

/// A value that exists: a dense buffer, or a strided look into one.
struct Value {
  StoragePtr storage;
  const Shape* strides = nullptr;  // null where dense
  std::unique_ptr<Shape> own_strides;
  std::int64_t offset = 0;
  std::uint32_t readers = 0;
};

/// To the dispatch trace.
void show(Op op, const Node& n) {
  if (const WatchStep watch = watch_step.load(std::memory_order_relaxed)) [[unlikely]]
    watch(name(op), n.backend, n.where);
}

class Interpreter {
 public:
  Interpreter(const Walk& walk, std::span<StoragePtr> outputs, const ObserveCall* observe = nullptr)
      : walk_(walk), outputs_(outputs), observe_(observe), values_(std::exchange(spare_values(), {})) {
    values_.resize(walk.order.size());
  }
  ~Interpreter() {
    values_.clear();
    if (values_.capacity() <= kMostSpareValues) spare_values() = std::move(values_);
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void run() {
    std::size_t next_output = 0;
    const StoppableScope scope(true);
    for (std::uint32_t i = 0; i < walk_.order.size(); ++i) {
      check_stop(stop_of_run);
      const Walk::Entry& entry = walk_.order[i];
      Value& v = values_[i];
      v.readers = entry.uses;
      const bool wanted = next_output < walk_.outputs.size() && walk_.outputs[next_output] == i;
      if (entry.storage != nullptr) {
        entry.storage->retain();
        v.storage.reset(entry.storage);
        if (!entry.node->is_dense_leaf()) v.strides = &entry.node->extra->strides, v.offset = entry.node->extra->offset;
        continue;
      }
      run_node(i, wanted);
      if (observe_ != nullptr && !is_view(entry.node->op)) [[unlikely]]
        show_call(i);
      if (wanted) {
        v.storage->retain();
        outputs_[next_output++].reset(v.storage.get());
      }
      for (const std::uint32_t in : operands(i))
        if (in != Walk::kScalarOperand && --values_[in].readers == 0) values_[in].storage.reset();
    }
  }

 private:
  std::span<const std::uint32_t> operands(std::uint32_t i) const {
    const std::uint32_t begin = walk_.first_operand[i];
    const std::size_t end = i + 1 < walk_.first_operand.size() ? walk_.first_operand[i + 1] : walk_.operands.size();
    return {walk_.operands.data() + begin, end - begin};
  }
  TensorView view(std::uint32_t i, Shape& strides) const {
    const Node& n = *walk_.order[i].node;
    const Value& v = values_[i];
    strides = v.strides != nullptr ? *v.strides : dense_strides(n.sizes());
    return {static_cast<std::byte*>(v.storage->data) + v.offset * static_cast<std::int64_t>(byte_size(n.dtype)),
            n.dtype,
            n.rank,
            n.sizes().data(),
            strides.data(),
            v.storage.get()};
  }

  void show_call(std::uint32_t i) const {
    const Node& n = *walk_.order[i].node;
    const std::span<const std::uint32_t> in = operands(i);
    const std::span<const std::uint64_t> scalars = n.extra != nullptr && !n.extra->scalars.empty()
                                                       ? std::span<const std::uint64_t>(n.extra->scalars)
                                                       : std::span<const std::uint64_t>(&n.scalar, 1);
    std::vector<Shape> strides(in.size() + 1);
    std::vector<TensorView> views;
    std::size_t scalar = 0;
    const auto add_scalar = [&] {
      if (scalar < scalars.size())
        views.push_back({const_cast<std::uint64_t*>(&scalars[scalar++]), scalar_dtype(n.dtype), 0, nullptr, nullptr});
    };
    for (std::size_t k = 0; k < in.size(); ++k)
      if (in[k] == Walk::kScalarOperand)
        add_scalar();
      else
        views.push_back(view(in[k], strides[k]));
    if (in.empty()) add_scalar();
    (*observe_)(n, views, view(i, strides.back()));
  }

  void run_node(std::uint32_t i, bool wanted) {
    const Node& n = *walk_.order[i].node;
    if (is_view(n.op) && try_view(i)) {
      if (wanted) materialize_view(i);
      return;
    }
    if (is_pointwise(n.op) && run_inner_loop(i)) return;
    Few<Shape> strides(operands(i).size());
    Few<TensorView> inputs(operands(i).size());
    run_call(i, inputs, strides.data());
  }

  /// Fills in the operands, one `strides` each, and calls.
  void run_call(std::uint32_t i, std::span<TensorView> inputs, Shape* strides) {
    const Node& n = *walk_.order[i].node;
    const bool copies = n.op == Op::reshape;  // in row-major order, where no strides express it
    const std::span<const std::uint32_t> in = operands(i);
    DType operand = n.dtype;
    const std::span<const std::int64_t> sizes = copies ? walk_.order[in[0]].node->sizes() : n.sizes();
    for (std::size_t k = 0; k < in.size(); ++k) {
      if (in[k] != Walk::kScalarOperand) {
        inputs[k] = view(in[k], strides[k]);
        if (k == 0 || is_pointwise(n.op)) operand = inputs[k].dtype;
      }
      if (is_pointwise(n.op)) stretch_operand(n, static_cast<unsigned>(k), inputs[k], strides[k]);
    }
    if (is_pointwise(n.op))
      for (std::size_t k = 0; k < in.size(); ++k)
        if (in[k] == Walk::kScalarOperand) inputs[k].dtype = scalar_dtype(operand);
    if (traits(n.op).overwrites && is_last_read(in[0])) values_[i].storage = std::move(values_[in[0]].storage);
    call_node(n, copies ? Op::copy : n.op, operand, inputs, sizes, values_[i].storage);
  }

  /// Whether the read of a dense value of this run is its last, and nothing else lies in its buffer.
  bool is_last_read(std::uint32_t i) const {
    const Value& v = values_[i];
    return observe_ == nullptr && walk_.order[i].storage == nullptr && v.readers == 1 && v.strides == nullptr &&
           v.storage->unique() && v.storage->is_own() && v.storage->data != nullptr;
  }

  /// What eager calls do with dense operands of the result's shape and single elements: no views are made.
  bool run_inner_loop(std::uint32_t i) {
    const Node& n = *walk_.order[i].node;
    const std::span<const std::uint32_t> in = operands(i);
    const std::int64_t elements = element_count(n.sizes());
    const void* data[3];
    bool splat[3], has_scalar = false;
    DType operand = n.dtype;
    for (std::size_t k = 0; k < in.size(); ++k) {
      splat[k] = true;
      if (in[k] == Walk::kScalarOperand) {
        has_scalar = true, data[k] = &n.scalar;
        continue;
      }
      const Value& v = values_[in[k]];
      const Node& source = *walk_.order[in[k]].node;
      if (v.strides != nullptr) return false;
      splat[k] = n.stretched[k] != 0 || source.rank != n.rank;
      if (splat[k] && element_count(source.sizes()) != 1) return false;
      operand = source.dtype, data[k] = v.storage->data;
    }
    const InnerLoop loop = inner_loop(n.op, n.backend, operand, elements);
    if (loop == nullptr || (has_scalar && compute_dtype(operand) != operand)) return false;
    show(n.op, n);
    const EventScope event([&] { return event_of_call(n, n.op); });
    values_[i].storage.reset(Storage::allocate(static_cast<std::size_t>(elements) * byte_size(n.dtype)));
    loop(values_[i].storage->data, data, splat, elements);
    return true;
  }

  bool try_view(std::uint32_t i) {
    const Node& n = *walk_.order[i].node;
    const std::uint32_t in = operands(i)[0];
    Shape sizes(walk_.order[in].node->sizes()), strides;
    view(in, strides);
    std::int64_t offset = values_[in].offset;
    if (!apply_view(n.op, n.stored_attributes(), Shape(n.sizes()), sizes, strides, offset)) return false;
    Value& v = values_[i];
    values_[in].storage->retain();
    v.storage.reset(values_[in].storage.get());
    v.own_strides = std::make_unique<Shape>(strides), v.strides = v.own_strides.get(), v.offset = offset;
    return true;
  }
  /// Outputs own dense buffers: values never alias.
  void materialize_view(std::uint32_t i) {
    const Node& n = *walk_.order[i].node;
    Shape strides;
    const TensorView from = view(i, strides);
    const StoragePtr keep = std::move(values_[i].storage);
    call_node(n, Op::copy, n.dtype, {&from, 1}, n.sizes(), values_[i].storage);
    values_[i].strides = nullptr, values_[i].offset = 0;
  }

  /// Memory of the last interpreter of this thread: one inside of another finds none, and takes its own.
  static std::vector<Value>& spare_values() {
    static constinit thread_local PerThread<std::vector<Value>> spare;
    return spare.get();
  }
  static constexpr std::size_t kMostSpareValues = 4096;

  const Walk& walk_;
  std::span<StoragePtr> outputs_;
  const ObserveCall* observe_;
  std::vector<Value> values_;
};

}  // namespace

void stretch_operand(const Node& n, unsigned k, TensorView& view, Shape& strides) {
  const std::span<const std::int64_t> shape = n.sizes();
  const bool is_scalar = n.operand(k) == nullptr;
  Shape full;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t lead = shape.size() - view.rank;
    full.push_back(is_scalar || i < lead || (n.stretched[k] >> i & 1) != 0 ? 0 : view.strides[i - lead]);
  }
  if (is_scalar) view.data = const_cast<std::uint64_t*>(&n.scalar);
  strides = full;
  view.rank = n.rank, view.sizes = shape.data(), view.strides = strides.data();
}

void call_node(const Node& n, Op op, DType operand, std::span<const TensorView> inputs,
               std::span<const std::int64_t> sizes, StoragePtr& result) {
  const bool gives = gives_buffer(op, n.backend);
  if (!gives && result == nullptr)
    result.reset(Storage::allocate(static_cast<std::size_t>(element_count(n.sizes())) * byte_size(n.dtype)));
  const Shape dense = dense_strides(sizes);
  const TensorView output{gives ? nullptr : result->data, n.dtype, static_cast<std::uint8_t>(sizes.size()),
                          sizes.data(), dense.data()};
  const std::array<std::int64_t, 2> of_reduction{static_cast<std::int64_t>(n.scalar & 0xffff),
                                                 static_cast<std::int64_t>(n.scalar >> 16 & 1)};
  const std::span<const std::int64_t> attributes =
      family(n.op) == Family::reduce ? std::span<const std::int64_t>(of_reduction) : n.stored_attributes();
  const std::span<const std::uint64_t> scalars = n.extra != nullptr && !n.extra->scalars.empty()
                                                     ? std::span<const std::uint64_t>(n.extra->scalars)
                                                     : std::span<const std::uint64_t>(&n.scalar, 1);
  CallArgs args{op, inputs, {&output, 1}, attributes, scalars, n.where};
  if (gives) args.result = &result;
  if (n.extra != nullptr) args.context = n.extra->context, args.subgraphs = n.extra->subgraphs.get();
  show(op, n);
  const EventScope event([&] { return event_of_call(n, op); });
  run_call(operator_entry(op), n.backend, operand, args, n.where);
}

void interpret(const Walk& walk, std::span<StoragePtr> outputs) { Interpreter(walk, outputs).run(); }
void interpret(const Walk& walk, std::span<StoragePtr> outputs, const ObserveCall& observe) {
  Interpreter(walk, outputs, observe != nullptr ? &observe : nullptr).run();
}

const EventInfo* event_of_call(const Node& n, Op op) {
  constexpr std::size_t kMost = 8;
  std::array<std::span<const std::int64_t>, kMost> sizes;
  std::size_t count = 0;
  const auto bytes_of = [](const Node& x) {
    return static_cast<double>(element_count(x.sizes())) * static_cast<double>(byte_size(x.dtype));
  };
  double bytes = bytes_of(n);
  for (std::size_t k = 0; k < n.operand_count() && count < kMost; ++k)
    if (const Node* const in = n.operand(k)) sizes[count++] = in->sizes(), bytes += bytes_of(*in);
  return event_info(EventKind::call, name(op), n.where, bytes,
                    operation_count(op, std::span(sizes).first(count), n.sizes()));
}

double interpretation_cost(const Walk& walk) {
  constexpr double kNsPerCall = 100, kNsPerElement = 0.7;
  double ns = 0;
  for (const Walk::Entry& e : walk.order)
    if (e.storage == nullptr) {
      double elements = static_cast<double>(element_count(e.node->sizes()));
      if (family(e.node->op) == Family::reduce || e.node->op == Op::matmul)
        elements += static_cast<double>(element_count(e.node->operand(0)->sizes()));
      ns += kNsPerCall + kNsPerElement * elements;
    }
  return ns;
}

}  // namespace fermata
