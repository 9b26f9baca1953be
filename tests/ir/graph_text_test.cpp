// The text form of graphs: what it looks like, that it reads back to the same graph, and every complaint of the parser.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "golden.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "random_graph.h"
#include "seed.h"

namespace fermata {
namespace {

bool same_node(const GraphNode& a, const GraphNode& b) {
  return a.op == b.op && a.dtype == b.dtype && a.shape == b.shape && a.operands == b.operands &&
         a.attributes == b.attributes && a.scalars == b.scalars && a.record == b.record && a.dense == b.dense &&
         a.unit_inner == b.unit_inner && a.unit_axis == b.unit_axis &&
         (a.subgraphs == nullptr) == (b.subgraphs == nullptr);
}

class GraphText : public testing::SeededTest {};

TEST_F(GraphText, ReadsBackToTheSameGraph) {
  std::set<Op> met;
  for (int round = 0; round < 3000; ++round) {
    const Graph graph = testing::RandomGraph(random_).make(static_cast<std::size_t>(between(1, 30)));
    verify(graph);
    const std::string text = to_string(graph);
    const Graph back = parse_graph(text);
    ASSERT_EQ(to_string(back), text);
    ASSERT_EQ(back.outputs, graph.outputs);
    ASSERT_EQ(back.nodes.size(), graph.nodes.size());
    for (std::size_t i = 0; i < back.nodes.size(); ++i) {
      ASSERT_TRUE(same_node(back.nodes[i], graph.nodes[i])) << "%" << i << "\n" << text;
      met.insert(back.nodes[i].op);
    }
  }
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_TRUE(family(op) == Family::composite || met.contains(op)) << name(op) << " was never tried";
  }
}

constexpr std::string_view kEverything = R"(# Every form that a line can have.
// comments start with either
%x = input : f32[4, 8]
%rows = input {dense=false, unit_inner=false} : f32[4, 8]   @examples/mlp.cpp:42
%2 = full(0x7fc00001) : f32[8]
%3=add( %x,%rows ):f32[4,8]
%4 = multiply(-0, %3) : f32[4, 8]
%5 = sum(%4) {keepdims=true, axes=[1]} : f32[4, 1]
%6 = slice(%x) {start=[3, 0], step=[-1, 2]} : f32[4, 4]
%7 = random_uniform(7, 18446744073709551615) : f16[2]

%8 = iota {axis=1} : i64[2, 3]
%9 = less(%8, 2) : bool[2, 3]
%10 = where(%9, 1.5, inf) : f64[2, 3]
%11 = concat(%x, %3) {axis=0} : f32[8, 8]
%12 = update(%x, %2) {offset=24, strides=[1]} : f32[4, 8]
%13 = sum(%x) {axes=[], keepdims=false} : f32[4, 8]
%14 = permute(%8) {axes=[1, 0]} : i64[3, 2]
return %5, %x, %5
)";

TEST_F(GraphText, AcceptsHandwrittenForms) {
  testing::expect_golden("graph_forms.ir", to_string(parse_graph(kEverything)));
}

constexpr std::string_view kFunctions = R"(%p = input : bool[]
%x = input : f32[3]
%seed = input : f64[]
%y = cond(%p, %seed, %x, %x) {seeded=true} : f32[3]
  when_true:
    %a = input : f32[3]
    %b = input : f32[3]
    // A loop in a branch.
    %n = full(0) : i64[]
    %both = while_loop(%n, %a) {seeded=false} : u8[128]
      condition:
        %i = input : i64[]
        %s = input : f32[3]
        %0 = less(%i, 3) : bool[]
        return %0
      body:
        %i = input : i64[]
        %s = input : f32[3]
        %next = add(%i, 1) : i64[]
        %twice = multiply(%s, 2) : f32[3]
        return %next, %twice
    %r = unpack(%both) {offset=64} : f32[3]
    return %r
when_false:
%a = input : f32[3]
%b = input : f32[3]
%noise = random_uniform(7640891576956012808, 0) : f32[3]
%z = add(%b, %noise) : f32[3]
return %z
%all = scan(%x, %x) {seeded=false, carries=1, sequences=0, length=4, reverse=true} : u8[128]
  body:
    %c = input : f32[3]
    %w = input : f32[3]
    %m = maximum(%c, %w) : f32[3]
    return %m, %m
return %y, %all
)";

TEST_F(GraphText, FunctionsThatANodeOwns) {
  const Graph graph = parse_graph(kFunctions);
  verify(graph);
  testing::expect_golden("graph_functions.ir", to_string(graph));
  EXPECT_EQ(to_string(parse_graph(to_string(graph))), to_string(graph));
  EXPECT_EQ((*graph.nodes[3].subgraphs)[0].results()[0], (TensorType{DType::f32, {3}}));
}

