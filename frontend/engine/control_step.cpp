// See control_step.h.
#include "frontend/engine/control_step.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "dispatch/backend.h"
#include "dispatch/kernel_table.h"
#include "dispatch/tuple_results.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "runtime/backend_memory.h"
#include "runtime/effects.h"

namespace fermata {
namespace {

std::size_t bytes_of(const TensorType& type) {
  return static_cast<std::size_t>(element_count(type.shape)) * byte_size(type.dtype);
}

/// One element, wherever it is.
template <class T> T read_element(const void* from, BackendKey where) {
  T value;
  if (where == BackendKey::cpu)
    std::memcpy(&value, from, sizeof value);
  else
    backend(where)->copy_to_host(&value, from, sizeof value);
  return value;
}

/// A dense view of a buffer.
struct DenseView {
  Shape strides;
  TensorView view;
  DenseView(void* data, const TensorType& type)
      : strides(dense_strides(type.shape)),
        view{data, type.dtype, static_cast<std::uint8_t>(type.shape.rank()), type.shape.data(), strides.data()} {}
  DenseView(const DenseView&) = delete;
  DenseView& operator=(const DenseView&) = delete;
};

class CondStep final : public ControlStep {
 public:
  CondStep(StepFunction when_true, StepFunction when_false, std::size_t predicate)
      : branches_{std::move(when_false), std::move(when_true)}, predicate_(predicate) {}
  bool draws() const override { return branches_[0].function->draws() || branches_[1].function->draws(); }
  std::vector<const CapturedFunction*> functions() const override {
    return {branches_[0].function.get(), branches_[1].function.get()};
  }
  void run(std::span<const TensorView> operands, std::span<void* const> results, double seed) override {
    const bool taken = read_element<bool>(operands[predicate_].data, branches_[0].function->backend());
    const StepFunction& branch = branches_[taken ? 1 : 0];
    branch.function->run(branch.views(operands), results, stream_key(seed, 0));
  }

 private:
  std::array<StepFunction, 2> branches_;
  std::size_t predicate_;
};

/// Values that a function of a loop takes and gives: read from one set of buffers, written to the other. The last set
/// written is copied to the results unless it is those.
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

std::vector<TensorView> views_at(std::span<const TensorView> operands, std::span<const std::size_t> places) {
  std::vector<TensorView> views;
  for (const std::size_t place : places) views.push_back(operands[place]);
  return views;
}

class WhileStep final : public ControlStep {
 public:
  WhileStep(StepFunction condition, StepFunction body, std::vector<std::size_t> init)
      : condition_(std::move(condition)), body_(std::move(body)), init_(std::move(init)) {}
  bool draws() const override { return condition_.function->draws() || body_.function->draws(); }
  std::vector<const CapturedFunction*> functions() const override {
    return {condition_.function.get(), body_.function.get()};
  }
  void run(std::span<const TensorView> operands, std::span<void* const> results, double seed) override {
    const BackendKey backend = body_.function->backend();
    LoopState state(body_.function->results(), views_at(operands, init_), results, backend);
    std::vector<TensorView> condition = condition_.views(operands), body = body_.views(operands);
    const StoragePtr holds(allocate_on(backend, sizeof(bool)));
    void* const holds_at[] = {holds->data};
    std::vector<void*> next(results.size());
    for (std::uint64_t run = 0;; run += 2) {
      std::ranges::copy(state.current(), condition.begin()), std::ranges::copy(state.current(), body.begin());
      condition_.function->run(condition, holds_at, stream_key(seed, run));
      if (!read_element<bool>(holds->data, backend)) break;
      for (std::size_t i = 0; i < next.size(); ++i) next[i] = state.next(i);
      body_.function->run(body, next, stream_key(seed, run + 1));
      state.advance();
    }
    state.deliver({});
  }

