// Every op of the table by vmap against a loop, with the batch at every place. The list of ops is the table itself: a
// new row of a family is tested without a change here, a new irregular op has to be given arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "dispatch/operator.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/vmap/batched_rules.h"
#include "ir/op_traits.h"
#include "tests/frontend/op_calls.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class VmapOps : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, VmapOps, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

const std::source_location kHere = std::source_location::current();
constexpr std::int64_t kBatch = 3;

Tensor call(Op op, const Inputs& in) {
  const OperatorEntry& entry = operator_entry(op);
  switch (in.size()) {
    case 1: return Dispatcher<UnaryCall>::call(entry, kHere, in[0]);
    case 2: return Dispatcher<BinaryCall>::call(entry, kHere, in[0], in[1]);
    default: return Dispatcher<TernaryCall>::call(entry, kHere, in[0], in[1], in[2]);
  }
}
Tensor call(Op op, const Inputs& in, const std::vector<std::int64_t>& integers, const TensorType& wanted = {}) {
  return Dispatcher<GeneralCall>::call(operator_entry(op), kHere, in,
                                       {.wanted = wanted, .integers = integers, .scalars = {}});
}

/// The dtypes that an op is tested in: one of each kind that it takes.
std::vector<DType> dtypes_of(Op op) {
  std::vector<DType> taken;
  for (const DType t : {DType::f32, DType::f64, DType::i32, DType::u8, DType::boolean, DType::f16})
    if (apply_rule(info(op).rule, t)) taken.push_back(t);
  if (taken.empty()) taken.push_back(DType::u64);
  return taken;
}

Tensor element(const Shape& shape, DType dtype, std::uint64_t seed) {
  return random_f64(shape, 0.2, 5, is_signed(dtype), seed).astype(dtype);
}
BatchOperand operand(const Shape& shape, DType dtype, int axis, std::uint64_t seed) {
  BatchOperand o{{}, axis};
  for (std::int64_t i = 0; i < (axis == kShared ? 1 : kBatch); ++i)
    o.elements.push_back(element(shape, dtype, seed * 16 + static_cast<std::uint64_t>(i)));
  return o;
}
/// In front, at the back, and nowhere; a 0-d element has only one place for it.
std::vector<int> places(const Shape& shape) {
  return shape.empty() ? std::vector{0, kShared} : std::vector{0, 1, -1, kShared};
}

TEST_P(VmapOps, EveryUnaryOp) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) != Family::unary) continue;
    ASSERT_FALSE(dtypes_of(op).empty());
    for (const DType t : dtypes_of(op))
      for (const Shape& shape : {Shape{}, Shape{4}, Shape{2, 5}})
        for (const int axis : places(shape))
          if (axis != kShared)
            check_vmap(
                std::string(name(op)) + " " + to_string(t, shape), [&](const Inputs& in) { return call(op, in); },
                {operand(shape, t, axis, 1)}, kBatch, axis);
  }
}

TEST_P(VmapOps, EveryBinaryOp) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{2, 4}, {2, 4}}, {{2, 4}, {4}},   {{4}, {2, 4}},
                                                       {{}, {3}},        {{3}, {}},       {{}, {}},
                                                       {{2, 1}, {1, 3}}, {{3}, {2, 1, 3}}};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) != Family::binary) continue;
    for (const auto& [a, b] : shapes)
      for (const int left : places(a))
        for (const int right : places(b)) {
          if (left == kShared && right == kShared) continue;
          const DType t = dtypes_of(op)[static_cast<std::size_t>(left + right + 300) % dtypes_of(op).size()];
          check_vmap(
              std::string(name(op)) + " " + to_string(t, a) + " " + to_string(b) + " at " + std::to_string(left) +
                  ", " + std::to_string(right),
              [&](const Inputs& in) { return call(op, in); }, {operand(a, t, left, 2), operand(b, t, right, 3)}, kBatch,
              left == 1 || right == 1 ? -1 : 0);
        }
    for (const DType t : dtypes_of(op)) {  // every dtype once, and numbers on either side
      check_vmap(
          std::string(name(op)) + " in " + std::string(name(t)), [&](const Inputs& in) { return call(op, in); },
          {operand({4}, t, 0, 2), operand({2, 4}, t, 1, 3)}, kBatch);
      check_vmap(
          std::string(name(op)) + " with a number",
          [&](const Inputs& in) { return Dispatcher<BinaryCall>::call(operator_entry(op), kHere, in[0], 2); },
          {operand({4}, t, 1, 2)}, kBatch);
    }
  }
}

