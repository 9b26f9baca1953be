// See record_geometry.h.
#include "runtime/record_geometry.h"

namespace fermata {
namespace {

bool is_small(const Node& n) {
  return n.rank <= Node::kInlineRank && (n.extra == nullptr || (!n.extra->strided && n.extra->attributes.empty()));
}

void append_geometry(const Node& n, std::vector<std::int64_t>& to) {
  const auto append = [&](std::span<const std::int64_t> numbers) {
    to.insert(to.end(), numbers.begin(), numbers.end());
  };
  append(n.sizes());
  if (is_small(n)) return;
  to.push_back(static_cast<std::int64_t>(n.extra->attributes.size()));
  append(n.extra->attributes);
  if (!n.extra->strided) return;
  append({n.extra->strides.data(), n.extra->strides.rank()});
  to.push_back(n.extra->offset);
}

/// Whether what append_geometry() would append begins at `known`, which moves on behind it.
bool has_geometry(const Node& n, std::span<const std::int64_t>& known, std::vector<std::int64_t>& scratch) {
  std::span<const std::int64_t> wanted = n.sizes();
  if (!is_small(n)) [[unlikely]]
    scratch.clear(), append_geometry(n, scratch), wanted = scratch;
  if (wanted.size() > known.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != known[i]) return false;
  known = known.subspan(wanted.size());
  return true;
}

}  // namespace

void RecordGeometry::remember(std::span<const Node* const> records) {
  numbers_.clear();
  for (const Node* const n : records) append_geometry(*n, numbers_);
}

bool RecordGeometry::is_that_of(std::span<const Node* const> records) {
  std::span<const std::int64_t> known = numbers_;
  for (const Node* const n : records)
    if (!has_geometry(*n, known, scratch_)) return false;
  return known.empty();
}

}  // namespace fermata
