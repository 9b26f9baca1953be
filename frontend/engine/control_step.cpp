// See control_step.h.
#include "frontend/engine/control_step.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "dispatch/backend.h"
#include "dispatch/kernel_table.h"
#include "dispatch/operator.h"
#include "frontend/engine/function_recording.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/ops/control.h"
#include "ir/tuple_layout.h"
#include "runtime/backend_memory.h"
#include "runtime/call_attributes.h"
#include "runtime/cancellation.h"
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

TensorView slice(const TensorView& sequence, std::int64_t at) {
  const std::int64_t offset = at * sequence.strides[0] * static_cast<std::int64_t>(byte_size(sequence.dtype));
  return {static_cast<std::byte*>(sequence.data) + offset, sequence.dtype, static_cast<std::uint8_t>(sequence.rank - 1),
          sequence.sizes + 1, sequence.strides + 1};
}

/// The buffers of results, which lie in that of the node.
std::vector<void*> buffers_of(const TensorView& packed, std::span<const TensorType> results) {
  std::vector<void*> buffers;
  for (const std::int64_t offset : tuple_layout(results).offsets)
    buffers.push_back(static_cast<std::byte*>(packed.data) + offset);
  return buffers;
}

/// The operands of a call, taken one after the other.
template <BackendKey B> class OperandReader {
 public:
  explicit OperandReader(const CallArgs& args) : rest_(args.inputs) {}
  std::span<const TensorView> next(std::size_t count) {
    const auto found = rest_.first(count);
    rest_ = rest_.subspan(count);
    return found;
  }
  double seed(bool is_given) { return is_given ? read_element<double>(next(1)[0].data, B) : 0; }

 private:
  std::span<const TensorView> rest_;
};

template <BackendKey B> void run_cond(const CallArgs& args) {
  const auto op = attributes_of<ops::Cond>(args);
  OperandReader<B> operands(args);
  const bool taken = read_element<bool>(operands.next(1)[0].data, B);
  const double seed = operands.seed(op.seeded.value);
  const CapturedFunction& branch = captured(taken ? *op.when_true.value : *op.when_false.value);
  branch.run(operands.next(branch.arguments().size()), buffers_of(args.outputs[0], branch.results()),
             stream_key(seed, 0));
}

template <BackendKey B> void run_while(const CallArgs& args) {
  const auto op = attributes_of<ops::WhileLoop>(args);
  const CapturedFunction &condition = captured(*op.condition.value), &body = captured(*op.body.value);
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
    if (!read_element<bool>(holds->data, B)) break;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = state.next(i);
    body.run(views, next, stream_key(seed, run + 1));
    state.advance();
  }
  state.deliver(args.where);
}

template <BackendKey B> void run_scan(const CallArgs& args) {
  const auto op = attributes_of<ops::ScanLoop>(args);
  const CapturedFunction& body = captured(*op.body.value);
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

template <BackendKey B> void register_on() {
  DTypeSet all;
  for (std::size_t t = 0; t < kDTypeCount; ++t) all = all | static_cast<DType>(t);
  add_variant(Op::cond, B, {.name = "functions", .dtypes = all, .call = run_cond<B>});
  add_variant(Op::while_loop, B, {.name = "functions", .dtypes = all, .call = run_while<B>});
  add_variant(Op::scan, B, {.name = "functions", .dtypes = all, .call = run_scan<B>});
  add_variant(Op::unpack, B, {.name = "copy", .dtypes = all, .call = run_unpack<B>});
  add_variant(Op::after, B, {.name = "copy", .dtypes = all, .call = run_after<B>});
}

}  // namespace

const CapturedFunction& captured(const Subgraph& subgraph) {
  const auto* const function = dynamic_cast<const CapturedFunction*>(&subgraph);
  if (function == nullptr) throw_internal("a node is run with a function that was not captured");
  return *function;
}