TEST_P(VmapOps, DTypesAreSettledByWhatTheFunctionSees) {
  // A 0-d tensor does not widen within a kind, although below the wrapper it is a vector.
  const Function f = [](const Inputs& in) { return in[0] + in[1]; };
  for (const auto& [a, b] : {std::pair{0, 0}, {0, kShared}, {kShared, 0}}) {
    check_vmap("f32 vector and f64 number", f, {operand({3}, DType::f32, a, 1), operand({}, DType::f64, b, 2)}, kBatch);
    check_vmap("i32 vector and f64 number", f, {operand({3}, DType::i32, a, 1), operand({}, DType::f64, b, 2)}, kBatch);
    check_vmap("both 0-d", f, {operand({}, DType::f32, a, 1), operand({}, DType::f64, b, 2)}, kBatch);
    check_vmap("both vectors", f, {operand({3}, DType::f32, a, 1), operand({3}, DType::f64, b, 2)}, kBatch);
  }
}

TEST_P(VmapOps, EveryTernaryOp) {
  const std::vector<std::array<Shape, 3>> shapes = {
      {Shape{4}, Shape{4}, Shape{4}}, {Shape{}, Shape{3}, Shape{2, 1}}, {Shape{2, 3}, Shape{}, Shape{3}}};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) != Family::ternary) continue;
    for (const auto& s : shapes)
      for (const int a : places(s[0]))
        for (const int b : places(s[1]))
          for (const int c : places(s[2])) {
            if (a == kShared && b == kShared && c == kShared) continue;
            check_vmap(
                std::string(name(op)),
                [&](const Inputs& in) {
                  return call(op, {in[0] > 0, in[1], in[2]});
                },
                {operand(s[0], DType::f32, a, 4), operand(s[1], DType::f32, b, 5), operand(s[2], DType::f32, c, 6)},
                kBatch);
          }
    check_vmap(
        "with two numbers",
        [&](const Inputs& in) { return Dispatcher<TernaryCall>::call(operator_entry(op), kHere, in[0] > 0, 1.5, -2); },
        {operand({4}, DType::f32, 1, 4)}, kBatch);
  }
}

TEST_P(VmapOps, EveryReduction) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) != Family::reduce) continue;
    const bool one_or_all = info(op).rule == DTypeRule::index;
    for (const DType t : dtypes_of(op))
      for (const int axis : {0, 1, -1})
        for (std::int64_t mask = 0; mask < 8; ++mask)
          for (const std::int64_t keepdims : {0, 1}) {
            if (one_or_all && std::set<std::int64_t>{0, 3, 5, 6}.contains(mask)) continue;
            // Another layout may be another order of adding up.
            check_vmap(
                std::string(name(op)) + " " + std::string(name(t)) + " over " + std::to_string(mask),
                [&](const Inputs& in) {
                  return call(op, in, {mask, keepdims});
                },
                {operand({2, 3, 4}, t, axis, 7)}, kBatch, 0, t == DType::f16 ? 2e-3 : 1e-5);
          }
    check_vmap(
        std::string(name(op)) + " of 0-d",
        [&](const Inputs& in) {
          return call(op, in, {0, 0});
        },
        {operand({}, DType::f32, 0, 7)}, kBatch);
  }
}

/// Calls of one irregular op: a case for each way to use it.
struct Case {
  std::vector<std::pair<Shape, DType>> operands;
  Function f;
  bool is_natural = false;  // no integer is negative
};

