// Modules: structs of tensors and other modules, with a member function `forward`.
//
//   struct Net {
//     fm::nn::Linear hidden{64, 128}, out{128, 10};
//     fm::Tensor forward(const fm::Tensor& x) const { return out(fm::relu(hidden(x))); }
//   };
//
// A module is a tree (fermata/tensor_tree.h), so gradients, vmap, compile and optimizers accept it directly. Its
// tensors are its parameters, except those in a Buffer. They are named by their path of members: "hidden.weight". A
// copy of a module shares its tensors. docs/modules.md has examples.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/member_names.h"
#include "fermata/named_tensors.h"
#include "fermata/scope.h"
#include "fermata/setting.h"
#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata::nn {

/// Training mode of a module, set by train() and eval(); used by Dropout and norms with running statistics. It is a
/// Setting, so it may change between calls of compiled functions.
struct Training {
  Setting on = true;
  operator bool() const { return static_cast<bool>(on); }
};

/// Base of modules that know their name in a model. Functions that traverse a model (parameters(), train(), files, ...)
/// tell every module its name, such as "blocks.0.up"; calls in its forward() then have that scope (fermata/scope.h). A
/// custom module opts in with this base, FERMATA_TREE and a ModuleScope.
class Named {
 public:
  Named() = default;
  Named(const Named& other) : name_(other.name_.load(std::memory_order_relaxed)) {}
  Named& operator=(const Named& other) {
    name_.store(other.name_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }
  void named(const std::string& path) const;
  /// Empty until named() has been called.
  std::string_view module_name() const {
    const std::string* const name = name_.load(std::memory_order_relaxed);
    return name == nullptr ? std::string_view() : std::string_view(*name);
  }

 private:
  friend class ModuleScope;
  mutable std::atomic<const std::string*> name_{nullptr};  // kept for the life of the process
};

/// Used in forward(): puts calls into the scope of a module, if it knows its name. Names are paths from the model:
/// inside module "blocks.0", module "blocks.0.up" adds "up" to the scope.
class ModuleScope {
 public:
  explicit ModuleScope(const Named& module) : outer_(ScopePlace::current()) {
    const std::string* const name = module.name_.load(std::memory_order_relaxed);
    if (name != nullptr) enter(*name);
  }
  ~ModuleScope() {
    fermata::detail::scope = outer_.scope, fermata::detail::module_path = outer_.module;
    if (is_heard_) fermata::detail::end_heard_scope();
  }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  void enter(const std::string& name);

