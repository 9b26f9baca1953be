// See walk.h.
#include "runtime/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/reduction_class.h"
#include "ir/view.h"
#include "runtime/distributed_value.h"

namespace fermata {
namespace {

using std::memory_order_relaxed;

std::uint32_t words(std::uint32_t low, std::uint32_t high) { return low | high << 16; }
/// Of a head: the generation of the op follows.
constexpr std::uint32_t kIsRenewed = 1u << 15;
static_assert(kOpCount + kMaxExternalOps < kIsRenewed);
std::uint32_t head(const Node& n, Op op) {
  return static_cast<std::uint32_t>(op) | static_cast<std::uint32_t>(n.dtype) << 16 |
         static_cast<std::uint32_t>(n.rank) << 24;
}

/// A value that is worth keeping for the backward pass although only autograd asks for it: recomputing it would take
/// another pass over more data than it holds.
bool worth_keeping(Op op) { return traits(op).cost == Cost::more; }

/// A value that is kept for the backward pass whatever it costs to compute again: it stays in a cache, and a walk
/// through what it is made of takes longer than storing it.
bool is_small(const Node& n) {
  constexpr std::int64_t kMostElements = 4096;
  return n.rank <= Node::kInlineRank && element_count(n.sizes()) <= kMostElements;
}

const Node* source_of_views(const Node* n) {
  while (n->pending() && is_view(n->op)) n = n->operand(0);
  return n;
}

/// A view that repeats the elements of a much smaller value. That a handle names it is no reason to write it out.
bool is_vast_view(const Node& n) {
  if (!is_view(n.op)) [[likely]]
    return false;
  const std::int64_t elements = element_count(n.sizes());
  return elements >= kVastView && element_count(source_of_views(&n)->sizes()) <= elements / 2;
}

/// The part of the key that describes a node, except its operands.
enum class Head : std::uint8_t { more, plain };
/// By op: plain where there are as many operands as the op says, and no numbers that decide which code is right. Until
/// this is filled in, all take the longer way.
const std::array<Head, kOpCount> kHeads = [] {
  std::array<Head, kOpCount> heads{};
  for (std::size_t op = 0; op < kOpCount; ++op) {
    const OpInfo& about = info(static_cast<Op>(op));
    const bool has_number = about.operands < 0 || about.family == Family::reduce || is_view(static_cast<Op>(op));
    heads[op] = has_number ? Head::more : Head::plain;
  }
  return heads;
}();

}  // namespace

/// For a node that is listed, but another walk has overwritten its hint since.
std::uint32_t Walk::search(const Node* n) const {
  for (std::uint32_t i = 0; i < order.size(); ++i)
    if (order[i].node == n) return i;
  return kUnseen;
}

inline void Walk::add(Node* n, Storage* storage) {
  n->hint.store(static_cast<std::uint32_t>(order.size()), memory_order_relaxed);
  first_operand.push_back(static_cast<std::uint32_t>(operands.size()));
  order.push_back({n, storage, 0, false, false});
}

void Walk::add_leaf(Node* n, Storage* storage) {
  const bool dense = n->is_dense_leaf();
  bool unit = true;
  std::uint32_t across = 0;  // the axis of neighbors, if that is another one, and 1
  if (!dense && n->rank > 0) {
    unit = n->extra->strides[n->rank - 1u] == 1;
    if (!unit) across = static_cast<std::uint32_t>(last_unit_axis(n->extra->strides) + 1);
  }
  std::uint32_t* const words = key.extend(2);
  words[0] = head(*n, Op::input);
  const bool single = ends_in_single_elements(n->sizes());
  note_sizes(ends_in_short_rows(n->sizes()) ? 2u : 1u);
  words[1] = (dense ? 1u : 0u) | (unit ? 2u : 0u) | (single ? 4u : 0u) | across << 3 |
             static_cast<std::uint32_t>(n->backend) << 8;
  static_assert(kMaxRank < 32);
  add(n, storage);
}

inline void Walk::add_operands(const Node& n, std::uint32_t* in_key, std::size_t count) {
  std::uint32_t* const listed = operands.extend(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t in = kScalarOperand;
    if (const Node* operand = n.operand(i)) ++order[in = find(operand)].uses;
    in_key[i] = listed[i] = in;
  }
}

void Walk::add_pending(Node* n) {
  // The op says how many words follow, so that no two graphs have one key; where it does not, the count does.
  if (n->extra == nullptr && !is_external(n->op) && kHeads[static_cast<std::size_t>(n->op)] == Head::plain &&
      n->arity <= 2 && op_generation(n->op) == 0) [[likely]] {
    add(n, nullptr);
    std::uint32_t* const words = key.extend(2u + n->arity);
    words[0] = head(*n, n->op), words[1] = fermata::words(n->stretched[0], n->stretched[1]);
    return add_operands(*n, words + 2, n->arity);
  }
  add_other(n);
}

[[gnu::noinline]] void Walk::add_other(Node* n) {
  const std::size_t count = n->operand_count();
  const OpInfo& op = info(n->op);
  const std::uint32_t generation = op_generation(n->op);
  key.push_back(head(*n, n->op) | (generation != 0 ? kIsRenewed : 0u));
  if (generation != 0) key.push_back(generation);
  if (op.operands < 0) key.push_back(static_cast<std::uint32_t>(count));
  key.push_back(words(n->stretched[0], n->stretched[1]));
  if (op.family == Family::reduce) {
    key.push_back(static_cast<std::uint32_t>(n->scalar));
    const Node& operand = *n->operand(0);
    if (source_of_views(&operand)->storage.load() != nullptr) note_sizes(reduction_class(operand.sizes(), n->scalar));
  } else if (n->arity > 2) {
    key.push_back(n->stretched[2]);
  }
  if (is_boxed(n->op)) has_boxed = true, key.push_back(n->extra != nullptr ? n->extra->context : 0);
  if (!is_boxed(n->op) && traits(n->op).effect != Effect::pure) has_effects = true;
  if (records_single_elements(n->op)) key.push_back(ends_in_single_elements(n->sizes()) ? 1 : 0);
  if (n->extra != nullptr && !n->extra->attributes.empty())  // those of reductions are in `scalar`
    each_structural_word(traits(n->op), n->extra->attributes, [&](std::uint32_t word) { key.push_back(word); });
  add(n, nullptr);
  add_operands(*n, key.extend(count), count);
}

void Walk::add_outputs(bool roots_only) {
  key.push_back(kOutputs - static_cast<std::uint32_t>(backend));  // graphs without leaves have no other word for it
  const std::size_t key_begin = key.size();
  bool recomputes = false, leaves_views = false;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const Node* n = order[i].node;
    if (order[i].storage != nullptr) continue;
    bool wanted = order[i].is_root;
    if (!wanted && !roots_only) {
      const std::uint64_t refs = n->refs.load(memory_order_relaxed);
      const std::uint64_t tensors = refs >> 32, tape = n->tape.load(memory_order_relaxed);
      const std::uint64_t edges = refs & 0xffffffffu;
      wanted = tensors > 0 || edges > order[i].uses + tape || (tape > 0 && (worth_keeping(n->op) || is_small(*n)));
      recomputes = recomputes || (!wanted && tape > 0);
      if (wanted && is_vast_view(*n)) wanted = false, leaves_views = true;
    }
    if (wanted && !roots_only && is_view(n->op) && add_view(i)) continue;
    if (wanted) outputs.push_back(i), key.push_back(i);
  }
  if (recomputes) add_recompute_inputs(key_begin);
  if (leaves_views) add_sources_of_views(key_begin);
}