BatchOperand positions(const Shape& shape, DType dtype, int axis, std::int64_t size, bool is_natural = false) {
  BatchOperand o{{}, axis};
  for (std::int64_t i = 0; i < (axis == kShared ? 1 : kBatch); ++i) {
    std::vector<std::int64_t> values;
    for (std::int64_t j = 0; j < element_count(shape); ++j)
      values.push_back((5 * i + 7 * j) % size - (is_signed(dtype) && j % 2 == 1 && !is_natural ? size : 0));
    o.elements.push_back(tensor(values, shape).astype(dtype));
  }
  return o;
}

const std::map<Op, std::vector<Case>>& cases() {
  const auto x = [](const Shape& s) { return std::pair(s, DType::f32); };
  const auto p = [](const Shape& s, DType t = DType::i64) { return std::pair(s, t); };
  const auto bytes = [](const Shape& s) { return std::pair(s, DType::i8); };
  const Function product = [](const Inputs& in) { return call(Op::matmul_i32, in, {}); };
  const auto scatter_case = [&](ScatterReduction reduction) {
    return Case{{x({3, 5}), p({2, 4}), x({2, 4})},
                [reduction](const Inputs& in) { return scatter_reduce(in[0], in[1], in[2], 1, reduction); }};
  };
  static const std::map<Op, std::vector<Case>> kCases = {
      {Op::matmul_i32,
       {{{bytes({2, 3}), bytes({3, 4})}, product},
        {{bytes({2, 3}), bytes({5, 3, 1})}, product},
        {{bytes({4, 2, 3}), bytes({3, 2})}, product}}},
      {Op::cast, {{{x({2, 3})}, [](const Inputs& in) { return in[0].astype(DType::i32); }}}},
      {Op::copy, {{{x({2, 3})}, [](const Inputs& in) { return copy(in[0]); }}}},
      {Op::reshape,
       {{{x({2, 6})},
         [](const Inputs& in) {
           return reshape(in[0], {3, -1});
         }},
        {{x({1})}, [](const Inputs& in) { return reshape(in[0], Shape{}); }}}},
      {Op::expand_dims,
       {{{x({2, 3})},
         [](const Inputs& in) {
           return expand_dims(in[0], {0, 2, -1});
         }}}},
      {Op::squeeze,
       {{{x({1, 3, 1})}, [](const Inputs& in) { return squeeze(in[0]); }},
        {{x({1, 3, 1})}, [](const Inputs& in) { return squeeze(in[0], 2); }}}},
      {Op::permute,
       {{{x({2, 3, 4})},
         [](const Inputs& in) {
           return permute(in[0], {2, 0, 1});
         }}}},
      {Op::slice,
       {{{x({4, 5})}, [](const Inputs& in) { return slice(slice(in[0], 1, 4, 0, -2), 0, 1, 3); }},
        {{x({4, 5})}, [](const Inputs& in) { return in[0][-1]; }}}},
      {Op::broadcast_to,
       {{{x({3, 1})},
         [](const Inputs& in) {
           return broadcast_to(in[0], {2, 3, 4});
         }},
        {{x({})},
         [](const Inputs& in) {
           return broadcast_to(in[0], {2, 2});
         }}}},
      {Op::concat,
       {{{x({2, 3}), x({2, 1}), x({2, 2})},
         [](const Inputs& in) {
           return concat({in[0], in[1], in[2]}, 1);
         }}}},
      {Op::take,
       {{{x({5}), p({})}, [](const Inputs& in) { return take(in[0], in[1]); }},
        {{x({2, 5, 3}), p({4, 2}, DType::i32)}, [](const Inputs& in) { return take(in[0], in[1], 1); }},
        {{x({2, 5}), p({3}, DType::u8)}, [](const Inputs& in) { return take(in[0], in[1], -1); }}}},
      {Op::index_add,
       {{{x({5}), p({2}), x({2})}, [](const Inputs& in) { return index_add(in[0], in[1], in[2]); }},
        {{x({2, 5, 3}), p({2, 2}), x({2, 2, 2, 3})},
         [](const Inputs& in) { return index_add(in[0], in[1], in[2], 1); }}}},
      {Op::cumulative_sum, {{{x({2, 4})}, [](const Inputs& in) { return cumulative_sum(in[0], 1); }}}},
      {Op::cumulative_prod, {{{x({2, 4})}, [](const Inputs& in) { return cumulative_prod(in[0], 0); }}}},
      {Op::cumulative_max, {{{x({4})}, [](const Inputs& in) { return cumulative_max(in[0]); }}}},
      {Op::cumulative_min, {{{x({2, 4})}, [](const Inputs& in) { return cumulative_min(in[0], -1); }}}},
      {Op::sort, {{{x({3, 5})}, [](const Inputs& in) { return sort(in[0], 0, true); }}}},
      {Op::argsort, {{{x({3, 5})}, [](const Inputs& in) { return argsort(in[0]); }}}},
      {Op::top_k_indices, {{{x({3, 5})}, [](const Inputs& in) { return topk(in[0], 2).indices; }}}},
      {Op::searchsorted, {{{x({5}), x({2, 3})}, [](const Inputs& in) { return searchsorted(sort(in[0]), in[1]); }}}},
      {Op::all_reduce, {{{x({2, 3})}, [](const Inputs& in) { return distributed::all_reduce(in[0]); }}}},
      {Op::reduce_to, {{{x({2, 3})}, [](const Inputs& in) { return distributed::reduce(in[0]); }}}},
      {Op::all_gather, {{{x({2, 3})}, [](const Inputs& in) { return distributed::all_gather(in[0], 1); }}}},
      {Op::reduce_scatter, {{{x({2, 3})}, [](const Inputs& in) { return distributed::reduce_scatter(in[0], 1); }}}},
      {Op::all_to_all, {{{x({2, 3})}, [](const Inputs& in) { return distributed::all_to_all(in[0], 1, 0); }}}},
      {Op::broadcast_from, {{{x({2, 3})}, [](const Inputs& in) { return distributed::broadcast(in[0]); }}}},
      {Op::scatter_from, {{{x({2, 3})}, [](const Inputs& in) { return distributed::scatter(in[0], 0, 1); }}}},
      {Op::gather_to, {{{x({2, 3})}, [](const Inputs& in) { return distributed::gather(in[0], 0, 1); }}}},
      {Op::permute_ranks, {{{x({2, 3})}, [](const Inputs& in) { return distributed::shift(in[0]); }}}},
      {Op::after, {{{x({2, 3}), x({4})}, [](const Inputs& in) { return call(Op::after, in, {}); }}}},
      {Op::update,
       {{{x({4, 3}), x({2, 3})},
         [](const Inputs& in) {
           return call(Op::update, in, {3, 6, 1});
         }},
        {{x({4}), x({})}, [](const Inputs& in) { return call(Op::update, in, {2}); }}}},
      {Op::complex, {{{x({2, 3}), x({2, 3})}, [](const Inputs& in) { return abs(call(Op::complex, in, {})); }}}},
      {Op::cholesky,
       {{{x({3, 3})}, [](const Inputs& in) { return linalg::cholesky(matmul(in[0], in[0].mT()) + eye(3)); }}}},
      {Op::solve,
       {{{x({3, 3}), x({3, 2})}, [](const Inputs& in) { return linalg::solve(in[0], in[1]); }},
        {{x({3, 3}), x({2, 3, 1})}, [](const Inputs& in) { return linalg::solve(in[0], in[1]); }},
        {{x({2, 3, 3}), x({3, 2})}, [](const Inputs& in) { return linalg::solve(in[0], in[1]); }}}},
      {Op::solve_triangular,
       {{{x({3, 3}), x({2, 3, 2})}, [](const Inputs& in) { return linalg::solve_triangular(in[0], in[1], true); }}}},
      {Op::inv, {{{x({2, 3, 3})}, [](const Inputs& in) { return linalg::inv(in[0]); }}}},
      {Op::det, {{{x({3, 3})}, [](const Inputs& in) { return linalg::det(in[0]); }}}},
      {Op::cofactor, {{{x({3, 3})}, [](const Inputs& in) { return call(Op::cofactor, in, {}); }}}},
      {Op::slogdet, {{{x({3, 3})}, [](const Inputs& in) { return linalg::slogdet(in[0]).logabsdet; }}}},
      {Op::qr, {{{x({3, 2})}, [](const Inputs& in) { return linalg::qr(in[0], "complete").q; }}}},
      {Op::eigh, {{{x({3, 3})}, [](const Inputs& in) { return linalg::eigh(in[0]).eigenvectors; }}}},
      {Op::eigvalsh, {{{x({3, 3})}, [](const Inputs& in) { return linalg::eigvalsh(in[0]); }}}},
      {Op::svd, {{{x({3, 2})}, [](const Inputs& in) { return linalg::svd(in[0]).u; }}}},
      {Op::svdvals, {{{x({2, 3, 2})}, [](const Inputs& in) { return linalg::svdvals(in[0]); }}}},
      {Op::pinv, {{{x({2, 3, 2})}, [](const Inputs& in) { return linalg::pinv(in[0]); }}}},
      {Op::fft, {{{x({2, 3})}, [](const Inputs& in) { return real(fft::fft(in[0], {}, 0)); }}}},
      {Op::rfft, {{{x({2, 3})}, [](const Inputs& in) { return imag(fft::rfft(in[0])); }}}},
      {Op::irfft, {{{x({2, 3})}, [](const Inputs& in) { return fft::irfft(in[0], 5, 0); }}}},
      {Op::matmul,
       {{{x({2, 3}), x({3, 4})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({3}), x({3})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({3}), x({3, 2})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({2, 3}), x({3})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({2, 3}), x({3})}, [](const Inputs& in) { return call(Op::matmul, in, {}); }},
        {{x({3}), x({5, 3, 2})}, [](const Inputs& in) { return call(Op::matmul, in, {}); }},
        {{x({5, 2, 3}), x({3, 4})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({2, 3}), x({5, 3, 4})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({2, 3}), x({5, 3, 1})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({5, 1, 2, 3}), x({4, 3, 2})}, [](const Inputs& in) { return matmul(in[0], in[1]); }},
        {{x({2, 0}), x({0, 3})}, [](const Inputs& in) { return matmul(in[0], in[1]); }}}},
      {Op::gather,
       {{{x({5}), p({3})}, [](const Inputs& in) { return gather(in[0], in[1]); }},
        {{x({3, 5}), p({2, 4}, DType::i32)}, [](const Inputs& in) { return gather(in[0], in[1], 1); }}}},
      {Op::scatter,
       {{{x({5}), p({3}), x({3})}, [](const Inputs& in) { return scatter(in[0], in[1], in[2]); }},
        {{x({3, 5}), p({2, 4}), x({2, 4})}, [](const Inputs& in) { return scatter(in[0], in[1], in[2], 1); }}}},
      {Op::scatter_add,
       {{{x({3, 5}), p({2, 4}), x({2, 4})}, [](const Inputs& in) { return scatter_add(in[0], in[1], in[2], 1); }}}},
      {Op::scatter_multiply, {scatter_case(ScatterReduction::prod)}},
      {Op::scatter_maximum, {scatter_case(ScatterReduction::amax)}},
      {Op::scatter_minimum, {scatter_case(ScatterReduction::amin)}},
      {Op::unfold, {{{x({2, 7})}, [](const Inputs& in) { return call(Op::unfold, in, {1, 3, 2, 1}); }}}},
      {Op::fold,
       {{{x({2, 3, 3})}, [](const Inputs& in) { return call(Op::fold, in, {1, 2, 1}, {DType::f32, {2, 7}}); }}}},
      {Op::convolution,
       {{{x({2, 3, 6}), x({4, 3, 3})}, [](const Inputs& in) { return call(Op::convolution, in, {1, 2, 1, 1, 1}); }},
        {{x({1, 4, 5, 4}), x({2, 2, 3, 2})},
         [](const Inputs& in) { return call(Op::convolution, in, {2, 1, 1, 1, 0, 0, 1, 1, 2}); }}}},
      {Op::convolution_data_gradient,
       {{{x({2, 4, 3}), x({4, 3, 3})},
         [](const Inputs&
                in) { return call(Op::convolution_data_gradient, in, {1, 2, 1, 1, 1}, {DType::f32, {2, 3, 6}}); }},
        {{x({2, 4, 3}), x({4, 3, 3})},
         [](const Inputs&
                in) { return call(Op::convolution_data_gradient, in, {2, 2, 1, 1, 1}, {DType::f32, {2, 6, 6}}); }}}},
      {Op::convolution_weight_gradient,
       {{{x({2, 3, 6}), x({2, 4, 3})},
         [](const Inputs&
                in) { return call(Op::convolution_weight_gradient, in, {1, 2, 1, 1, 1}, {DType::f32, {4, 3, 3}}); }},
        {{x({2, 6, 6}), x({2, 4, 3})},
         [](const Inputs&
                in) { return call(Op::convolution_weight_gradient, in, {2, 2, 1, 1, 1}, {DType::f32, {4, 3, 3}}); }}}},
  };
  return kCases;
}

