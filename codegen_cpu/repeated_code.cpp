// See repeated_code.h.
#include "codegen_cpu/repeated_code.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "codegen_cpu/jit_compiler.h"
#include "ir/error.h"
#include "runtime/background.h"
#include "runtime/thread_pool.h"
#include "runtime/warm_up.h"

namespace fermata {
namespace {

/// Programs differ in what they carry; kernels are rarely those of several.
constexpr std::size_t kMostEntries = 4;
/// A step saves about 80 ns, and compiling takes a few milliseconds.
constexpr std::int64_t kEnoughSteps = std::int64_t{1} << 16;

constexpr JitVariant kWide{.streamed = 0, .wide = true};

/// The program with what is read from an access read from another one.
class Redirected {
 public:
  Redirected(const ScalarProgram& program, std::span<const Carried> carried) : carried_(carried) {
    for (const Instr& instr : program.instrs()) ids_.push_back(made.add(moved(instr)));
  }
  ValueId operator[](ValueId id) const { return id == kNoValue ? kNoValue : ids_[id]; }

  ScalarProgram made;

 private:
  Instr moved(Instr instr) const {
    instr.a = (*this)[instr.a], instr.b = (*this)[instr.b], instr.c = (*this)[instr.c];
    if (instr.prim != Prim::input) return instr;
    for (const Carried& c : carried_)
      if (c.from == instr.index) return instr.index = c.to, instr;
    return instr;
  }

  std::span<const Carried> carried_;
  std::vector<ValueId> ids_;
};

bool is_plain(const Access& access) { return !access.address_only && !access.gathered && !access.guarded; }

}  // namespace

std::optional<Kernel> repeated_kernel(const Kernel& kernel, std::span<const Carried> carried) {
  if (kernel.rank >= kMaxRank || has_positions(kernel)) return std::nullopt;
  for (const Carried& c : carried) {
    const Access &from = kernel.accesses[c.from], &to = kernel.accesses[c.to];
    if (!is_plain(from) || !is_plain(to) || from.dtype != to.dtype || from.half != to.half) return std::nullopt;
    for (const Instr& instr : kernel.program.instrs())
      if (instr.prim == Prim::offset && instr.index == c.from) return std::nullopt;
  }
  Kernel repeated = kernel;
  ++repeated.rank;
  repeated.reduced = static_cast<std::uint16_t>(unsigned{kernel.reduced} << 1u);
  const auto is_carried_to = [&](std::size_t access) {
    return std::ranges::any_of(carried, [&](const Carried& c) { return c.to == access; });
  };
  const auto along_vectors = static_cast<std::uint16_t>(1u << (repeated.rank - 1u));
  for (std::size_t a = 0; a < repeated.accesses.size(); ++a) {
    Access& access = repeated.accesses[a];
    const bool steps = !access.address_only && !is_carried_to(a);
    access.axes = static_cast<std::uint16_t>(unsigned{access.axes} << 1u | (steps ? 1u : 0u));
    if (kernel.reduced != 0 || !is_carried_to(a)) continue;
    // Tiles of what lies across the rows would be read before the steps that write them.
    if ((access.axes & along_vectors) == 0)
      access.axes |= along_vectors, access.unit_stride = true;  // there is one element
    else if (!access.is_in_order() && access.axes != along_vectors)
      return std::nullopt;
  }
  Redirected program(kernel.program, carried);
  for (Reduction& reduction : repeated.reductions)
    for (ValueId& id : reduction.lifted) id = program[id];
  for (Store& store : repeated.stores) store.value = program[store.value];
  repeated.program = std::move(program.made);
  try {
    verify(repeated);  // what is stored may be read again in a later stage
  } catch (const InternalError&) { return std::nullopt; }
  return repeated;
}

const Executable* RepeatedCode::find(const Kernel& kernel, std::span<const Carried> carried, std::int64_t steps) const {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::ranges::find_if(entries_, [&](const auto& entry) { return std::ranges::equal(entry->carried, carried); });
  if (at == entries_.end() && entries_.size() == kMostEntries) return nullptr;
  const bool is_new = at == entries_.end();
  const std::shared_ptr<Entry>& entry = is_new ? entries_.emplace_back(std::make_shared<Entry>()) : *at;
  if (is_new) entry->carried.assign(carried.begin(), carried.end());
  if (const Executable* const ready = entry->ready.load(std::memory_order_acquire)) return ready;
  entry->steps += steps;
  const bool pays = is_warming_up || entry->steps >= kEnoughSteps;
  if (!entry->is_started && (is_new || pays)) start(kernel, entry, pays);
  return entry->ready.load(std::memory_order_acquire);
}

/// From the disk if it is there; else compiled, in the background if there are several threads.
void RepeatedCode::start(const Kernel& kernel, const std::shared_ptr<Entry>& entry, bool may_compile) const {
  std::optional<Kernel> repeated = repeated_kernel(kernel, entry->carried);
  if (!repeated) {
    entry->is_started = true;  // and never done
    return;
  }
  JitCompiler& compiler = JitCompiler::instance();
  const auto made = [name = name_ + "_repeated", target = target_](const Kernel& of_steps) {
    try {
      return executable_from_object(target.empty()
                                        ? JitCompiler::instance().kept_object(of_steps, kWide)
                                        : JitCompiler::instance().object_for(of_steps, nullptr, target, kWide),
                                    name);
    } catch (const std::exception&) { return std::shared_ptr<const Executable>(); }  // it would only have been faster
  };
  if (target_.empty() && !may_compile) {
    try {
      if (const auto object = compiler.found_object(*repeated, kWide))
        entry->is_started = true, entry->keep(executable_from_object(*object, name_ + "_repeated"));
    } catch (const std::exception&) { entry->is_started = true; }
    return;
  }
  if (!may_compile) return;
  entry->is_started = true;
  if (!target_.empty() || thread_count() == 1) return entry->keep(made(*repeated));
  if (!compiler.load()) return;
  run_in_background([entry, made, kernel_of_steps = *std::move(repeated)] { entry->keep(made(kernel_of_steps)); });
}

}  // namespace fermata