TEST_F(GraphText, ScalarsHaveTheDtypeOfTheOperands) {
  const Graph graph =
      parse_graph("%0 = input : i32[2]\n%1 = divide(%0, 3) : f32[2]\n%2 = add(%0, 3) : i32[2]\nreturn %1");
  EXPECT_EQ(graph.nodes[1].scalars[0], std::bit_cast<std::uint32_t>(3.0f));
  EXPECT_EQ(graph.nodes[2].scalars[0], 3u);
  EXPECT_EQ(operand_dtype(graph, graph.nodes[1]), DType::f32);
}

TEST_F(GraphText, CountsUses) {
  const Graph graph = parse_graph("%0 = input : f32[2]\n%1 = add(%0, %0) : f32[2]\nreturn %1, %0, %1\n");
  EXPECT_EQ(count_uses(graph), (std::vector<std::uint32_t>{3, 2}));
}

TEST_F(GraphText, ShowsLocationsOnRequest) {
  Graph graph = parse_graph("%0 = input : f32[2]\nreturn %0");
  graph.nodes[0].where = std::source_location::current();
  const std::string line = std::to_string(graph.nodes[0].where.line());
  EXPECT_EQ(to_string(graph, true), "%0 = input : f32[2]  @ir/graph_text_test.cpp:" + line + "\nreturn %0\n");
  EXPECT_EQ(to_string(graph), "%0 = input : f32[2]\nreturn %0\n");
  EXPECT_EQ(to_string(parse_graph(to_string(graph, true))), to_string(graph));
}

std::string complaint(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const ParseError& error) { return error.what(); }
  return "no error";
}
/// The complaint about one line after an input %0 : f32[4].
std::string about(const std::string& line) { return complaint("%0 = input : f32[4]\n" + line + "\nreturn %0\n"); }

TEST_F(GraphText, SyntaxErrorsPointAtTheColumn) {
  EXPECT_EQ(about("%1 = exp(%0 : f32[4]"),
            "FM1501 ParseError: line 2, column 13: expected ')'\n"
            "  %1 = exp(%0 : f32[4]\n"
            "              ^");
  EXPECT_EQ(about("%1 = exp(%0) f32[4]"),
            "FM1501 ParseError: line 2, column 14: expected ':'\n"
            "  %1 = exp(%0) f32[4]\n"
            "               ^");
  EXPECT_EQ(about("exp(%0) : f32[4]"),
            "FM1501 ParseError: line 2, column 1: expected a value or a return\n"
            "  exp(%0) : f32[4]\n"
            "  ^");
  EXPECT_EQ(about("%1 = exp(%0) : f32[x]"),
            "FM1501 ParseError: line 2, column 20: 'x' is not a 64-bit integer\n"
            "  %1 = exp(%0) : f32[x]\n"
            "                     ^");
  EXPECT_EQ(about("%1 = exp(%0) : f32[4] and more"),
            "FM1501 ParseError: line 2, column 23: expected '@' or the end of the line\n"
            "  %1 = exp(%0) : f32[4] and more\n"
            "                        ^");
  EXPECT_EQ(about("%1 = sum(%0) {axes=[0], keepdims=yes} : f32[]"),
            "FM1501 ParseError: line 2, column 34: expected true or false\n"
            "  %1 = sum(%0) {axes=[0], keepdims=yes} : f32[]\n"
            "                                   ^");
  EXPECT_EQ(complaint("%0 = input : f32[4]\n"), "FM1501 ParseError: line 2, column 1: expected a return\n  \n  ^");
  EXPECT_EQ(complaint("%0 = input : f32[4]\nreturn %0\n\n%1 = exp(%0) : f32[4]"),
            "FM1501 ParseError: line 4, column 1: unexpected text after the return\n"
            "  %1 = exp(%0) : f32[4]\n"
            "  ^");
}

