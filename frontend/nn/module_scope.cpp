// The names of modules, and the scopes of their forward(). See fermata/nn/module.h.
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "fermata/nn/module.h"

namespace fermata::nn {

void Named::named(const std::string& path) const {
  const std::string* const now = name_.load(std::memory_order_relaxed);
  if (path.empty() || (now != nullptr && *now == path)) return;  // the model itself is in nobody's scope
  name_.store(fermata::detail::keep_scope_name(path), std::memory_order_relaxed);
}

constinit thread_local const std::string* ModuleScope::innermost_ = nullptr;

void ModuleScope::enter(const std::string& name) {
  struct Known {
    const std::string *outer = nullptr, *module = nullptr, *name = nullptr, *scope = nullptr;
  };
  static thread_local const auto known = std::make_unique<std::array<Known, 64>>();
  const auto hash = (reinterpret_cast<std::uintptr_t>(&name) >> 5) ^ (reinterpret_cast<std::uintptr_t>(outer_) >> 4);
  Known& slot = (*known)[hash % known->size()];
  if (slot.name != &name || slot.outer != outer_ || slot.module != outer_module_) {
    std::string_view own = name;
    if (outer_module_ != nullptr && own.size() > outer_module_->size() && own.starts_with(*outer_module_) &&
        own[outer_module_->size()] == '.')
      own.remove_prefix(outer_module_->size() + 1);
    std::string path(outer_ == nullptr ? "" : *outer_ + ".");
    path += own;
    slot = {outer_, outer_module_, &name, fermata::detail::keep_scope_name(std::move(path))};
  }
  fermata::detail::scope = slot.scope, innermost_ = &name;
}

}  // namespace fermata::nn
