// Two calls that differ in one argument only give what eager mode gives: together in one graph, one after the other so
// that the second meets the plan of the first, and with the code of the first on disk.
//
// Calls come from what the op table says of each op (ir/op_traits.h): the example of an irregular op, and for each of
// its attributes, scalars and sizes one that differs. A new op is in this test without being listed.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "fermata/inspect.h"
#include "tests/frontend/op_calls.h"

namespace fermata {
namespace {

using test::integers, test::is_valid, test::operands_of, test::some_numbers, test::Value, test::value_of;

/// A call with all its arguments, and what tells it from others. A view is a step of a graph only where its operand is
/// pending, so calls are made on operands of both kinds.
struct Case {
  std::string what;
  std::function<Tensor(bool pending)> run;
};
/// The same elements, not computed yet.
Tensor as_pending(const Tensor& x) { return x.dtype() == DType::boolean ? logical_not(logical_not(x)) : positive(x); }

std::string text(const OpCall& call) {
  return to_string(std::span<const std::int64_t>(call.attributes)) + " : " + to_string(call.dtype, call.shape);
}

Case made(Op op, const OpCall& call, const std::string& what, const std::vector<Tensor>& operands) {
  return {what + " " + text(call), [=](bool pending) {
            std::vector<Tensor> given = operands;
            if (pending) std::ranges::transform(given, given.begin(), as_pending);
            return general_call(
                op, given, {.wanted = {call.dtype, call.shape}, .integers = call.attributes, .scalars = call.scalars},
                {});
          }};
}

/// Lists that differ from `from` in one number, or in the order of two.
std::vector<std::vector<std::int64_t>> others(const std::vector<std::int64_t>& from) {
  std::vector<std::vector<std::int64_t>> lists;
  for (std::size_t i = 0; i < from.size(); ++i)
    for (const std::int64_t value : {from[i] + 1, from[i] - 1, from[i] * 2, std::int64_t{0}, std::int64_t{1}}) {
      lists.push_back(from);
      lists.back()[i] = value;
    }
  for (std::size_t i = 0; i + 1 < from.size(); ++i)
    lists.push_back(from), std::swap(lists.back()[i], lists.back()[i + 1]);
  return lists;
}

/// For each argument of a call, one that differs in it alone.
std::vector<Case> neighbors(Op op, const OpCall& call, const std::vector<Tensor>& operands) {
  std::vector<Case> cases;
  const OpTraits& about = traits(op);
  const auto add_first = [&](std::string_view argument, const std::vector<OpCall>& candidates) {
    for (const OpCall& c : candidates)
      if (is_valid(op, c)) {
        const bool same = c.shapes == call.shapes && c.dtypes == call.dtypes;
        return cases.push_back(made(op, c, std::string(argument), same ? operands : operands_of(op, c)));
      }
    ADD_FAILURE() << name(op) << ": no call that differs in " << argument << " is valid; choose another example";
  };
  const std::size_t length = attribute_list_length(about, call.attributes.size()).value();
  std::ptrdiff_t at = 0;
  for (const AttributeField& field : about.fields) {
    const auto size = static_cast<std::ptrdiff_t>(field.kind == AttributeKind::list ? length : 1);
    std::vector<OpCall> candidates;
    const auto begin = call.attributes.begin() + at;
    for (const auto& list : others({begin, begin + size})) {
      if (std::equal(list.begin(), list.end(), begin)) continue;
      if (field.kind == AttributeKind::boolean && (list[0] & ~std::int64_t{1}) != 0) continue;
      candidates.push_back(call);
      std::copy(list.begin(), list.end(), candidates.back().attributes.begin() + at);
    }
    // Such as the number of groups of a convolution: it says how many channels the operands have.
    if (about.other_examples != nullptr)
      for (const OpCall& other : about.other_examples())
        if (!std::equal(begin, begin + size, other.attributes.begin() + at)) candidates.push_back(other);
    add_first(field.name, candidates);
    at += size;
  }
  if (about.takes_shape) {
    std::vector<OpCall> candidates;
    for (const auto& sizes : others({call.shape.begin(), call.shape.end()}))
      if (Shape(sizes) != call.shape) candidates.push_back(call), candidates.back().shape = Shape(sizes);
    for (std::size_t i = 0; i < call.shape.size(); ++i)  // as many elements, divided otherwise
      for (std::size_t k = 0; k < call.shape.size(); ++k) {
        candidates.push_back(call);
        if (call.shape[i] % 2 == 0 && i != k) candidates.back().shape[i] /= 2, candidates.back().shape[k] *= 2;
      }
    std::erase_if(candidates, [&](const OpCall& c) { return c.shape == call.shape; });
    add_first("shape", candidates);
  }
  if (about.takes_dtype) {
    std::vector<OpCall> candidates;
    for (const DType t : {DType::f64, DType::i64, DType::f32, DType::u8})
      if (t != call.dtype) candidates.push_back(call), candidates.back().dtype = t;
    add_first("dtype", candidates);
  }
  for (std::size_t i = 0; i < call.scalars.size(); ++i) {
    OpCall other = call;
    ++other.scalars[i];
    add_first("scalar", {other});
  }
  return cases;
}

/// Pointwise ops: a host number in the place of each operand that may be one.
std::vector<std::pair<Case, Case>> pairs_of_pointwise(Op op) {
  std::vector<std::pair<Case, Case>> pairs;
  const auto count = static_cast<std::size_t>(info(op).operands);
  const bool chooses = info(op).rule == DTypeRule::choose;
  DType dtype = DType::f32;
  for (const DType t : {DType::u64, DType::i32, DType::f32})
    if (apply_rule(info(op).rule, t)) dtype = t;
  for (std::size_t scalar = chooses ? 1 : 0; count > 1 && scalar < count; ++scalar) {
    std::vector<Tensor> x;
    for (std::size_t k = 0; k < count; ++k)
      x.push_back(some_numbers(chooses && k == 0 ? DType::boolean : dtype, {3, 4}, static_cast<int>(k)));
    const auto with = [&](int number) -> Case {
      const auto operand = [=](std::size_t k) { return k == scalar ? Operand(number) : Operand(x[k]); };
      return {"operand " + std::to_string(scalar) + " = " + std::to_string(number), [=](bool) {
                return count == 2 ? detail::pointwise(op, operand(0), operand(1))
                                  : detail::pointwise(op, operand(0), operand(1), operand(2));
              }};
    };
    pairs.emplace_back(with(1), with(2));
  }
  return pairs;
}

std::vector<std::pair<Case, Case>> pairs_of(Op op) {
  if (is_pointwise(op)) return pairs_of_pointwise(op);
  OpCall call;
  if (family(op) == Family::reduce) {
    call.dtypes = {DType::f32}, call.shapes = {Shape{3, 4}}, call.attributes = {1, 0};
  } else if (family(op) == Family::random) {
    call.shape = Shape{3, 4}, call.scalars = {7, 11};
  } else if (traits(op).example != nullptr) {
    call = traits(op).example();
  } else {
    return {};
  }
  EXPECT_TRUE(is_valid(op, call)) << name(op) << ": its example is not valid";
  std::vector<std::pair<Case, Case>> pairs;
  const std::vector<Tensor> operands = operands_of(op, call);
  for (const Case& other : neighbors(op, call, operands))
    pairs.emplace_back(made(op, call, "example", operands), other);
  return pairs;
}

/// Leaves buffers behind that hold something else: what a plan does not write is then seen to be wrong.
void leave_other_numbers() {
  const ModeGuard guard(Mode::eager);
  std::vector<Tensor> all;
  for (std::int64_t bytes = 8; bytes <= 1024; bytes *= 2)
    for (int copies = 0; copies < 16; ++copies) all.push_back(full({bytes}, 123, DType::u8).sync());
}

class OpArguments : public ::testing::TestWithParam<std::size_t> {
 protected:
  OpArguments() : before_(set_compile_policy(CompilePolicy::immediate)) {}
  ~OpArguments() override { set_compile_policy(before_); }