/// Where there are none above, the example that the op gives to tests.
std::vector<Case> cases_of(Op op) {
  if (const auto known = cases().find(op); known != cases().end()) return known->second;
  if (batching_rule(op) == nullptr || traits(op).example == nullptr) return {};
  const OpCall example = traits(op).example();
  Case c{.operands = {},
         .f =
             [op, example](const Inputs& in) {
               return call(op, in, example.attributes, {example.dtype, example.shape});
             },
         .is_natural = true};
  for (std::size_t k = 0; k < example.shapes.size(); ++k) c.operands.emplace_back(example.shapes[k], example.dtypes[k]);
  return {c};
}

/// Ops without operands have nothing that could be batched, except that random ones draw.
bool takes_operands(Op op) { return family(op) == Family::irregular && info(op).operands != 0; }

void check_case(Op op, const Case& c, const std::vector<int>& axes) {
  std::vector<BatchOperand> operands;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto& [shape, dtype] = c.operands[k];
    const auto named = traits(op).operands;
    if (c.is_natural && k < named.size() && named[k].elements == OperandElements::pattern) {
      const std::size_t count = axes[k] == kShared ? 1 : kBatch;
      operands.push_back(
          {std::vector(count, test::operand_of(traits(op).example(), OperandElements::pattern, k)), axes[k]});
      continue;
    }
    operands.push_back(is_floating(dtype) || dtype == DType::i8 ? operand(shape, dtype, axes[k], 8 + k)
                                                                : positions(shape, dtype, axes[k], 5, c.is_natural));
  }
  check_vmap(std::string(name(op)), c.f, operands, kBatch, axes.back() == 1 ? -1 : 0, 1e-6);
}