 private:
  StepFunction condition_, body_;
  std::vector<std::size_t> init_;
};

class ScanStep final : public ControlStep {
 public:
  ScanStep(StepFunction body, std::vector<std::size_t> init, std::vector<std::size_t> sequences, std::int64_t length,
           bool reverse)
      : body_(std::move(body)),
        init_(std::move(init)),
        sequences_(std::move(sequences)),
        length_(length),
        reverse_(reverse) {}
  bool draws() const override { return body_.function->draws(); }
  std::vector<const CapturedFunction*> functions() const override { return {body_.function.get()}; }
  std::vector<std::int64_t> numbers() const override { return {length_, reverse_ ? 1 : 0}; }
  void run(std::span<const TensorView> operands, std::span<void* const> results, double seed) override {
    const std::span<const TensorType> types = body_.function->results();
    const std::size_t carries = init_.size();
    LoopState state(types.first(carries), views_at(operands, init_), results.first(carries), body_.function->backend());
    std::vector<TensorView> views = body_.views(operands);
    std::vector<void*> next(types.size());
    for (std::int64_t step = 0; step < length_; ++step) {
      const std::int64_t at = reverse_ ? length_ - 1 - step : step;
      std::ranges::copy(state.current(), views.begin());
      for (std::size_t k = 0; k < sequences_.size(); ++k)
        if (sequences_[k] != StepFunction::kOwn) views[carries + k] = slice(operands[sequences_[k]], at);
      for (std::size_t i = 0; i < next.size(); ++i)
        next[i] = i < carries ? state.next(i)
                              : static_cast<std::byte*>(results[i]) + static_cast<std::size_t>(at) * bytes_of(types[i]);
      body_.function->run(views, next, stream_key(seed, static_cast<std::uint64_t>(at)));
      state.advance();
    }
    state.deliver({});
  }

 private:
  static TensorView slice(const TensorView& sequence, std::int64_t at) {
    const std::int64_t offset = at * sequence.strides[0] * static_cast<std::int64_t>(byte_size(sequence.dtype));
    return {static_cast<std::byte*>(sequence.data) + offset, sequence.dtype,
            static_cast<std::uint8_t>(sequence.rank - 1), sequence.sizes + 1, sequence.strides + 1};
  }