TEST_F(GraphText, FunctionsHaveToFit) {
  const auto loop = [](const std::string& line, const std::string& condition, const std::string& body) {
    return complaint("%0 = input : f32[4]\n" + line + "\n" + condition + body + "return %0\n");
  };
  const std::string
      node = "%1 = while_loop(%0) {seeded=false} : f32[4]",
      holds = "condition:\n%0 = input : f32[4]\n%1 = any(%0) {axes=[0], keepdims=false} : bool[]\nreturn %1\n",
      body = "body:\n%0 = input : f32[4]\n%1 = exp(%0) : f32[4]\nreturn %1\n";
  EXPECT_EQ(loop(node, holds, body), "no error");
  const auto wrong = [&](const std::string& text, const std::string& what) {
    EXPECT_EQ(text, "FM1503 ParseError: line 2, column 6: FM1766 ValueError: while_loop: " + what + "\n  " + node +
                        "\n       ^");
  };
  wrong(loop(node, "condition:\n%0 = input : f32[4]\nreturn %0\n", body), "the condition gives no single truth value");
  wrong(loop(node, holds, "body:\n%0 = input : f32[4]\n%1 = sum(%0) {axes=[0], keepdims=false} : f32[]\nreturn %1\n"),
        "the body does not give what it takes");
  wrong(loop(node, holds, "body:\n%0 = input : f32[5]\nreturn %0\n"), "its functions take different operands");
  EXPECT_EQ(
      loop("%1 = while_loop(%0, %0, %0) {seeded=false} : f32[4]", holds, body),
      "FM1503 ParseError: line 2, column 6: FM1766 ValueError: while_loop: more operands than its functions take\n"
      "  %1 = while_loop(%0, %0, %0) {seeded=false} : f32[4]\n"
      "       ^");
  EXPECT_EQ(
      loop("%1 = while_loop {seeded=false} : f32[4]", holds, body),
      "FM1503 ParseError: line 2, column 6: FM1766 ValueError: while_loop: an operand is missing: an operand of a "
      "function\n"
      "  %1 = while_loop {seeded=false} : f32[4]\n"
      "       ^");
  EXPECT_EQ(loop("%1 = while_loop(%0) {seeded=false} : u8[32]", holds, body),
            "FM1503 ParseError: line 2, column 38: this is f32[4]\n"
            "  %1 = while_loop(%0) {seeded=false} : u8[32]\n"
            "                                       ^");
  EXPECT_EQ(loop(node, "", body),
            "FM1501 ParseError: line 3, column 1: expected 'condition:', a function of while_loop\n"
            "  body:\n"
            "  ^");
  EXPECT_EQ(loop(node, holds + "%2 = exp(%0) : f32[4]\n", body),
            "FM1501 ParseError: line 7, column 1: expected 'body:', a function of while_loop\n"
            "  %2 = exp(%0) : f32[4]\n"
            "  ^");
  EXPECT_EQ(loop(node, "condition:\n%0 = input {dense=false} : f32[4]\n", ""),
            "FM1504 ParseError: line 4, column 13: only inputs of the whole program have a layout\n"
            "  %0 = input {dense=false} : f32[4]\n"
            "              ^");
  EXPECT_EQ(complaint("%0 = input : f32[4]\n" + node),
            "FM1501 ParseError: line 3, column 1: expected 'condition:', a function of while_loop\n  \n  ^");
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "%0 = input : f32[4]\n" + node + "\n" + holds + "body:\n";
  EXPECT_TRUE(complaint(deep).starts_with("FM1504 ParseError: line 226, column 6: functions are nested deeper than 32"))
      << complaint(deep);
}

/// What jumped to an address that a text gave, when functions were operands.
TEST_F(GraphText, AnAddressIsNoFunction) {
  const std::string text = "%0 = full(4702111234474983745) : i64[]\n%1 = while_loop(%0) : u8[32]\nreturn %1\n";
  EXPECT_EQ(complaint(text),
            "FM1504 ParseError: line 2, column 6: while_loop needs the attribute 'seeded'\n"
            "  %1 = while_loop(%0) : u8[32]\n"
            "       ^");
}

TEST_F(GraphText, UnknownNames) {
  EXPECT_EQ(about("%1 = expp1(%0) : f32[4]"),
            "FM1502 ParseError: line 2, column 6: unknown op 'expp1'; did you mean 'expm1'?\n"
            "  %1 = expp1(%0) : f32[4]\n"
            "       ^");
  EXPECT_EQ(about("%1 = zzzzzzzzzz(%0) : f32[4]"),
            "FM1502 ParseError: line 2, column 6: unknown op 'zzzzzzzzzz'\n"
            "  %1 = zzzzzzzzzz(%0) : f32[4]\n"
            "       ^");
  EXPECT_EQ(about("%1 = exp(%7) : f32[4]"),
            "FM1502 ParseError: line 2, column 10: %7 is not defined before here\n"
            "  %1 = exp(%7) : f32[4]\n"
            "           ^");
  EXPECT_EQ(about("%0 = exp(%0) : f32[4]"),
            "FM1502 ParseError: line 2, column 1: %0 is defined twice\n"
            "  %0 = exp(%0) : f32[4]\n"
            "  ^");
  EXPECT_EQ(about("%1 = exp(%0) : float[4]"),
            "FM1502 ParseError: line 2, column 16: unknown dtype 'float'\n"
            "  %1 = exp(%0) : float[4]\n"
            "                 ^");
  EXPECT_EQ(about("%1 = exp(%0) {axis=1} : f32[4]"),
            "FM1502 ParseError: line 2, column 15: exp has no attribute 'axis'\n"
            "  %1 = exp(%0) {axis=1} : f32[4]\n"
            "                ^");
}