  ScopePlace outer_;
  bool is_heard_ = false;
};

namespace detail {

/// A class that looks like a module but hides its members.
template <class P>
concept IsClosedModule = !std::is_empty_v<P> && requires(P & part, const Tensor& x) {
  part.forward(x);
};

struct NamedPart {
  std::string name;
  Tensor* tensor;
  bool is_buffer;
};
/// The tensors and flags of a module and all modules in it.
struct Parts {
  std::vector<NamedPart> tensors;
  std::vector<Training*> flags;
};
template <class M> Parts parts_of(const M& module) {
  Parts parts;
  std::string path;
  const auto add = [&]<class P>(const std::string& name, P& part) {
    static_assert(!IsClosedModule<P>, "a module that is not an aggregate must name its members with FERMATA_TREE");
    if constexpr (std::is_same_v<P, Tensor>)
      parts.tensors.push_back({name, &part, false});
    else if constexpr (std::is_same_v<P, Buffer>)
      parts.tensors.push_back({name, &part.value, true});
    else if constexpr (std::is_same_v<P, Training>)
      parts.flags.push_back(&part);
  };
  // Safe: functions that modify the module take it by non-const reference.
  fermata::detail::each_named_part<Buffer, Training, fermata::detail::TellNames>(const_cast<M&>(module), path, add);
  return parts;
}

std::vector<std::pair<std::string, Tensor>> named(const Parts& parts, bool buffers);
NamedTensors state_dict(const Parts& parts);
void convert(const Parts& parts, DType dtype, Location where);
void move(const Parts& parts, Device device, Location where);
void mark(const Parts& parts, std::string_view prefix, bool wants_gradient, Location where);

}  // namespace detail

/// Returns the parameters and their names, in member order. Undefined tensors are left out.
template <class M> std::vector<std::pair<std::string, Tensor>> named_parameters(const M& module) {
  return detail::named(detail::parts_of(module), false);
}
template <class M> std::vector<std::pair<std::string, Tensor>> named_buffers(const M& module) {
  return detail::named(detail::parts_of(module), true);
}
template <class M> std::vector<Tensor> parameters(const M& module) {
  std::vector<Tensor> all;
  for (const detail::NamedPart& part : detail::parts_of(module).tensors)
    if (!part.is_buffer && part.tensor->defined()) all.push_back(*part.tensor);
  return all;
}
/// The parameters that require a gradient, that is, are not frozen.
template <class M> std::vector<Tensor> trainable_parameters(const M& module) {
  std::vector<Tensor> all = parameters(module);
  std::erase_if(all, [](const Tensor& x) { return !x.requires_grad(); });
  return all;
}
/// The number of elements of all parameters.
template <class M> std::int64_t parameter_count(const M& module) {
  std::int64_t count = 0;
  for (const Tensor& x : parameters(module)) count += x.element_count();
  return count;
}

/// Returns parameters and buffers by name; the tensors are not copied.
template <class M> NamedTensors state_dict(const M& module) { return detail::state_dict(detail::parts_of(module)); }

struct LoadOptions {
  /// Names must match exactly: none missing, none unknown.
  bool strict = true;
  /// Replaces the module's tensors by the given ones (for example of a mapped file) instead of copying elements. An
  /// optimizer that holds the old parameters then does not update the new ones.
  bool assign = false;
};
namespace detail {
void load_state_dict(const Parts& parts, const NamedTensors& state, const LoadOptions& options, Location where);
}  // namespace detail
/// Copies elements into the tensors of a module by name, converted to the module's dtypes and devices.
///
/// Errors   ValueError FM1380 with all missing or unknown names and all shapes that differ; the module is then
///          unchanged.
template <class M> void load_state_dict(M& module, const NamedTensors& state, const LoadOptions& options = {},
                                        Location where = Location::current()) {
  detail::load_state_dict(detail::parts_of(module), state, options, where);
}

/// Sets training or evaluation mode for a module and all modules in it.
template <class M> void train(M& module, bool on = true) {
  for (Training* const flag : detail::parts_of(module).flags) flag->on = on;
}
template <class M> void eval(M& module) { train(module, false); }

/// Moves all tensors of a module to a device, or casts its floating tensors. This replaces the tensors, so create
/// optimizers afterwards.
template <class M> void to(M& module, Device device, Location where = Location::current()) {
  detail::move(detail::parts_of(module), device, where);
}
template <class M> void to(M& module, DType dtype, Location where = Location::current()) {
  detail::convert(detail::parts_of(module), dtype, where);
}
template <class M> void to(M& module, Device device, DType dtype, Location where = Location::current()) {
  detail::convert(detail::parts_of(module), dtype, where);
  detail::move(detail::parts_of(module), device, where);
}

/// Turns gradients off (freeze) or on (unfreeze) for parameters whose names begin with a prefix, such as "encoder." or
/// "encoder.blocks.0". The empty prefix matches all.
///
/// Errors   ValueError FM1381 if no name has the prefix.
template <class M> void freeze(M& module, std::string_view prefix = {}, Location where = Location::current()) {
  detail::mark(detail::parts_of(module), prefix, false, where);
}
template <class M> void unfreeze(M& module, std::string_view prefix = {}, Location where = Location::current()) {
  detail::mark(detail::parts_of(module), prefix, true, where);
}

/// Clears grad() of every parameter.
template <class M> void zero_grad(const M& module) {
  for (const Tensor& x : parameters(module)) x.zero_grad();
}
/// grad() of every parameter, in the order of parameters(); undefined if there is none.
template <class M> std::vector<Tensor> gradients(const M& module) {
  std::vector<Tensor> all;
  for (const Tensor& x : parameters(module)) all.push_back(x.grad());
  return all;
}

namespace detail {
std::vector<Tensor> stacked(const std::vector<std::vector<Tensor>>& models, Location where);
Tensor cloned(const Tensor& x, Location where);
}  // namespace detail
/// Returns a copy of a module with its own tensors.
template <class M> M clone(const M& module, Location where = Location::current()) {
  M copy = module;
  each_tensor(copy, [&](Tensor& x) {
    if (x.defined()) x = detail::cloned(x, where);
  });
  return copy;
}
/// Builds an ensemble for vmap: a module whose tensors are those of several modules, stacked along a new first axis.
///
///   auto all = vmap([](const Net& net, const Tensor& x) { return net.forward(x); }, {0, unbatched})(stack(nets), x);
///
/// Errors   ValueError FM1382 if there are no modules or their tensors differ in number; ShapeError if shapes differ.
template <class M> M stack(const std::vector<M>& modules, Location where = Location::current()) {
  std::vector<std::vector<Tensor>> tensors;
  for (const M& module : modules) tensors.push_back(defined_tensors_in(module));
  std::vector<Tensor> all = detail::stacked(tensors, where);
  return with_tensors(modules.front(), std::move(all));
}

/// CRTP base that makes net(x) call net.forward(x).
template <class Self> struct Callable {
  Tensor operator()(const Tensor& x, Location where = Location::current()) const {
    return static_cast<const Self&>(*this).forward(x, where);
  }
};

}  // namespace fermata::nn
