// Reads the text form of a graph (ir/graph.h shows it), checking every type against what inference says.
//
// One line is one node. Values may have any name made of letters, digits and underscores; the printer numbers them. The
// functions that a node owns follow its line, each with its name before it and a return at its end.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "ir/edit_distance.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "ir/infer.h"
#include "ir/op_traits.h"
#include "ir/scalar_text.h"

namespace fermata {
namespace {

constexpr int kSyntax = 1501, kUnknownName = 1502, kWrongType = 1503, kWrongArgument = 1504;

/// One line of text and a position in it.
class Line {
 public:
  Line(std::string_view text, std::size_t number) : text_(text), number_(number) { skip(); }

  std::size_t at() const { return at_; }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  bool done() const { return at_ == text_.size(); }
  bool peek(char c) const { return !done() && text_[at_] == c; }
  bool accept(char c) {
    if (!peek(c)) return false;
    ++at_;
    skip();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(kSyntax, fmt::format("expected '{}'", c), at_);
  }
  /// A word, or two joined by `::` for a custom operator.
  std::string_view op_name() {
    const std::size_t begin = at_;
    word("the name of an op");
    if (text_.substr(at_).starts_with("::")) at_ += 2, word("the name of an op");
    std::string_view found = since(begin);
    while (found.ends_with(' ')) found.remove_suffix(1);
    return found;
  }
  /// Letters, digits and underscores; with `number`, also what else numbers are written with.
  std::string_view word(std::string_view what, bool number = false) {
    const std::size_t begin = at_;
    const auto belongs = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
             (number && (c == '-' || c == '+' || c == '.'));
    };
    while (!done() && belongs(text_[at_])) ++at_;
    const std::string_view found = since(begin);
    if (found.empty()) fail(kSyntax, fmt::format("expected {}", what), begin);
    skip();
    return found;
  }
  std::int64_t integer() {
    const std::size_t begin = at_;
    const std::string_view text = word("a number", true);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
      fail(kSyntax, fmt::format("'{}' is not a 64-bit integer", text), begin);
    return value;
  }
  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> values;
    expect('[');
    if (accept(']')) return values;
    do values.push_back(integer());
    while (accept(','));
    expect(']');
    return values;
  }
  [[noreturn]] void fail(int code, std::string_view what, std::size_t column) const {
    throw ParseError(code, fmt::format("FM{} ParseError: line {}, column {}: {}\n  {}\n  {:>{}}", code, number_,
                                       column + 1, what, text_, '^', column + 1));
  }

 private:
  void skip() {
    while (!done() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  std::string_view text_;
  std::size_t number_, at_ = 0;
};

std::string unknown_op_text(std::string_view written) {
  std::string_view nearest;
  std::size_t best = written.size() / 2 + 1;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const std::string_view candidate = name(static_cast<Op>(i)); edit_distance(written, candidate) < best)
      nearest = candidate, best = edit_distance(written, candidate);
  const std::string question = nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  return fmt::format("unknown op '{}'{}", written, question);
}

/// The lines of a text that are neither empty nor comments.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  std::optional<Line> next() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      std::string_view content = text_.substr(0, end);
      if (content.ends_with('\r')) content.remove_suffix(1);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      const Line line(content, ++number_);
      if (!line.done() && !line.peek('#') && !line.peek('/')) return line;
    }
    return std::nullopt;
  }
  Line expect(std::string_view what) {
    if (const auto line = next()) return *line;
    Line("", number_ + 1).fail(kSyntax, fmt::format("expected {}", what), 0);
  }

 private:
  std::string_view text_;
  std::size_t number_ = 0;
};

/// Functions in functions, down to here: who reads, prints or records them recurses.
constexpr int kDeepest = 32;

class Parser {
 public:
  Parser(Lines& lines, int depth) : lines_(lines), depth_(depth) {}

  /// Up to the return.
  Graph parse() {
    while (!returned_) {
      Line line = lines_.expect("a return");
      if (line.peek('%'))
        parse_node(line);
      else
        parse_return(line);
    }
    return std::move(graph_);
  }

 private:
  struct Argument {
    std::string_view text;
    std::size_t column;
    bool is_value;
    ValueId value;
  };

  std::string_view value_name(Line& line) {
    if (!line.peek('%')) line.fail(kSyntax, "expected a value such as %0", line.at());
    line.expect('%');
    return line.word("the name of a value");
  }
  ValueId defined_value(Line& line) {
    const std::size_t begin = line.at();
    const std::string_view written = value_name(line);
    const auto found = names_.find(written);
    if (found == names_.end()) line.fail(kUnknownName, fmt::format("%{} is not defined before here", written), begin);
    return found->second;
  }

  void parse_return(Line& line) {
    const std::size_t begin = line.at();
    if (line.word("a value or a return") != "return") line.fail(kSyntax, "expected a value or a return", begin);
    if (!line.done()) {
      do graph_.outputs.push_back(defined_value(line));
      while (line.accept(','));
    }
    if (!line.done()) line.fail(kSyntax, "expected ',' or the end of the line", line.at());
    returned_ = true;
  }

