// The attributes of each op by name: what the printer writes, the parser reads and the verifier counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ir/op.h"

namespace fermata {

enum class AttributeKind : std::uint8_t { integer, boolean, axes /* a bit mask */, list };
struct AttributeField {
  std::string_view name;
  AttributeKind kind;
};

/// The fields of GraphNode::attributes in order. Lists share what the other fields leave, in equal parts.
std::span<const AttributeField> attribute_fields(Op op);
/// How long each list of an op is where it has `count` attributes in all; nothing if that cannot be.
std::optional<std::size_t> attribute_list_length(Op op, std::size_t count);
/// Ops whose arguments are all scalars: full and the random ops. They have no operands.
std::size_t scalar_argument_count(Op op);

}  // namespace fermata
