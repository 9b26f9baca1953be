// Schemas: the name, arguments and results of an operator, as text.
//
//   my::scale.by(Tensor x, float factor, *, Tensor? bias=None, int[] axes=[], dtype? dtype=None) -> Tensor
//   my::add_(Tensor(a!) x, Tensor y) -> Tensor(a!)
//   my::minmax(Tensor x) -> (Tensor min, Tensor max)
//
//   random my::dropout(Tensor x, float p) -> Tensor
//
// A tag before the name states the effect of calls: `pure` ones may be merged, removed and repeated, `random` ones draw
// numbers, and `effect` is the default (ir/custom_op.h). Arguments after `*` are keyword-only. (a) marks a result as a
// view of the argument with the same letter, (a!) an argument that is written. Defaults are None, True, False, numbers,
// "text", dtypes, and lists of numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/value.h"
#include "ir/custom_op.h"

namespace fermata {

struct AliasInfo {
  std::string set;  // the letter; empty if none
  bool write = false;
  bool operator==(const AliasInfo&) const = default;
};

struct SchemaArgument {
  std::string name;
  ArgType type;
  AliasInfo alias;
  bool keyword_only = false;
  std::optional<Value> default_value;
};

struct SchemaResult {
  std::string name;  // may be empty
  ArgType type;
  AliasInfo alias;
};

struct Schema {
  std::string space, name, overload;  // "my", "scale", "by"
  std::optional<Effect> effect;       // the tag, if any
  std::vector<SchemaArgument> arguments;
  std::vector<SchemaResult> results;
  /// "my::scale.by", the name of the operator.
  std::string qualified_name() const;
  /// Whether an argument is written, or a result is a view of one.
  bool has_alias() const;
  bool writes() const;
};

/// Parses a schema. ParseError FM1511 with a caret for syntax errors; FM1512 for a result that aliases no argument, or
/// a default that does not match its type. A name without `::` has no namespace.
Schema parse_schema(std::string_view text);
std::string to_string(const Schema& schema);

}  // namespace fermata
