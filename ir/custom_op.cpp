// See custom_op.h. Read without a lock, written under one.
#include "ir/custom_op.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "ir/error.h"
#include "ir/fork.h"
#include "ir/keep_forever.h"

namespace fermata {
namespace {

/// One definition: immutable but for the formulas, which are recorded when they are first asked for. Kept for ever,
/// since somebody may be reading it while the operator is defined anew.
struct Definition {
  explicit Definition(CustomOp given) : op(std::move(given)) {
    const auto operands = op.family == Family::external ? -1 : static_cast<int>(op.family) + 1;
    info = {op.name, op.family, op.rule, static_cast<std::int8_t>(operands), "", op.doc};
  }
  CustomOp op;
  OpInfo info;
  ForkSafeMutex mutex;
  std::array<std::unique_ptr<const Formula>, kDTypeCount> formulas;
};

struct Registry {
  ForkSafeMutex mutex;
  std::unordered_map<std::string, Op> by_name;
  std::array<std::atomic<Definition*>, kMaxExternalOps> definitions{};
  std::atomic<std::size_t> count{0};
};
Registry& registry() {
  static auto* r = new Registry;  // outlives every static tensor
  return *r;
}

Definition& definition(Op op) {
  return *registry().definitions[static_cast<std::size_t>(op) - kOpCount].load(std::memory_order_acquire);
}

}  // namespace

constinit std::array<OpState, kOpCount + kMaxExternalOps> op_states{};

Op define_external_op(CustomOp op) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const std::size_t count = r.count.load(std::memory_order_relaxed);
  const auto [at, fresh] = r.by_name.try_emplace(op.name, static_cast<Op>(kOpCount + count));
  if (fresh && count == kMaxExternalOps) {
    r.by_name.erase(at);
    throw_internal("too many custom operators");
  }
  const Op value = at->second;
  auto& slot = r.definitions[static_cast<std::size_t>(value) - kOpCount];
  slot.store(keep_forever<Definition>(std::move(op)), std::memory_order_release);
  if (!fresh) renew_op(value);
  if (fresh) r.count.store(count + 1, std::memory_order_release);
  return value;
}

std::string_view name(Effect effect) {
  constexpr std::string_view kNames[] = {"pure", "random", "effect"};
  return kNames[static_cast<std::size_t>(effect)];
}

const OpInfo& external_info(Op op) { return definition(op).info; }

const Formula& external_formula(Op op, DType compute) {
  Definition& d = definition(op);
  const std::lock_guard lock(d.mutex);
  auto& made = d.formulas[static_cast<std::size_t>(compute)];
  if (made == nullptr) made = std::make_unique<const Formula>(d.op.formula(compute));
  return *made;
}

TensorType infer_external(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                          std::source_location where) {
  const Definition& d = definition(op);
  if (!d.op.infer) throw_internal(d.op.name + ": has no rule for the type of its result", where);
  return d.op.infer(operands, attributes, where);
}

std::optional<Op> external_op_from_name(std::string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.by_name.find(std::string(name));
  if (found == r.by_name.end()) return std::nullopt;
  return found->second;
}

}  // namespace fermata
