// The ADInplaceOrView key: operators that write an argument.
//
// Values never change, so a kernel that writes is given a copy of its own; the identity then takes that value over,
// which moves its version and is what every view of it sees. Operators that write nothing pass the key over.
#include "dispatch/kernel_table.h"
#include "fermata/ops.h"
#include "frontend/engine/alias.h"
#include "frontend/transforms/autograd/autograd.h"
#include "ir/error.h"

namespace fermata {
namespace {

void write_boxed(const Call& call, Stack& stack) {
  const Schema& schema = *call.entry.schema.load(std::memory_order_acquire);
  std::vector<std::pair<std::string, Tensor>> targets;  // by the letter of their alias
  std::vector<Tensor> written;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (!schema.arguments[i].alias.write || !stack[i].is<Tensor>() || !stack[i].as<Tensor>().defined()) continue;
    const Tensor target = stack[i].as<Tensor>();
    const KeyGuard no_history({}, Functionality::autograd);
    stack[i] = written.emplace_back(copy(target, call.where));
    targets.emplace_back(schema.arguments[i].alias.set, target);
  }
  redispatch_boxed(call, Functionality::ad_inplace_or_view, stack);
  for (std::size_t i = 0; i < targets.size(); ++i) write(targets[i].second, written[i], call.where);
  for (std::size_t i = 0; i < schema.results.size() && i < stack.size(); ++i)
    for (const auto& [set, target] : targets)
      if (!set.empty() && schema.results[i].alias.set == set) stack[i] = target;
}

}  // namespace

void register_inplace_kernels() {
  register_fallback({.boxed = &write_boxed,
                     .where = std::source_location::current(),
                     .key = RegistrationKey::everywhere(Functionality::ad_inplace_or_view),
                     .applies = [](const Schema* schema) { return schema != nullptr && schema->writes(); }})
      .keep();
}

}  // namespace fermata