  void parse_node(Line& line) {
    const std::size_t begin = line.at();
    const std::string_view written = value_name(line);
    if (names_.contains(written)) line.fail(kUnknownName, fmt::format("%{} is defined twice", written), begin);
    line.expect('=');
    GraphNode node;
    node.record = static_cast<std::uint32_t>(graph_.nodes.size());
    const std::size_t op_column = line.at();
    const std::string_view op = line.op_name();
    const auto known = op_from_name(op);
    if (!known) line.fail(kUnknownName, unknown_op_text(op), op_column);
    if (family(*known) == Family::composite)
      line.fail(kUnknownName, fmt::format("'{}' is a composite op, which is never in a graph", op), op_column);
    node.op = *known;
    const std::vector<Argument> arguments = parse_arguments(line);
    parse_attributes(line, node, op_column);
    line.expect(':');
    const std::size_t type_column = line.at();
    parse_type(line, node);
    if (!line.peek('@') && !line.done()) line.fail(kSyntax, "expected '@' or the end of the line", line.at());
    take_arguments(line, node, arguments, op_column);
    parse_subgraphs(line, node, op_column);
    check_type(line, node, op_column, type_column);
    names_.emplace(written, static_cast<ValueId>(graph_.nodes.size()));
    graph_.nodes.push_back(std::move(node));
  }

  std::vector<Argument> parse_arguments(Line& line) {
    std::vector<Argument> arguments;
    if (!line.accept('(') || line.accept(')')) return arguments;
    do {
      const std::size_t column = line.at();
      if (line.peek('%'))
        arguments.push_back({"", column, true, defined_value(line)});
      else
        arguments.push_back({line.word("a value or a number", true), column, false, kNoValue});
    } while (line.accept(','));
    line.expect(')');
    return arguments;
  }