TEST_P(VmapOps, EveryIrregularOp) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (!takes_operands(op)) continue;
    const std::vector<Case> all = cases_of(op);
    if (all.empty()) {  // runs in a loop, which needs no test of its own
      EXPECT_EQ(batching_rule(op), nullptr) << "no arguments to test " << name(op) << " with";
      continue;
    }
    const std::uint64_t loops = stats().vmap_loops;
    for (const Case& c : all) {
      std::vector<std::vector<int>> placed{{}};
      for (const auto& [shape, dtype] : c.operands) {
        std::vector<std::vector<int>> longer;
        for (const auto& before : placed)
          for (const int axis : places(shape)) {
            longer.push_back(before);
            longer.back().push_back(axis);
          }
        placed = std::move(longer);
      }
      for (const std::vector<int>& axes : placed)
        if (std::ranges::any_of(axes, [](int axis) { return axis != kShared; })) check_case(op, c, axes);
    }
    EXPECT_EQ(stats().vmap_loops == loops, batching_rule(op) != nullptr) << name(op);
  }
}

TEST_P(VmapOps, EveryIrregularOpOfFloatsSaysWhatItsGradientsAre) {
  int operands_seen = 0;
  for (const auto& [op, list] : cases()) {
    for (const Case& c : list) {
      Inputs in;
      for (const auto& [shape, dtype] : c.operands)
        in.push_back(is_floating(dtype) ? element(shape, dtype, 3 + in.size())
                                        : positions(shape, dtype, kShared, 2).elements[0]);
      if (!is_floating(c.f(in).dtype())) continue;
      for (std::size_t k = 0; k < in.size(); ++k) {
        if (!is_floating(in[k].dtype())) continue;
        const VjpRule::Entry& gradient = vjp_rule(op).entry(k);
        EXPECT_NE(gradient.kind, Derivative::none) << name(op) << ", operand " << k;
        EXPECT_EQ(gradient.vjp != nullptr, gradient.kind == Derivative::formula) << name(op) << ", operand " << k;
        ++operands_seen;
      }
    }
  }
  EXPECT_GE(operands_seen, 60);
}

