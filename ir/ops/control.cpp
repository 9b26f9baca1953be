// See control.h.
#include "ir/ops/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/tuple_layout.h"

namespace fermata::ops {

namespace {

const TensorType kSeed{DType::f64, {}}, kPredicate{DType::boolean, {}};

std::string text(const TensorType& type) { return to_string(type.dtype, type.shape); }

/// A call of functions: whether what they take and give fits the operands and each other.
class FunctionCall {
 public:
  explicit FunctionCall(const InferCall& call) : call_(call) {}

  [[noreturn]] void fail(std::string_view what) const { call_.fail<ValueError>(1766, "ValueError", what); }
  /// The next operand.
  const TensorType& next(std::string_view what) {
    if (next_ == call_.operands.size()) fail(fmt::format("an operand is missing: {}", what));
    return call_.operands[next_++];
  }
  void take(const TensorType& wanted, std::string_view what) {
    const TensorType& given = next(what);
    if (given != wanted) fail(fmt::format("{} is {}, not {}", what, text(given), text(wanted)));
  }
  void take_all(std::span<const TensorType> wanted) {
    for (const TensorType& type : wanted) take(type, "an operand of a function");
  }
  /// All operands have been taken, but for one that is waited for.
  void finish() const {
    if (call_.operands.size() - next_ > 1) fail("more operands than its functions take");
  }
  void require_same(std::span<const TensorType> a, std::span<const TensorType> b, std::string_view what) const {
    if (!std::ranges::equal(a, b)) fail(what);
  }
  TensorType result(std::span<const TensorType> results) const {
    if (results.empty()) fail("its functions have no results");
    for (const TensorType& type : results) static_cast<void>(call_.result(type.dtype, type.shape));
    const TensorType packed = packed_type(results);
    return call_.result(packed.dtype, packed.shape);
  }

 private:
  const InferCall& call_;
  std::size_t next_ = 0;
};

}  // namespace

TensorType Cond::infer(const InferCall& call) const {
  FunctionCall functions(call);
  const Subgraph &yes = *when_true.value, &no = *when_false.value;
  functions.take(kPredicate, "the predicate");
  if (seeded.value) functions.take(kSeed, "the seed");
  functions.require_same(yes.arguments(), no.arguments(), "its functions take different operands");
  functions.require_same(yes.results(), no.results(), "its functions give different results");
  functions.take_all(yes.arguments());
  functions.finish();
  return functions.result(yes.results());
}

TensorType WhileLoop::infer(const InferCall& call) const {
  FunctionCall functions(call);
  const std::span<const TensorType> arguments = body.value->arguments(), state = body.value->results();
  if (seeded.value) functions.take(kSeed, "the seed");
  functions.require_same(condition.value->arguments(), arguments, "its functions take different operands");
  functions.require_same(condition.value->results(), {&kPredicate, 1}, "the condition gives no single truth value");
  if (state.size() > arguments.size() || !std::ranges::equal(state, arguments.first(state.size())))
    functions.fail("the body does not give what it takes");
  functions.take_all(arguments);
  functions.finish();
  return functions.result(state);
}

std::vector<TensorType> ScanLoop::stacked(std::span<const TensorType> results) const {
  std::vector<TensorType> all(results.begin(), results.end());
  for (std::size_t i = static_cast<std::size_t>(carries.value); i < all.size(); ++i) {
    Shape shape{length.value};
    for (const std::int64_t size : all[i].shape) shape.push_back(size);
    all[i].shape = shape;
  }
  return all;
}

TensorType ScanLoop::infer(const InferCall& call) const {
  FunctionCall functions(call);
  const std::span<const TensorType> arguments = body.value->arguments(), results = body.value->results();
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  if (length.value < 0) functions.fail("the length is negative");
  if (carries.value < 0 || count(carries.value) > std::min(arguments.size(), results.size()))
    functions.fail("carries more than the body takes and gives");
  if (sequences.value < 0 || count(sequences.value) > arguments.size() - count(carries.value))
    functions.fail("more sequences than the body takes");
  const auto carried = arguments.first(count(carries.value));
  functions.require_same(carried, results.first(carried.size()), "the body does not give what it carries");
  if (seeded.value) functions.take(kSeed, "the seed");
  functions.take_all(carried);
  const auto over = arguments.subspan(carried.size(), count(sequences.value));
  const auto has_room = [](const TensorType& t) { return t.shape.rank() < kMaxRank; };
  if (!std::ranges::all_of(over, has_room) || !std::ranges::all_of(results.subspan(carried.size()), has_room))
    functions.fail(fmt::format("more than {} axes", kMaxRank));
  for (const TensorType& slice : over) {
    Shape shape{length.value};
    for (const std::int64_t size : slice.shape) shape.push_back(size);
    functions.take({slice.dtype, shape}, "a sequence");
  }
  functions.take_all(arguments.subspan(carried.size() + over.size()));
  functions.finish();
  return functions.result(stacked(results));
}

std::vector<TensorType> function_arguments(Op op, std::span<const std::int64_t> attributes,
                                           std::span<const TensorType> operands) {
  const OpArguments from{attributes, {}, {}, {}, nullptr};
  if (op == Op::cond) operands = operands.subspan(1 + decode<Cond>(from).seeded.value);
  if (op == Op::while_loop) operands = operands.subspan(decode<WhileLoop>(from).seeded.value);
  std::size_t first = operands.size(), last = first;  // of the sequences
  if (op == Op::scan) {
    const auto scan = decode<ScanLoop>(from);
    operands = operands.subspan(scan.seeded.value);
    first = std::min(static_cast<std::size_t>(scan.carries.value), operands.size());
    last = std::min(first + static_cast<std::size_t>(scan.sequences.value), operands.size());
  }
  std::vector<TensorType> arguments(operands.begin(), operands.end());
  for (std::size_t i = first; i < last; ++i) {
    const Shape& whole = operands[i].shape;
    arguments[i].shape = {};
    for (unsigned axis = 1; axis < whole.rank(); ++axis) arguments[i].shape.push_back(whole[axis]);
  }
  return arguments;
}

std::vector<TensorType> separate_results(Op op, std::span<const std::int64_t> attributes,
                                         std::span<const TensorType> results) {
  if (op == Op::scan) return decode<ScanLoop>({attributes, {}, {}, {}, nullptr}).stacked(results);
  return {results.begin(), results.end()};
}

TensorType Unpack::infer(const InferCall& call) const {
  const TensorType& bytes = call.operand(0);
  if (bytes.dtype != DType::u8 || bytes.shape.rank() != 1)
    call.fail<DTypeError>(1101, "DTypeError", "takes a vector of bytes (u8)");
  const std::int64_t count = check_shape(name(call.op), call.wanted.shape, call.wanted.dtype, call.where);
  const std::int64_t from = offset.value, size = count * static_cast<std::int64_t>(byte_size(call.wanted.dtype));
  if (from < 0 || from > bytes.shape[0] || size > bytes.shape[0] - from)
    call.fail<ShapeError>(1006, "ShapeError", fmt::format("{} bytes from {} leave the operand", size, from));
  return {call.wanted.dtype, call.wanted.shape};
}

Example<Unpack> Unpack::example() {
  static constexpr std::int64_t kSizes[] = {3};
  return {{{DType::u8, Shape{64}}}, {.offset = {8}, .shape = {kSizes}, .dtype = {DType::i32}}};
}

}  // namespace fermata::ops