/// Lists a view if what it is a view of has a buffer, which it can show as it is. False if it has to be computed.
bool Walk::add_view(std::uint32_t number) {
  if (has_distributed || has_boxed) return false;  // what is divided among processes is not in one buffer
  chain_.clear();
  const ShownView* below = nullptr;
  std::uint32_t at = number;
  while (order[at].storage == nullptr && is_view(order[at].node->op)) {
    const auto known = std::ranges::lower_bound(views, at, {}, &ShownView::view);
    if (known != views.end() && known->view == at) {
      below = &*known;
      break;
    }
    chain_.push_back(at), at = operands[first_operand[at]];
  }
  const Node& first = *order[at].node;
  ShownView shown{.view = number, .source = at, .strides = dense_strides(first.sizes()), .offset = 0};
  Shape sizes(first.sizes());
  if (below != nullptr) {
    shown.source = below->source, shown.strides = below->strides, shown.offset = below->offset;
  } else if (const Storage* const storage = order[at].storage; storage == nullptr) {
    if (!std::ranges::binary_search(outputs, at)) return false;
  } else if (storage->data == nullptr) {
    return false;
  } else if (!first.is_dense_leaf()) {
    shown.strides = first.extra->strides, shown.offset = first.extra->offset;
  }
  for (std::size_t i = chain_.size(); i-- > 0;) {
    const Node& n = *order[chain_[i]].node;
    if (!apply_view(n.op, n.stored_attributes(), Shape(n.sizes()), sizes, shown.strides, shown.offset)) return false;
  }
  const bool is_dense_value = shown.offset == 0 && is_dense(sizes, shown.strides);
  if (!is_dense_value && order[number].node->extra == nullptr) return false;
  views.push_back(std::move(shown));
  return true;
}