TEST_P(VmapOps, WithoutARuleACallIsALoop) {
  for (const auto& [op, list] : cases()) {
    const BatchingRule rule = set_batching_rule(op, nullptr);
    const std::uint64_t loops = stats().vmap_loops;
    for (const Case& c : list) check_case(op, c, std::vector<int>(c.operands.size(), 0));
    EXPECT_GT(stats().vmap_loops, loops) << name(op);
    set_batching_rule(op, rule);
  }
  EXPECT_NE(to_string(stats()).find("calls run in a loop over the batch"), std::string::npos);
}

TEST_P(VmapOps, CompositesAreBatchedByTheirParts) {
  const auto check = [&](const char* what, const Function& f, const std::vector<BatchOperand>& operands) {
    check_vmap(what, f, operands, kBatch, 0, 1e-5);
  };
  const std::uint64_t loops = stats().vmap_loops;
  for (const int axis : {0, 1, -1}) {
    const BatchOperand x = operand({2, 4}, DType::f32, axis, 9);
    check("mean", [](const Inputs& in) { return mean(in[0], 1); }, {x});
    check("var", [](const Inputs& in) { return var(in[0], {0}); }, {x});
    check("logsumexp", [](const Inputs& in) { return logsumexp(in[0], -1); }, {x});
    check("softmax", [](const Inputs& in) { return softmax(in[0], 0); }, {x});
    check("log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }, {x});
    check("cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], in[1]); },
          {x, positions({2}, DType::u8, 0, 4)});
    for (const int weight : {0, kShared}) {
      const BatchOperand w = operand({4}, DType::f32, weight, 10), m = operand({3, 4}, DType::f32, weight, 11);
      check("layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); }, {x, w, w});
      check("rms_norm", [](const Inputs& in) { return rms_norm(in[0], in[1]); }, {x, w});
      check("linear", [](const Inputs& in) { return linear(in[0], in[1]); }, {x, m});
    }
  }
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(VmapOps, EmptyBatches) {
  const Tensor none = zeros({0, 2, 3}), rows = zeros({0, 4}, DType::i64);
  EXPECT_EQ(vmap([](const Tensor& x) { return sum(exp(x) * 2); })(none).shape(), (Shape{0}));
  EXPECT_EQ(vmap([](const Tensor& x, const Tensor& i) { return take(x, i % 2); })(none, rows).shape(),
            (Shape{0, 4, 3}));
  EXPECT_EQ(vmap([](const Tensor& x) { return matmul(x, transpose(x)); }, 0, -1)(none).to_vector<float>().size(), 0u);
  const BatchingRule rule = set_batching_rule(Op::concat, nullptr);
  EXPECT_EQ(vmap([](const Tensor& x) { return concat({x, x}, 1); })(none).shape(), (Shape{0, 2, 6}));
  set_batching_rule(Op::concat, rule);
}

}  // namespace
}  // namespace fermata