TEST_F(GraphText, WrongTypes) {
  EXPECT_EQ(about("%1 = exp(%0) : f32[5]"),
            "FM1503 ParseError: line 2, column 16: this is f32[4]\n"
            "  %1 = exp(%0) : f32[5]\n"
            "                 ^");
  EXPECT_EQ(about("%1 = bitwise_invert(%0) : f32[4]"),
            "FM1503 ParseError: line 2, column 6: FM1101 DTypeError: bitwise_invert: does not take f32\n"
            "  %1 = bitwise_invert(%0) : f32[4]\n"
            "       ^");
  EXPECT_EQ(about("%1 = broadcast_to(%0) : f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4]"),
            "FM1503 ParseError: line 2, column 28: more than 16 axes\n"
            "  %1 = broadcast_to(%0) : f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4]\n"
            "                             ^");
}

TEST_F(GraphText, WrongArguments) {
  EXPECT_EQ(about("%1 = add(%0) : f32[4]"),
            "FM1504 ParseError: line 2, column 6: add takes 2 arguments, not 1\n"
            "  %1 = add(%0) : f32[4]\n"
            "       ^");
  EXPECT_EQ(about("%1 = matmul(%0, 2) : f32[4]"),
            "FM1504 ParseError: line 2, column 17: matmul takes tensors only\n"
            "  %1 = matmul(%0, 2) : f32[4]\n"
            "                  ^");
  EXPECT_EQ(about("%1 = full(%0) : f32[4]"),
            "FM1504 ParseError: line 2, column 11: full takes numbers only\n"
            "  %1 = full(%0) : f32[4]\n"
            "            ^");
  EXPECT_EQ(about("%1 = add(1, 2) : f32[4]"),
            "FM1504 ParseError: line 2, column 6: at least one argument must be a tensor\n"
            "  %1 = add(1, 2) : f32[4]\n"
            "       ^");
  EXPECT_EQ(about("%1 = where(true, %0, %0) : f32[4]"),
            "FM1504 ParseError: line 2, column 12: the condition must be a tensor\n"
            "  %1 = where(true, %0, %0) : f32[4]\n"
            "             ^");
  EXPECT_EQ(about("%1 = add(%0, two) : f32[4]"),
            "FM1504 ParseError: line 2, column 14: 'two' is not a number of dtype f32\n"
            "  %1 = add(%0, two) : f32[4]\n"
            "               ^");
  EXPECT_EQ(about("%1 = sum(%0) {axes=[0]} : f32[]"),
            "FM1504 ParseError: line 2, column 6: sum needs the attribute 'keepdims'\n"
            "  %1 = sum(%0) {axes=[0]} : f32[]\n"
            "       ^");
  EXPECT_EQ(about("%1 = sum(%0) {axes=[0, 0], keepdims=false} : f32[]"),
            "FM1504 ParseError: line 2, column 20: axis 0 is out of range or named twice\n"
            "  %1 = sum(%0) {axes=[0, 0], keepdims=false} : f32[]\n"
            "                     ^");
  EXPECT_EQ(complaint("%0 = input {unit_inner=false, unit_axis=16} : f32[4, 4]\n"),
            "FM1504 ParseError: line 1, column 31: there is no axis 16\n"
            "  %0 = input {unit_inner=false, unit_axis=16} : f32[4, 4]\n"
            "                                ^");
  EXPECT_EQ(about("%1 = slice(%0) {start=[0], step=[1, 1]} : f32[4]"),
            "FM1504 ParseError: line 2, column 6: 'start' and 'step' differ in length\n"
            "  %1 = slice(%0) {start=[0], step=[1, 1]} : f32[4]\n"
            "       ^");
}

/// Any damage gives a graph or a ParseError, never another exception or worse.
TEST_F(GraphText, DamagedTextIsRefusedInGoodOrder) {
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(kEverything);
    for (std::int64_t edits = between(1, 3); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(between(0, static_cast<std::int64_t>(text.size()) - 1));
      constexpr std::string_view kLetters = "%=(){}[],:@ 0123456789-xabinf\n";
      if (between(0, 1) != 0)
        text.erase(at, static_cast<std::size_t>(between(1, 5)));
      else
        text.insert(at, 1, any_of(kLetters));
    }
    try {
      verify(parse_graph(text));
    } catch (const ParseError&) { ++refused; }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace fermata
