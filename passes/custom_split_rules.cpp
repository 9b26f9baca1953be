// See custom_split_rules.h.
#include "passes/custom_split_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/fork.h"

namespace fermata {
namespace {

using Axes = CustomSplitRule::Axes;

struct Rules {
  ForkSafeMutex mutex;
  std::map<Op, std::shared_ptr<const CustomSplitRule>> by_op;
};
Rules& rules() {
  static auto* all = new Rules;
  return *all;
}

std::vector<std::string> words_of(std::string_view text, char separator) {
  std::vector<std::string> words{""};
  for (const char c : text)
    if (c == separator)
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

class Parser {
 public:
  Parser(std::string_view op, std::string_view text, std::source_location where)
      : op_(op), text_(text), where_(where) {}

  CustomSplitRule parse() {
    const std::string_view text = text_.substr(0, text_.find(';'));
    const std::size_t arrow = text.find("->");
    if (arrow == text.npos || text.find("->", arrow + 2) != text.npos) fail("it needs one ->");
    CustomSplitRule rule;
    for (const std::string& operand : words_of(text.substr(0, arrow), ',')) rule.operands.push_back(axes_of(operand));
    rule.result = axes_of(text.substr(arrow + 2));
    if (text.size() < text_.size())
      for (const std::string& part : words_of(text_.substr(text.size() + 1), ',')) add_combined(rule, part);
    check(rule);
    return rule;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(
        7113, format_error(7113, "ValueError", fmt::format("sharding_rule: {}: {}", op_, what),
                           {{"rule", std::string(text_), ""}}, where_, "write it like \"b m k, k n -> b m n; sum k\""));
  }
  Axes axes_of(std::string_view text) const {
    Axes axes;
    for (const std::string& name : words_of(text, ' ')) {
      if (name.empty()) continue;
      if (name == "...") {
        if (axes.has_leading || !axes.names.empty()) fail("... comes first");
        axes.has_leading = true;
        continue;
      }
      if (!std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; }))
        fail(fmt::format("{} is no name of an axis", name));
      if (name != "_" && std::ranges::find(axes.names, name) != axes.names.end())
        fail(fmt::format("{} is named twice in one tensor", name));
      axes.names.push_back(name);
    }
    return axes;
  }
  void add_combined(CustomSplitRule& rule, std::string_view part) const {
    std::vector<std::string> words = words_of(part, ' ');
    std::erase(words, "");
    constexpr CollectiveReduction kAll[] = {CollectiveReduction::sum, CollectiveReduction::max,
                                            CollectiveReduction::min, CollectiveReduction::prod};
    const auto how =
        std::ranges::find_if(kAll, [&](CollectiveReduction r) { return !words.empty() && name(r) == words[0]; });
    if (how == std::end(kAll) || words.size() < 2) fail("after ; comes sum, max, min or prod, and names of axes");
    for (std::size_t i = 1; i < words.size(); ++i) rule.combined.push_back({words[i], *how});
  }
  void check(const CustomSplitRule& rule) const {
    std::set<std::string> given, combined;
    for (const Axes& a : rule.operands) given.insert(a.names.begin(), a.names.end());
    for (const auto& c : rule.combined) combined.insert(c.name);
    const auto is_of_result = [&](const std::string& name) {
      return std::ranges::find(rule.result.names, name) != rule.result.names.end();
    };
    for (const std::string& name : rule.result.names)
      if (name != "_" && !given.contains(name)) fail(fmt::format("{} is an axis of the result alone", name));
    for (const std::string& name : given)
      if (name != "_" && is_of_result(name) == combined.contains(name))
        fail(name + (is_of_result(name) ? " is an axis of the result, and is combined as well"
                                        : " is no axis of the result: say how parts are combined, or write _"));
    for (const std::string& name : combined)
      if (!given.contains(name)) fail(fmt::format("no operand has an axis {}", name));
  }

  std::string_view op_, text_;
  std::source_location where_;
};

/// Where the named axes of a tensor begin; nothing where it has not as many.
std::optional<unsigned> first_named(const Axes& axes, unsigned rank) {
  const auto named = static_cast<unsigned>(axes.names.size());
  if (rank < named || (rank > named && !axes.has_leading)) return std::nullopt;
  return rank - named;
}

}  // namespace

CustomSplitRule parse_split_rule(std::string_view op, std::string_view text, std::source_location where) {
  return Parser(op, text, where).parse();
}

void set_custom_split_rule(Op op, std::shared_ptr<const CustomSplitRule> rule) {
  const std::lock_guard lock(rules().mutex);
  rules().by_op[op] = std::move(rule);
  renew_op(op);
}

std::optional<SplitRule> custom_split_rule(const Graph& graph, const GraphNode& node) {
  std::shared_ptr<const CustomSplitRule> rule;
  {
    const std::lock_guard lock(rules().mutex);
    if (const auto found = rules().by_op.find(node.op); found != rules().by_op.end()) rule = found->second;
  }
  // Operands beyond those of the rule are only waited for.
  if (rule == nullptr || node.operands.size() < rule->operands.size()) return std::nullopt;
  const std::size_t count = node.operands.size();
  const std::optional<unsigned> first = first_named(rule->result, node.shape.rank());
  if (!first) return std::nullopt;
  std::map<std::string, SplitFactor> factors;  // leading axes are named by their distance from the named ones
  const auto factor_of = [&](const std::string& name) -> SplitFactor& {
    SplitFactor& f = factors[name];
    f.operands.resize(count, SplitFactor::kNone);
    return f;
  };
  for (unsigned i = 0; i < node.shape.rank(); ++i) {
    const std::string name = i < *first ? fmt::format("...{}", *first - i) : rule->result.names[i - *first];
    if (name == "_") continue;
    SplitFactor& f = factor_of(name);
    f.result = static_cast<std::int8_t>(i), f.size = node.shape[i];
  }
  for (std::size_t k = 0; k < rule->operands.size(); ++k) {
    const Shape& shape = graph.nodes[node.operands[k].value].shape;
    const std::optional<unsigned> named = first_named(rule->operands[k], shape.rank());
    if (!named) return std::nullopt;
    for (unsigned i = 0; i < shape.rank(); ++i) {
      const std::string name = i < *named ? fmt::format("...{}", *named - i) : rule->operands[k].names[i - *named];
      if (name == "_") continue;
      SplitFactor& f = factor_of(name);
      if (f.size == 0) f.size = shape[i];                                   // of an axis that is combined
      if (shape[i] == f.size) f.operands[k] = static_cast<std::int8_t>(i);  // others are stretched, and needed whole
    }
  }
  SplitRule found;
  found.is_free.resize(count);
  for (std::size_t k = rule->operands.size(); k < count; ++k) found.is_free[k] = true;
  for (auto& [name, f] : factors) {
    for (const auto& c : rule->combined)
      if (c.name == name) f.combine = c.how;
    const bool is_given = std::ranges::any_of(f.operands, [](std::int8_t axis) { return axis != SplitFactor::kNone; });
    if (f.size > 1 && is_given) found.factors.push_back(std::move(f));
  }
  return found;
}

}  // namespace fermata
