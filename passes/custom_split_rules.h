// Split rules of custom operators, as programs declare them in words (fermata/library.h, sharding_rule).
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "passes/split_rules.h"

namespace fermata {

/// Axes by name, in order: those of one name are divided together.
struct CustomSplitRule {
  struct Axes {
    bool has_leading = false;        // "...": any axes before the named ones
    std::vector<std::string> names;  // "_" for one that is needed whole
  };
  struct Combined {
    std::string name;
    CollectiveReduction how;
  };
  std::vector<Axes> operands;
  Axes result;
  std::vector<Combined> combined;
};

/// Reads "b m k, k n -> b m n; sum k". ValueError FM7113 where it cannot be a rule.
CustomSplitRule parse_split_rule(std::string_view op, std::string_view text, std::source_location where);

/// Sets the rule of an operator; null removes it. Programs that are partitioned afterwards use it.
void set_custom_split_rule(Op op, std::shared_ptr<const CustomSplitRule> rule);
/// The rule for a call; nothing where the operator has none, or its tensors have other axes.
std::optional<SplitRule> custom_split_rule(const Graph& graph, const GraphNode& node);

}  // namespace fermata
