// Evaluation of control flow, by evaluating the functions that its nodes own, and of unpack.
#include <algorithm>
#include <bit>

#include "ir/ops/control.h"
#include "ir/random_stream.h"
#include "ir/reference_element.h"
#include "ir/tuple_layout.h"

namespace fermata::ops {
namespace {

using Tensors = std::vector<ReferenceTensor>;

/// A function in one run, which draws from a stream of its own.
Tensors call(const Subgraph& function, const Tensors& arguments, std::uint64_t key) {
  Graph graph = function.graph();
  for (GraphNode& n : graph.nodes)
    if (family(n.op) == Family::random && n.scalars[0] == kStreamKey) n.scalars[0] = key;
  return evaluate_reference(graph, arguments);
}

void append_bytes(std::vector<std::int64_t>& bytes, std::uint64_t bits, std::size_t width) {
  for (std::size_t k = 0; k < width; ++k) bytes.push_back(static_cast<std::int64_t>(bits >> (8 * k) & 0xff));
}
/// Half of a complex number.
std::uint64_t bits_of(double value, std::size_t width) {
  return width == 8 ? std::bit_cast<std::uint64_t>(value) : std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

ReferenceTensor packed(Tensors results, const GraphNode& node) {
  if (results.size() == 1) return std::move(results[0]);
  std::vector<TensorType> types;
  for (const ReferenceTensor& t : results) types.push_back({t.dtype, t.shape});
  const TupleLayout layout = tuple_layout(types);
  ReferenceTensor all{node.dtype, node.shape, {}, {}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ReferenceTensor& t = results[i];
    const std::size_t width = byte_size(t.dtype);
    all.integers.resize(static_cast<std::size_t>(layout.offsets[i]));
    for (const std::complex<double> z : t.complexes)
      for (const double half : {z.real(), z.imag()}) append_bytes(all.integers, bits_of(half, width / 2), width / 2);
    if (is_complex(t.dtype)) continue;
    const ElementReader element(t, t.dtype);
    for (std::int64_t e = 0; e < element_count(t.shape); ++e) append_bytes(all.integers, element[e], width);
  }
  all.integers.resize(static_cast<std::size_t>(layout.bytes));
  return all;
}

/// The operands of a node, taken one after the other.
class OperandReader {
 public:
  explicit OperandReader(const ReferenceOperands& operands) : operands_(operands) {}
  const ReferenceTensor& next() { return *operands_[next_++]; }
  double seed(bool is_given) { return is_given ? next().floats[0] : 0; }
  Tensors next(std::size_t count) {
    Tensors found;
    for (std::size_t i = 0; i < count; ++i) found.push_back(next());
    return found;
  }

 private:
  const ReferenceOperands& operands_;
  std::size_t next_ = 0;
};

/// Calls f with the lists that two tensors of one dtype keep their elements in.
template <class A, class B, class F> void with_elements(A& a, B& b, F&& f) {
  if (is_complex(a.dtype))
    f(a.complexes, b.complexes);
  else if (keeps_floats(a.dtype))
    f(a.floats, b.floats);
  else
    f(a.integers, b.integers);
}

ReferenceTensor empty(const TensorType& type) {
  ReferenceTensor t{type.dtype, type.shape, {}, {}};
  with_elements(t, t, [&](auto& list, auto&) { list.resize(static_cast<std::size_t>(element_count(type.shape))); });
  return t;
}

ReferenceTensor slice(const ReferenceTensor& sequence, const TensorType& type, std::int64_t at) {
  ReferenceTensor one = empty(type);
  with_elements(sequence, one, [&](const auto& from, auto& to) {
    std::copy_n(from.begin() + at * std::ssize(to), to.size(), to.begin());
  });
  return one;
}
void put_slice(ReferenceTensor& all, const ReferenceTensor& one, std::int64_t at) {
  with_elements(one, all,
                [&](const auto& from, auto& to) { std::ranges::copy(from, to.begin() + at * std::ssize(from)); });
}

}  // namespace

ReferenceTensor Cond::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Cond>(node);
  OperandReader given(operands);
  const bool taken = given.next().integers[0] != 0;
  const double seed = given.seed(op.seeded.value);
  const Subgraph& branch = taken ? *op.when_true.value : *op.when_false.value;
  return packed(call(branch, given.next(branch.arguments().size()), stream_key(seed, 0)), node);
}

ReferenceTensor WhileLoop::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<WhileLoop>(node);
  OperandReader given(operands);
  const double seed = given.seed(op.seeded.value);
  Tensors arguments = given.next(op.body.value->arguments().size());
  for (std::uint64_t run = 0;; run += 2) {
    if (call(*op.condition.value, arguments, stream_key(seed, run))[0].integers[0] == 0) break;
    Tensors next = call(*op.body.value, arguments, stream_key(seed, run + 1));
    std::ranges::move(next, arguments.begin());
  }
  arguments.resize(op.body.value->results().size());
  return packed(std::move(arguments), node);
}

ReferenceTensor ScanLoop::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<ScanLoop>(node);
  const auto carries = static_cast<std::size_t>(op.carries.value), over = static_cast<std::size_t>(op.sequences.value);
  const Subgraph& body = *op.body.value;
  OperandReader given(operands);
  const double seed = given.seed(op.seeded.value);
  Tensors arguments = given.next(carries);
  const Tensors sequences = given.next(over);
  arguments.insert(arguments.end(), sequences.begin(), sequences.end());
  for (const ReferenceTensor& t : given.next(body.arguments().size() - arguments.size())) arguments.push_back(t);
  Tensors results;
  for (const TensorType& type : op.stacked(body.results())) results.push_back(empty(type));
  for (std::int64_t step = 0; step < op.length.value; ++step) {
    const std::int64_t at = op.reverse.value ? op.length.value - 1 - step : step;
    for (std::size_t k = carries; k < carries + over; ++k)
      arguments[k] = slice(sequences[k - carries], body.arguments()[k], at);
    Tensors found = call(body, arguments, stream_key(seed, static_cast<std::uint64_t>(at)));
    for (std::size_t k = carries; k < found.size(); ++k) put_slice(results[k], found[k], at);
    for (std::size_t k = 0; k < carries; ++k) arguments[k] = std::move(found[k]);
  }
  for (std::size_t k = 0; k < carries; ++k) results[k] = std::move(arguments[k]);
  return packed(std::move(results), node);
}

ReferenceTensor Unpack::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor& bytes = *operands[0];
  const std::int64_t offset = attributes_of<Unpack>(node).offset.value;
  ElementWriter result(node.dtype, node.shape, node.dtype);
  const auto width = static_cast<std::int64_t>(byte_size(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const auto at = static_cast<std::size_t>(offset + i * width + k);
      bits |= static_cast<std::uint64_t>(bytes.integers[at] & 0xff) << (8 * k);
    }
    result.set(i, bits);
  }
  return result.take();
}

}  // namespace fermata::ops