  StepFunction body_;
  std::vector<std::size_t> init_, sequences_;
  std::int64_t length_;
  bool reverse_;
};

/// What the first operand of a control-flow op leads to.
struct Handle {
  std::int64_t address = 0;  // of this, as the element of the leaf
  std::unique_ptr<ControlStep> step;
  bool has_seed = false;
  std::vector<std::int64_t> offsets;  // of the results in the packed one
};

void free_handle(Storage* s) { delete static_cast<Handle*>(s->owner); }

Tensor make_handle(std::unique_ptr<Handle> handle) {
  Handle* const h = handle.release();
  h->address = reinterpret_cast<std::int64_t>(h);
  Storage* storage = Storage::adopt(&h->address, sizeof h->address, &free_handle, h);
  Node* leaf = make_leaf({DType::i64, {}}, storage, BackendKey::cpu, Node::kTensor);
  if (in_capture_scope()) capture_scope->mark(leaf);
  return Tensor(leaf, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
}

template <BackendKey B> void run_step(const CallArgs& args) {
  const auto& handle = *reinterpret_cast<const Handle*>(read_element<std::int64_t>(args.inputs[0].data, B));
  const double seed = handle.has_seed ? read_element<double>(args.inputs[1].data, B) : 0;
  std::vector<void*> results;
  for (const std::int64_t offset : handle.offsets)
    results.push_back(static_cast<std::byte*>(args.outputs[0].data) + offset);
  handle.step->run(args.inputs.subspan(handle.has_seed ? 2 : 1), results, seed);
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
  copy_view({static_cast<std::byte*>(data) + args.attributes[0], out.dtype, out.rank, sizes.data(), strides.data()},
            out.data, B, args.where);
}

template <BackendKey B> void run_after(const CallArgs& args) {
  copy_view(args.inputs[0], args.outputs[0].data, B, args.where);
}

template <BackendKey B> void register_on() {
  DTypeSet all;
  for (std::size_t t = 0; t < kDTypeCount; ++t) all = all | static_cast<DType>(t);
  for (const Op op : {Op::cond, Op::while_loop, Op::scan})
    add_variant(op, B, {.name = "functions", .dtypes = all, .call = run_step<B>});
  add_variant(Op::unpack, B, {.name = "copy", .dtypes = all, .call = run_unpack<B>});
  add_variant(Op::after, B, {.name = "copy", .dtypes = all, .call = run_after<B>});
}

}  // namespace

std::size_t StepOperands::place(const Tensor& t) {
  const auto same = std::ranges::find_if(tensors_, [&](const Tensor& known) { return known.impl() == t.impl(); });
  if (same != tensors_.end()) return static_cast<std::size_t>(same - tensors_.begin());
  tensors_.push_back(t);
  return tensors_.size() - 1;
}

StepFunction::StepFunction(std::unique_ptr<CapturedFunction> captured, std::span<const Tensor> arguments,
                           StepOperands& operands)
    : function(std::move(captured)) {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    places.push_back(arguments[i].defined() && function->reads(i) ? operands.place(arguments[i]) : kOwn);
  for (const Tensor& t : function->hidden()) places.push_back(operands.place(t));
}

std::vector<TensorView> StepFunction::views(std::span<const TensorView> operands) const {
  std::vector<TensorView> views(places.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] != kOwn) views[i] = operands[places[i]];
  return views;
}

const ControlStep* control_step_of(const Tensor& handle) {
  const Storage* storage = handle.node()->storage.load(std::memory_order_acquire);
  return storage != nullptr && storage->give_back == &free_handle
             ? static_cast<const Handle*>(storage->owner)->step.get()
             : nullptr;
}

std::unique_ptr<ControlStep> make_cond_step(StepFunction when_true, StepFunction when_false, std::size_t predicate) {
  return std::make_unique<CondStep>(std::move(when_true), std::move(when_false), predicate);
}
std::unique_ptr<ControlStep> make_while_step(StepFunction condition, StepFunction body, std::vector<std::size_t> init) {
  return std::make_unique<WhileStep>(std::move(condition), std::move(body), std::move(init));
}
std::unique_ptr<ControlStep> make_scan_step(StepFunction body, std::vector<std::size_t> init,
                                            std::vector<std::size_t> sequences, std::int64_t length, bool reverse) {
  return std::make_unique<ScanStep>(std::move(body), std::move(init), std::move(sequences), length, reverse);
}

std::vector<Tensor> record_step(Op op, std::unique_ptr<ControlStep> step, const StepOperands& operands,
                                const Tensor& seed, std::span<const TensorType> results, Location where) {
  for (const Tensor& t : operands.tensors()) require_control_kernels(t.node()->backend);
  auto handle = std::make_unique<Handle>();
  const TupleLayout layout = tuple_layout(results);
  handle->offsets = layout.offsets;
  handle->has_seed = step->draws();
  handle->step = std::move(step);
  std::vector<Tensor> tensors;
  const bool has_seed = handle->has_seed;
  const bool has_effects = std::ranges::any_of(handle->step->functions(), &CapturedFunction::has_effects);
  tensors.push_back(make_handle(std::move(handle)));
  if (has_seed) tensors.push_back(seed);
  tensors.insert(tensors.end(), operands.tensors().begin(), operands.tensors().end());
  const KeyGuard plain({}, Functionality::autograd);
  if (Node* const before = has_effects ? pending_effect() : nullptr) {  // which comes first
    before->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    tensors.emplace_back(before, DispatchKeySet(before->backend) | Functionality::dense);
  }
  const auto note_effect = [&](const Tensor& call) {
    if (has_effects && call.node()->pending()) set_last_effect(call.node());
  };
  if (results.size() == 1) {
    const Tensor only = general_call(op, tensors, {.wanted = results[0], .integers = {}, .scalars = {}}, where);
    note_effect(only);
    return {only};
  }
  const Tensor all = general_call(op, tensors, {.wanted = layout.type(), .integers = {}, .scalars = {}}, where);
  note_effect(all);
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < results.size(); ++i)
    parts.push_back(general_call(Op::unpack, {&all, 1},
                                 {.wanted = results[i], .integers = {&layout.offsets[i], 1}, .scalars = {}}, where));
  return parts;
}

void register_control_kernels() { register_on<BackendKey::cpu>(); }

void require_control_kernels(BackendKey backend) {
  static std::array<std::once_flag, kBackendCount> done;
  const auto once = [&]<BackendKey B>() {
    if (backend == B) std::call_once(done[static_cast<std::size_t>(B)], [] { register_on<B>(); });
  };
  once.operator()<BackendKey::cuda>();
  once.operator()<BackendKey::private_use1>();
  once.operator()<BackendKey::private_use2>();
  once.operator()<BackendKey::private_use3>();
}

}  // namespace fermata
