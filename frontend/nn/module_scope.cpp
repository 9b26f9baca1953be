// The names of modules, and the scopes of their forward(). See fermata/nn/module.h.
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "fermata/nn/module.h"

#include "ir/per_thread.h"

namespace fermata::nn {

void Named::named(const std::string& path) const {
  const std::string* const now = name_.load(std::memory_order_relaxed);
  if (path.empty() || (now != nullptr && *now == path)) return;  // the model itself has no scope
  name_.store(fermata::detail::keep_scope_name(path), std::memory_order_relaxed);
}

void ModuleScope::enter(const std::string& name) {
  struct Known {
    const std::string *outer = nullptr, *module = nullptr, *name = nullptr, *scope = nullptr;
  };
  static constinit thread_local PerThread<std::array<Known, 64>> known_of_thread;
  std::array<Known, 64>& known = known_of_thread.get();
  const auto hash =
      (reinterpret_cast<std::uintptr_t>(&name) >> 5) ^ (reinterpret_cast<std::uintptr_t>(outer_.scope) >> 4);
  Known& slot = known[hash % known.size()];
  if (slot.name != &name || slot.outer != outer_.scope || slot.module != outer_.module) {
    std::string_view own = name;
    const std::string* const around = outer_.module;
    if (around != nullptr && own.size() > around->size() && own.starts_with(*around) && own[around->size()] == '.')
      own.remove_prefix(around->size() + 1);
    std::string path(outer_.scope == nullptr ? "" : *outer_.scope + ".");
    path += own;
    slot = {outer_.scope, outer_.module, &name, fermata::detail::keep_scope_name(std::move(path))};
  }
  is_heard_ = fermata::detail::enter_scope(slot.scope), fermata::detail::module_path = &name;
}

}  // namespace fermata::nn