 private:
  CompilePolicy before_;
};

void expect_told_apart(const Case& first, const Case& second, bool pending) {
  Value wanted_first, wanted_second;
  {
    const ModeGuard guard(Mode::eager);
    wanted_first = value_of(first.run(pending)), wanted_second = value_of(second.run(pending));
  }
  const ModeGuard guard(Mode::compiled);
  const std::string what = first.what + " beside " + second.what;
  clear_compile_caches();
  for (int round = 0; round < 2; ++round) {
    leave_other_numbers();
    const Tensor a = first.run(pending), b = second.run(pending);
    sync({a, b});
    EXPECT_EQ(value_of(a), wanted_first) << what << ", in one graph";
    EXPECT_EQ(value_of(b), wanted_second) << what << ", in one graph";
  }
  clear_compile_caches();
  for (const bool equal : {true, false}) {
    leave_other_numbers();
    const Tensor a = first.run(pending), b = equal ? first.run(pending) : second.run(pending);
    sync({a, b});
    EXPECT_EQ(value_of(b), equal ? wanted_first : wanted_second) << what << ", in the plan of two equal calls";
  }
  clear_compile_caches();
  leave_other_numbers();
  EXPECT_EQ(value_of(first.run(pending)), wanted_first) << what;
  EXPECT_EQ(value_of(second.run(pending)), wanted_second) << what << ", after the first";
  clear_compile_caches();
  leave_other_numbers();
  EXPECT_EQ(value_of(second.run(pending)), wanted_second) << what << ", with the code of both on disk";
  EXPECT_EQ(value_of(first.run(pending)), wanted_first) << what << ", after the second";
}

TEST_P(OpArguments, AreToldApart) {
  for (const auto& [first, second] : pairs_of(static_cast<Op>(GetParam())))
    for (const bool pending : {false, true}) expect_told_apart(first, second, pending);
}

INSTANTIATE_TEST_SUITE_P(EveryOp, OpArguments, ::testing::Range(std::size_t{0}, kOpCount),
                         [](const auto& at) { return std::string(name(static_cast<Op>(at.param))); });

TEST(OpExamples, AreMissingOnlyWithAReason) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const OpTraits& about = traits(static_cast<Op>(i));
    if (family(static_cast<Op>(i)) != Family::irregular) continue;
    EXPECT_NE(about.example == nullptr, about.no_example.empty()) << name(static_cast<Op>(i));
  }
}

}  // namespace
}  // namespace fermata