  void parse_attributes(Line& line, GraphNode& node, std::size_t op_column) {
    const auto fields = traits(node.op).fields;
    std::vector<std::vector<std::int64_t>> values(fields.size());
    std::vector<bool> given(fields.size(), false);
    if (line.accept('{') && !line.accept('}')) {
      do {
        const std::size_t column = line.at();
        const std::string_view written = line.word("the name of an attribute");
        line.expect('=');
        if (node.op == Op::input && (written == "dense" || written == "unit_inner" || written == "unit_axis")) {
          if (depth_ > 0) line.fail(kWrongArgument, "only inputs of the whole program have a layout", column);
          if (written == "unit_axis") {
            const std::int64_t axis = line.integer();
            if (axis < 0 || axis >= static_cast<std::int64_t>(kMaxRank))
              line.fail(kWrongArgument, fmt::format("there is no axis {}", axis), column);
            node.unit_axis = static_cast<int>(axis);
            continue;
          }
          (written == "dense" ? node.dense : node.unit_inner) = parse_boolean(line);
          continue;
        }
        const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.name == written; });
        if (field == fields.end())
          line.fail(kUnknownName, fmt::format("{} has no attribute '{}'", name(node.op), written), column);
        const auto index = static_cast<std::size_t>(field - fields.begin());
        values[index] = parse_attribute(line, field->kind);
        given[index] = true;
      } while (line.accept(','));
      line.expect('}');
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (!given[i])
        line.fail(kWrongArgument, fmt::format("{} needs the attribute '{}'", name(node.op), fields[i].name), op_column);
      const bool pair = i > 0 && fields[i].kind == AttributeKind::list && fields[i - 1].kind == AttributeKind::list;
      if (pair && values[i].size() != values[i - 1].size())
        line.fail(kWrongArgument, fmt::format("'{}' and '{}' differ in length", fields[i - 1].name, fields[i].name),
                  op_column);
      node.attributes.insert(node.attributes.end(), values[i].begin(), values[i].end());
    }
  }

  void parse_subgraphs(const Line& node_line, GraphNode& node, std::size_t op_column) {
    const std::span<const std::string_view> names = traits(node.op).subgraphs;
    if (names.empty()) return;
    if (depth_ == kDeepest)
      node_line.fail(kWrongArgument, fmt::format("functions are nested deeper than {}", kDeepest), op_column);
    std::vector<std::unique_ptr<const Subgraph>> functions;
    for (const std::string_view wanted : names) {
      Line line = lines_.expect(fmt::format("'{}:', a function of {}", wanted, name(node.op)));
      if (line.peek('%') || line.word("the name of a function") != wanted || !line.accept(':') || !line.done())
        line.fail(kSyntax, fmt::format("expected '{}:', a function of {}", wanted, name(node.op)), 0);
      functions.push_back(make_subgraph(Parser(lines_, depth_ + 1).parse()));
    }
    node.subgraphs = std::make_shared<const Subgraphs>(std::move(functions));
  }

  static bool parse_boolean(Line& line) {
    const std::size_t column = line.at();
    const std::string_view text = line.word("true or false");
    if (text != "true" && text != "false") line.fail(kSyntax, "expected true or false", column);
    return text == "true";
  }

  static std::vector<std::int64_t> parse_attribute(Line& line, AttributeKind kind) {
    const std::size_t column = line.at();
    switch (kind) {
      case AttributeKind::axis:
      case AttributeKind::integer: return {line.integer()};
      case AttributeKind::boolean: return {parse_boolean(line) ? 1 : 0};
      case AttributeKind::list: return line.integers();
      case AttributeKind::axes: break;
    }
    std::int64_t mask = 0;
    for (const std::int64_t axis : line.integers()) {
      if (axis < 0 || axis >= static_cast<std::int64_t>(kMaxRank) || (mask >> axis & 1) != 0)
        line.fail(kWrongArgument, fmt::format("axis {} is out of range or named twice", axis), column);
      mask |= std::int64_t{1} << axis;
    }
    return {mask};
  }

  static void parse_type(Line& line, GraphNode& node) {
    const std::size_t column = line.at();
    const std::string_view written = line.word("a dtype such as f32");
    const auto dtype = dtype_from_name(written);
    if (!dtype) line.fail(kUnknownName, fmt::format("unknown dtype '{}'", written), column);
    node.dtype = *dtype;
    const std::size_t shape_column = line.at();
    const std::vector<std::int64_t> sizes = line.integers();
    if (sizes.size() > kMaxRank) line.fail(kWrongType, fmt::format("more than {} axes", kMaxRank), shape_column);
    node.shape = Shape(sizes);
  }

  /// Of an op whose number of arguments differs from call to call.
  static std::size_t least_arguments(Op op) {
    const OpTraits& about = traits(op);
    if (!about.operands.empty() && !about.takes_any_operands) return about.least_operands;
    return about.subgraphs.empty() ? 1 : 0;
  }

  static void check_arguments(const Line& line, const GraphNode& node, const std::vector<Argument>& arguments,
                              std::size_t column) {
    const int declared = info(node.op).operands;
    const std::size_t scalars = scalar_argument_count(node.op);
    const std::size_t wanted = declared < 0 ? std::max(arguments.size(), least_arguments(node.op))
                                            : static_cast<std::size_t>(declared) + scalars;
    if (arguments.size() != wanted)
      line.fail(kWrongArgument,
                fmt::format("{} takes {} argument{}, not {}", name(node.op), wanted, wanted == 1 ? "" : "s",
                            arguments.size()),
                column);
    const auto is_value = [](const Argument& argument) { return argument.is_value; };
    for (const Argument& argument : arguments) {
      if (argument.is_value && scalars > 0)
        line.fail(kWrongArgument, fmt::format("{} takes numbers only", name(node.op)), argument.column);
      if (!argument.is_value && scalars == 0 && !is_pointwise(node.op))
        line.fail(kWrongArgument, fmt::format("{} takes tensors only", name(node.op)), argument.column);
    }
    if (is_pointwise(node.op) && std::none_of(arguments.begin(), arguments.end(), is_value))
      line.fail(kWrongArgument, "at least one argument must be a tensor", column);
    if (node.op == Op::where && !arguments[0].is_value)
      line.fail(kWrongArgument, "the condition must be a tensor", arguments[0].column);
  }

  /// Values become operands; numbers become scalars, whose dtype is known only now.
  void take_arguments(const Line& line, GraphNode& node, const std::vector<Argument>& arguments,
                      std::size_t column) const {
    check_arguments(line, node, arguments, column);
    std::uint16_t next_scalar = 0;
    for (const Argument& argument : arguments) {
      if (argument.is_value)
        node.operands.push_back({argument.value, 0});
      else if (is_pointwise(node.op))
        node.operands.push_back({kNoValue, next_scalar++});
    }
    const DType dtype = scalar_dtype(operand_dtype(graph_, node));
    for (const Argument& argument : arguments) {
      if (argument.is_value) continue;
      const auto bits = scalar_from_text(dtype, argument.text);
      if (!bits)
        line.fail(kWrongArgument, fmt::format("'{}' is not a number of dtype {}", argument.text, name(dtype)),
                  argument.column);
      node.scalars.push_back(*bits);
    }
  }

  void check_type(const Line& line, const GraphNode& node, std::size_t op_column, std::size_t type_column) const {
    std::vector<TensorType> operands;
    for (const GraphOperand& operand : node.operands)
      if (!operand.is_scalar())
        operands.push_back({graph_.nodes[operand.value].dtype, graph_.nodes[operand.value].shape});
    const TensorType written{node.dtype, node.shape};
    TensorType inferred;
    try {
      inferred = infer(node.op, operands, node.attributes, written, {}, node.subgraphs.get());
    } catch (const Error& error) {
      const std::string_view text = error.what();
      line.fail(kWrongType, text.substr(0, text.find('\n')), op_column);
    }
    if (inferred != written)
      line.fail(kWrongType, fmt::format("this is {}", to_string(inferred.dtype, inferred.shape)), type_column);
  }

  Lines& lines_;
  int depth_;
  Graph graph_;
  std::map<std::string_view, ValueId> names_;
  bool returned_ = false;
};

}  // namespace

Graph parse_graph(std::string_view text) {
  Lines lines(text);
  Graph graph = Parser(lines, 0).parse();
  if (const auto more = lines.next()) more->fail(kSyntax, "unexpected text after the return", more->at());
  return graph;
}

}  // namespace fermata
