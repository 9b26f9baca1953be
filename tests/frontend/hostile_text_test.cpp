// Malformed programs as text: attributes that are negative or huge, operands of other dtypes, ranks and
// number. Each gives an error, or the same result in both modes.
//
// Calls come from what the op table says of each op (ir/op_traits.h). A new op is in this test without being listed.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "fermata/inspect.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/tools/io/file.h"
#include "ir/graph.h"
#include "runtime/allocator.h"
#include "tests/frontend/op_calls.h"

namespace fermata {
namespace {

using test::good_call, test::text_of, test::Value, test::value_of;

constexpr std::int64_t kHostile[] = {-1,
                                     -2,
                                     -64,
                                     INT64_MIN,
                                     INT64_MIN + 1,
                                     INT64_MAX,
                                     INT64_MAX - 62,
                                     std::int64_t{1} << 32,
                                     std::int64_t{1} << 20,
                                     0,
                                     1,
                                     2,
                                     3,
                                     63,
                                     64,
                                     65};

/// All lists among the attributes longer or shorter by one.
std::vector<std::int64_t> with_other_lists(Op op, const std::vector<std::int64_t>& from, bool longer) {
  std::vector<std::int64_t> attributes;
  const std::size_t length = attribute_list_length(traits(op), from.size()).value();
  auto next = from.begin();
  for (const AttributeField& field : traits(op).fields) {
    const bool is_list = field.kind == AttributeKind::list;
    const auto size = static_cast<std::ptrdiff_t>(is_list ? length : 1);
    attributes.insert(attributes.end(), next, next + size);
    next += size;
    if (is_list && longer) attributes.push_back(1);
    if (is_list && !longer && size > 0) attributes.pop_back();
  }
  return attributes;
}

std::vector<OpCall> hostile_calls(Op op, const OpCall& good) {
  std::vector<OpCall> calls{good};
  const auto add = [&](const std::function<void(OpCall&)>& change) { change(calls.emplace_back(good)); };
  for (std::size_t i = 0; i < good.attributes.size(); ++i)
    for (const std::int64_t value : kHostile) add([&](OpCall& c) { c.attributes[i] = value; });
  for (const std::int64_t value : kHostile) add([&](OpCall& c) { std::ranges::fill(c.attributes, value); });
  for (const bool longer : {true, false})
    add([&](OpCall& c) { c.attributes = with_other_lists(op, good.attributes, longer); });
  if (traits(op).takes_shape) {
    for (std::size_t i = 0; i < good.shape.size(); ++i)
      for (const std::int64_t value : kHostile)
        if (value < 0 || value > (std::int64_t{1} << 33) || value < 100) add([&](OpCall& c) { c.shape[i] = value; });
    add([](OpCall& c) { c.shape = {}; });
    add([](OpCall& c) { c.shape.push_back(1); });
  }
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (traits(op).takes_dtype) add([&](OpCall& c) { c.dtype = dtype; });
    for (std::size_t k = 0; k < good.dtypes.size(); ++k) add([&](OpCall& c) { c.dtypes[k] = dtype; });
    add([&](OpCall& c) { std::ranges::fill(c.dtypes, dtype); });
  }
  for (std::size_t k = 0; k < good.shapes.size(); ++k) {
    add([&](OpCall& c) { c.shapes[k] = {}; });
    add([&](OpCall& c) { c.shapes[k].push_back(1); });
    add([&](OpCall& c) { c.shapes[k] = Shape{1, 2, 1, 2, 1, 2, 1, 2}; });
    for (std::size_t axis = 0; axis < good.shapes[k].size(); ++axis)
      for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1}, good.shapes[k][axis] + 1})
        add([&](OpCall& c) { c.shapes[k][axis] = size; });
  }
  if (!good.shapes.empty()) {
    for (const std::int64_t size : {0, 1, 5})
      add([&](OpCall& c) {
        for (Shape& shape : c.shapes) std::ranges::fill(shape, size);
      });
    add([](OpCall& c) { c.shapes.pop_back(), c.dtypes.pop_back(); });
    add([](OpCall& c) { c.shapes.clear(), c.dtypes.clear(); });
  }
  add([](OpCall& c) { c.shapes.push_back(Shape{3, 4}), c.dtypes.push_back(DType::f32); });
  return calls;
}

/// Elements of any dtype, some of them negative or large where they are positions or sizes of something.
Tensor elements(DType dtype, const Shape& shape, bool plain) {
  void* data = nullptr;
  Tensor x = new_tensor(dtype, shape, &data);
  const auto count = static_cast<std::size_t>(element_count(shape));
  if (count == 0) return x;
  std::memset(data, 0, count * byte_size(dtype));
  if (is_quantized(dtype) || plain) return x;
  return test::some_numbers(dtype, shape, 1);
}

/// Its value, or the code of the error.
Value outcome(const Graph& graph, const std::vector<Tensor>& inputs, Mode mode) {
  const ModeGuard guard(mode);
  try {
    return value_of(run_graph(graph, inputs).at(0));
  } catch (const Error& error) { return {"FM" + std::to_string(error.code()), {}}; }
}

class HostileText : public ::testing::TestWithParam<std::size_t> {
 protected:
  HostileText()
      : policy_(set_compile_policy(CompilePolicy::immediate)), limit_(set_memory_limit(std::size_t{1} << 30)) {}
  ~HostileText() override { set_compile_policy(policy_), set_memory_limit(limit_); }

 private:
  CompilePolicy policy_;
  std::size_t limit_;
};

TEST_P(HostileText, GivesAnErrorOrTheSameResultInBothModes) {
  const auto op = static_cast<Op>(GetParam());
  const std::optional<OpCall> good = good_call(op);
  if (!good) return;
  std::size_t ran = 0;
  for (const OpCall& call : hostile_calls(op, *good)) {
    std::string text;
    try {
      text = text_of(op, call);
    } catch (const Error&) { continue; }  // nothing that could be written
    SCOPED_TRACE(text);
    Graph graph;
    try {
      graph = parse_graph(text);
    } catch (const ParseError&) { continue; }
    verify(graph);
    for (const bool plain : {false, true}) {
      std::vector<Tensor> inputs;
      for (std::size_t k = 0; k < call.shapes.size(); ++k)
        inputs.push_back(elements(call.dtypes[k], call.shapes[k], plain));
      EXPECT_EQ(outcome(graph, inputs, Mode::compiled), outcome(graph, inputs, Mode::eager));
      ++ran;
    }
  }
  EXPECT_GT(ran, 0u);
}

INSTANTIATE_TEST_SUITE_P(EveryOp, HostileText, ::testing::Range(std::size_t{0}, kOpCount),
                         [](const auto& at) { return std::string(name(static_cast<Op>(at.param))); });

}  // namespace
}  // namespace fermata