namespace {

/// All that comes before a call is recorded: the transforms of control flow have had their turn, and a boxed kernel
/// would lose the functions.
constexpr DispatchKeySet kAllKeys(~std::uint64_t{0}), kWrapperKeys =
                                                          kAllKeys - kAllKeys.below(Functionality::ad_inplace_or_view);

/// Tensors that functions read beside what a node gives them, each once.
class SharedOperands {
 public:
  std::size_t place(const Tensor& t) {
    const auto same = std::ranges::find_if(tensors_, [&](const Tensor& known) { return known.impl() == t.impl(); });
    if (same == tensors_.end()) return tensors_.push_back(t), tensors_.size() - 1;
    return static_cast<std::size_t>(same - tensors_.begin());
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

/// Where the arguments of a function are among those of the node: first its own, then `rest` and its captures where
/// those are placed, from `first` on.
std::vector<std::size_t> places_of(const CapturedFunction& f, std::vector<std::size_t> own, std::size_t first,
                                   std::span<const Tensor> rest, SharedOperands& shared) {
  for (const Tensor& t : rest)
    own.push_back(f.reads(own.size()) ? first + shared.place(t) : CapturedFunction::kNoPlace);
  for (const Tensor& t : f.captures()) own.push_back(first + shared.place(t));
  return own;
}

std::vector<std::size_t> first_numbers(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

void add_types(std::vector<TensorType>& types, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors) types.push_back(type_of(t));
}

}  // namespace

ControlCall ControlCall::cond(const Tensor& predicate, Function when_true, Function when_false,
                              std::span<const Tensor> operands, const Tensor& seed) {
  ControlCall call(Op::cond);
  const bool draws = seed.defined() && (when_true->draws() || when_false->draws());
  const auto results = when_true->results();
  call.results_.assign(results.begin(), results.end());
  call.attributes_ = encode_list(ops::Cond{{draws}, {}, {}});
  SharedOperands shared;
  const auto of_true = places_of(*when_true, {}, 0, operands, shared),
             of_false = places_of(*when_false, {}, 0, operands, shared);
  std::vector<TensorType> arguments;
  add_types(arguments, shared.tensors());
  when_true->arrange(of_true, arguments), when_false->arrange(of_false, arguments);
  call.add({&predicate, 1});
  if (draws) call.add({&seed, 1});
  call.add(shared.tensors());
  call.own(std::move(when_true), std::move(when_false));
  return call;
}

ControlCall ControlCall::while_loop(Function condition, Function body, std::span<const Tensor> init,
                                    std::span<const Tensor> rest, const Tensor& seed) {
  ControlCall call(Op::while_loop);
  const bool draws = seed.defined() && (condition->draws() || body->draws());
  add_types(call.results_, init);
  call.attributes_ = encode_list(ops::WhileLoop{{draws}, {}, {}});
  SharedOperands shared;
  const std::size_t count = init.size();
  const auto of_condition = places_of(*condition, first_numbers(count), count, rest, shared),
             of_body = places_of(*body, first_numbers(count), count, rest, shared);
  std::vector<TensorType> arguments = call.results_;
  add_types(arguments, shared.tensors());
  condition->arrange(of_condition, arguments), body->arrange(of_body, arguments);
  if (draws) call.add({&seed, 1});
  call.add(init), call.add(shared.tensors());
  call.own(std::move(condition), std::move(body));
  return call;
}

ControlCall ControlCall::scan(Function body, std::span<const Tensor> init, std::span<const Tensor> sequences,
                              std::span<const Tensor> rest, std::int64_t length, bool reverse, const Tensor& seed) {
  ControlCall call(Op::scan);
  // Sequences that the function does not read are no operands: what would compute them is not needed.
  std::vector<Tensor> over;
  std::vector<TensorType> arguments(body->arguments().begin(), body->arguments().begin() + std::ssize(init));
  std::vector<std::size_t> own = first_numbers(init.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const bool is_read = body->reads(init.size() + i);
    own.push_back(is_read ? init.size() + over.size() : CapturedFunction::kNoPlace);
    if (is_read) arguments.push_back(body->arguments()[init.size() + i]), over.push_back(sequences[i]);
  }
  const ops::ScanLoop op{
      {seed.defined() && body->draws()}, {std::ssize(init)}, {std::ssize(over)}, {length}, {reverse}, {}};
  call.attributes_ = encode_list(op), call.results_ = op.stacked(body->results());
  SharedOperands shared;
  const auto places = places_of(*body, std::move(own), init.size() + over.size(), rest, shared);
  add_types(arguments, shared.tensors());
  body->arrange(places, arguments);
  if (op.seeded.value) call.add({&seed, 1});
  call.add(init), call.add(over), call.add(shared.tensors());
  call.own(std::move(body));
  return call;
}

void ControlCall::own(Function first, Function second) {
  has_effects_ = first->has_effects() || (second != nullptr && second->has_effects());
  std::vector<std::unique_ptr<const Subgraph>> functions;
  functions.reserve(2);
  functions.push_back(std::move(first));
  if (second != nullptr) functions.push_back(std::move(second));
  subgraphs_ = std::make_shared<const Subgraphs>(std::move(functions));
}

Tensor ControlCall::run(Location where) {
  if (Node* const before = has_effects_ ? pending_effect() : nullptr) operands_.push_back(tensor_of(before));
  for (const Tensor& t : operands_) require_control_kernels(t.node()->backend);
  const Tensor result = general_call(op_, operands_,
                                     {.wanted = {},
                                      .integers = attributes_,
                                      .scalars = {},
                                      .backend = captured((*subgraphs_)[0]).backend(),
                                      .subgraphs = subgraphs_.get()},
                                     where);
  if (has_effects_ && result.node()->pending()) set_last_effect(result.node());
  return result;
}

std::vector<Tensor> ControlCall::record(Location where) {
  const KeyGuard plain({}, kWrapperKeys);
  const Tensor all = run(where);
  if (results_.size() == 1) return {all};
  const TupleLayout layout = tuple_layout(results_);
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < results_.size(); ++i)
    parts.push_back(general_call(Op::unpack, {&all, 1},
                                 {.wanted = results_[i], .integers = {&layout.offsets[i], 1}, .scalars = {}}, where));
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
