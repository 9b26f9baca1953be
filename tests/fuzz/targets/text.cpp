// Programs, schemas, keys, equations and JSON as text.
#include <fermata/fermata.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <ranges>

#include "dispatch/registration.h"
#include "dispatch/schema.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "tests/dispatch/every_way.h"
#include "tests/fuzz/targets/target.h"

namespace fermata::testing {
namespace {

/// Small enough to run in no time.
bool is_small(const Graph& graph) {
  constexpr std::int64_t kMostElements = 1 << 12;
  constexpr std::size_t kMostNodes = 64;
  return graph.nodes.size() <= kMostNodes && std::ranges::all_of(graph.nodes, [](const GraphNode& node) {
           return element_count(node.shape) <= kMostElements;
         });
}

/// What nobody asks for is not computed in compiled mode, so it does not fail there.
bool has_unused_calls(const Graph& graph) {
  const std::vector<std::uint32_t> uses = count_uses(graph);
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (uses[i] == 0 && graph.nodes[i].op != Op::input) return true;
  return false;
}

/// Elements 0, 1, 2, 3, 4, 0, ...
Tensor some_elements(DType dtype, const Shape& shape) {
  void* data = nullptr;
  const Tensor x = new_tensor(dtype, shape, &data);
  const std::size_t count = static_cast<std::size_t>(element_count(shape)), width = byte_size(dtype);
  if (count == 0) return x;
  std::memset(data, 0, count * width);
  visit_real(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = static_cast<float>(dtype == DType::boolean ? i % 2 : i % 5);
      T element{};
      if constexpr (std::is_same_v<T, Float16>)
        element = to_float16(number);
      else if constexpr (std::is_same_v<T, BFloat16>)
        element = to_bfloat16(number);
      else
        element = static_cast<T>(number);
      std::memcpy(static_cast<std::byte*>(data) + i * width, &element, sizeof(element));
    }
  });
  return x;
}

/// The code of the error, or 0.
int run_in(Mode mode, const Graph& graph, const std::vector<Tensor>& inputs) {
  const ModeGuard guard(mode);
  try {
    sync(run_graph(graph, inputs));
    return 0;
  } catch (const InternalError&) { throw; } catch (const Error& error) {
    return error.code();
  }
}

void program(std::string_view input) {
  const Graph graph = parse_graph(input);
  verify(graph);
  const std::string text = to_string(graph);
  require(to_string(parse_graph(text)) == text, "a program reads back as another one");
  if (!is_small(graph)) return;
  std::vector<Tensor> inputs;
  for (const GraphNode& node : graph.nodes)
    if (node.op == Op::input) inputs.push_back(some_elements(node.dtype, node.shape));
  const PolicyGuard policy(CompilePolicy::immediate);
  const int eager = run_in(Mode::eager, graph, inputs), compiled = run_in(Mode::compiled, graph, inputs);
  require(eager == compiled || has_unused_calls(graph), "a program fails in one mode only");
}
const AddFuzzTarget add_program("program", &program);

void schema(std::string_view input) {
  const std::string text = to_string(parse_schema(input));
  require(to_string(parse_schema(text)) == text, "a schema reads back as another one");
}
const AddFuzzTarget add_schema("schema", &schema);

void key(std::string_view input) { parse_key(input, {}); }
const AddFuzzTarget add_key("key", &key);

void json(std::string_view input) {
  std::size_t events = 0;
  const std::string wrong = read_json(input, [&](const JsonEvent& event) { events += 1 + event.text.size() % 2; });
  require(!wrong.empty() || events > 0, "a text without JSON is right");
}
const AddFuzzTarget add_json("json", &json);

/// The equation on the first line, then the sizes of an operand on each: digits.
void equation(std::string_view input) {
  std::vector<Tensor> operands;
  const std::size_t end = std::min(input.find('\n'), input.size());
  for (const auto line : std::views::split(input.substr(std::min(end + 1, input.size())), '\n')) {
    Shape shape;
    for (const char digit : line)
      if (digit >= '0' && digit <= '9' && shape.size() < 4) shape.push_back(digit - '0');
    if (operands.size() < 4) operands.push_back(some_elements(DType::f32, shape));
  }
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const PolicyGuard policy(CompilePolicy::never);
    einsum(input.substr(0, end), operands).sync();
  }
}
const AddFuzzTarget add_equation("equation", &equation);

}  // namespace
}  // namespace fermata::testing