/// Views that stay pending are derived later from values that exist by then.
void Walk::add_sources_of_views(std::size_t key_begin) {
  for (const Entry& entry : order) {
    if (entry.storage != nullptr || !is_vast_view(*entry.node)) continue;
    const std::uint32_t source = search(source_of_views(entry.node));
    if (source != kUnseen && order[source].storage == nullptr) outputs.push_back(source);
  }
  std::ranges::sort(outputs);
  outputs.erase(std::ranges::unique(outputs).begin(), outputs.end());
  key.shrink(key_begin);
  for (const std::uint32_t i : outputs) key.push_back(i);
}

/// Values that the tape asks for and that are not kept are computed again later. So that this does not compute a
/// product again, or through a long chain the whole graph, the costly values that they are made of are kept.
void Walk::add_recompute_inputs(std::size_t key_begin) {
  enum : std::uint8_t { kKept = 1, kRead = 2 };
  std::vector<std::uint8_t> state(order.size());
  for (const std::uint32_t i : outputs) state[i] = kKept;
  for (std::size_t i = order.size(); i-- > 0;) {
    const Node* n = order[i].node;
    if (order[i].storage != nullptr || (state[i] & kKept) != 0) continue;
    if ((state[i] & kRead) == 0 && n->tape.load(memory_order_relaxed) == 0) continue;
    if (worth_keeping(n->op)) {
      state[i] = kKept;
      continue;
    }
    for (std::size_t k = 0; k < n->operand_count(); ++k)
      if (const std::uint32_t in = operands[first_operand[i] + k]; in != kScalarOperand) state[in] |= kRead;
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i].is_kept = order[i].storage != nullptr && (state[i] & kRead) != 0;
  outputs.clear(), key.shrink(key_begin);
  for (std::uint32_t i = 0; i < order.size(); ++i)
    if ((state[i] & kKept) != 0) outputs.push_back(i), key.push_back(i);
}

/// What leaves that are pending have for a buffer.
static Storage* const kNowhere = [] {
  Storage* nowhere = Storage::nowhere();
  nowhere->release();  // it is there for ever
  return nowhere;
}();

/// Whether a buffer can be read: false while another thread writes over it.
static bool is_readable(const Storage* storage, const Node& reader) {
  if (storage->data != nullptr) [[likely]]
    return true;
  if (storage->is_overwritten())
    throw OutOfMemoryError(
        3003, format_error(3003, "OutOfMemoryError",
                           fmt::format("{}: an operand was overwritten by a run that then failed", name(reader.op)), {},
                           reader.where, "assign a new value to the tensor that was written in place"));
  return !storage->is_being_overwritten();
}

[[gnu::noinline]] void Walk::note_leaf_without_buffer(const Storage& storage) {
  has_distributed = has_distributed || distributed_value(storage) != nullptr;
}

bool Walk::has_roots_only() const {
  return std::ranges::all_of(outputs, [this](std::uint32_t i) { return order[i].is_root; }) &&
         std::ranges::all_of(views, [this](const ShownView& v) { return order[v.view].is_root; });
}

void Walk::run(std::span<Node* const> roots, bool roots_only, const IsLeaf* is_leaf) {
  while (!find_order(roots, is_leaf)) std::this_thread::yield();
  add_outputs(roots_only);
  key.push_back(sizes_);
}

/// False where another thread writes over a leaf: it is about to publish what comes of it.
bool Walk::find_order(std::span<Node* const> roots, const IsLeaf* is_leaf) {
  order.clear(), key.clear(), outputs.clear(), views.clear(), operands.clear(), first_operand.clear();
  has_boxed = has_effects = has_distributed = false, sizes_ = 0;
  const auto storage_of = [this](const Node* n) {
    if (visits != nullptr) visits->note(n);
    return n->storage.load();
  };
  for (Node* root : roots) {
    if (storage_of(root) != nullptr) continue;
    backend = root->backend;
    stack_.clear(), stack_.push_back({root, false});
    while (!stack_.empty()) {
      const auto [n, operands_listed] = stack_.back();
      stack_.pop_back();
      if (!operands_listed) {
        if (number(n) != kUnseen) continue;  // it was on the stack twice
        const std::size_t here = stack_.size();
        for (std::size_t i = n->operand_count(); i-- > 0;) {
          Node* in = n->operand(i);
          if (in == nullptr || number(in) != kUnseen) continue;
          if (Storage* s = storage_of(in)) {
            if (!is_readable(s, *n)) return false;
            add_leaf(in, s);
            if (s->data == nullptr) [[unlikely]]
              note_leaf_without_buffer(*s);
          } else if (is_leaf != nullptr && (*is_leaf)(in)) {
            add_leaf(in, kNowhere);
          } else {
            if (stack_.size() == here) stack_.push_back({n, true});
            stack_.push_back({in, false});
          }
        }
        if (stack_.size() != here) continue;
      }
      add_pending(n);
    }
    order[find(root)].is_root = true;
  }
  return true;
}

}  // namespace fermata
