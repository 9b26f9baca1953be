// Schemas: what an operator is called, takes and gives, as text that people write and read.
//
//   my::scale.by(Tensor x, float factor, *, Tensor? bias=None, int[] axes=[], dtype? dtype=None) -> Tensor
//   my::add_(Tensor(a!) x, Tensor y) -> Tensor(a!)
//   my::minmax(Tensor x) -> (Tensor min, Tensor max)
//
//   random my::dropout(Tensor x, float p) -> Tensor
//
// A word before the name says what calls do beside giving results: `pure` ones may be merged, dropped and made again,
// `random` ones draw numbers, `effect` is what an operator has that does not say (ir/custom_op.h). Arguments after
// `*` are keyword-only. (a) says that a result is a view of the argument with the same letter, (a!) that the argument
// is written. Defaults are None, True, False, numbers, "text", dtypes, and lists of numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/value.h"
#include "ir/custom_op.h"

namespace fermata {

struct AliasInfo {
  std::string set;  // the letter; empty where there is none
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
  std::optional<Effect> effect;       // as it was tagged
  std::vector<SchemaArgument> arguments;
  std::vector<SchemaResult> results;
  /// "my::scale.by", the name of the operator.
  std::string qualified_name() const;
  /// Is an argument written, or a result a view of one?
  bool has_alias() const;
  bool writes() const;
};

/// The schema of a text. ParseError FM1511 with a caret where it cannot be read; FM1512 for a result that is an alias
/// of no argument, or a default that does not fit its type. A name without `::` is left without a namespace.
Schema parse_schema(std::string_view text);
std::string to_string(const Schema& schema);

}  // namespace fermata
