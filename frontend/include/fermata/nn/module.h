// Modules: structs of tensors and of other modules, with a function `forward`.
//
//   struct Net {
//     fm::nn::Linear hidden{64, 128}, out{128, 10};
//     fm::Tensor forward(const fm::Tensor& x) const { return out(fm::relu(hidden(x))); }
//   };
//
// A module is a tree (fermata/tensor_tree.h), so gradients, vmap, compile and optimizers take it as it is. Its tensors
// are its parameters, unless they are Buffers, and have the names of the members that lead to them: "hidden.weight".
// A copy of a module shares its tensors. docs/modules.md has examples.
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

/// Whether a module trains, which train() and eval() change: what Dropout and norms with running statistics ask. As a
/// Setting it may change between calls of compiled functions.
struct Training {
  Setting on = true;
  operator bool() const { return static_cast<bool>(on); }
};

/// What modules know of their place in a model. Walks over a model (parameters(), train(), files, ...) tell every
/// module in it its name, "blocks.0.up", and what its forward() calls is in the scope of that name (fermata/scope.h). A
/// module of your own takes part by this base, FERMATA_TREE and a ModuleScope.
class Named {
 public:
  Named() = default;
  Named(const Named& other) : name_(other.name_.load(std::memory_order_relaxed)) {}
  Named& operator=(const Named& other) {
    name_.store(other.name_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }
  void named(const std::string& path) const;
  /// Empty as long as nobody has told it.
  std::string_view module_name() const {
    const std::string* const name = name_.load(std::memory_order_relaxed);
    return name == nullptr ? std::string_view() : std::string_view(*name);
  }

 private:
  friend class ModuleScope;
  mutable std::atomic<const std::string*> name_{nullptr};  // kept for the life of the process
};

/// In forward(): while it lives, calls are in the scope of a module, if that knows its name. Names are paths from the
/// model: within the module "blocks.0" one called "blocks.0.up" adds "up" to the scope.
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

/// What looks like a module, and hides its members.
template <class P>
concept IsClosedModule = !std::is_empty_v<P> && requires(P & part, const Tensor& x) {
  part.forward(x);
};

struct NamedPart {
  std::string name;
  Tensor* tensor;
  bool is_buffer;
};
/// The tensors of a module and its flags, wherever they are.
struct Parts {
  std::vector<NamedPart> tensors;
  std::vector<Training*> flags;
};
template <class M> Parts parts_of(const M& module) {
  Parts parts;
  std::string path;
  const auto add = [&]<class P>(const std::string& name, P& part) {
    static_assert(!IsClosedModule<P>, "a module that is no aggregate names its members with FERMATA_TREE");
    if constexpr (std::is_same_v<P, Tensor>)
      parts.tensors.push_back({name, &part, false});
    else if constexpr (std::is_same_v<P, Buffer>)
      parts.tensors.push_back({name, &part.value, true});
    else if constexpr (std::is_same_v<P, Training>)
      parts.flags.push_back(&part);
  };
  // Functions that change a module take it as one that may change.
  fermata::detail::each_named_part<Buffer, Training, fermata::detail::TellNames>(const_cast<M&>(module), path, add);
  return parts;
}

std::vector<std::pair<std::string, Tensor>> named(const Parts& parts, bool buffers);
NamedTensors state_dict(const Parts& parts);
void convert(const Parts& parts, DType dtype, Location where);
void move(const Parts& parts, Device device, Location where);
void mark(const Parts& parts, std::string_view prefix, bool wants_gradient, Location where);

}  // namespace detail

/// The parameters with their names, in the order of the members. Places that are empty are left out.
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
/// Those that want a gradient: not the frozen ones.
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

/// Parameters and buffers by name: the tensors themselves, not copies.
template <class M> NamedTensors state_dict(const M& module) { return detail::state_dict(detail::parts_of(module)); }

struct LoadOptions {
  /// Every tensor of the module has to be there, and nothing else.
  bool strict = true;
  /// The module takes the tensors themselves, as those of a mapped file, instead of their elements. An optimizer that
  /// holds the former parameters then no longer moves these.
  bool assign = false;
};
namespace detail {
void load_state_dict(const Parts& parts, const NamedTensors& state, const LoadOptions& options, Location where);
}  // namespace detail
/// Gives the tensors of a module the elements of those of the same names, in the module's dtypes and on its devices.
///
/// Errors   ValueError FM1380 with all names that are missing or unknown and all shapes that differ; the module is then
///          as it was.
template <class M> void load_state_dict(M& module, const NamedTensors& state, const LoadOptions& options = {},
                                        Location where = Location::current()) {
  detail::load_state_dict(detail::parts_of(module), state, options, where);
}

/// Puts a module and all modules in it into training, or into evaluation.
template <class M> void train(M& module, bool on = true) {
  for (Training* const flag : detail::parts_of(module).flags) flag->on = on;
}
template <class M> void eval(M& module) { train(module, false); }

/// Moves all tensors of a module to a device, or casts its floating tensors. These are other tensors then: optimizers
/// are made afterwards.
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

/// Parameters whose names begin with a prefix, "encoder." or "encoder.blocks.0", want no gradient from now on, or want
/// one again. The empty prefix stands for all.
///
/// Errors   ValueError FM1381 where no name begins so.
template <class M> void freeze(M& module, std::string_view prefix = {}, Location where = Location::current()) {
  detail::mark(detail::parts_of(module), prefix, false, where);
}
template <class M> void unfreeze(M& module, std::string_view prefix = {}, Location where = Location::current()) {
  detail::mark(detail::parts_of(module), prefix, true, where);
}

/// Forgets grad() of every parameter.
template <class M> void zero_grad(const M& module) {
  for (const Tensor& x : parameters(module)) x.zero_grad();
}
/// grad() of every parameter, in the order of parameters(); undefined where there is none.
template <class M> std::vector<Tensor> gradients(const M& module) {
  std::vector<Tensor> all;
  for (const Tensor& x : parameters(module)) all.push_back(x.grad());
  return all;
}

namespace detail {
std::vector<Tensor> stacked(const std::vector<std::vector<Tensor>>& models, Location where);
Tensor cloned(const Tensor& x, Location where);
}  // namespace detail
/// A module of tensors of its own.
template <class M> M clone(const M& module, Location where = Location::current()) {
  M copy = module;
  each_tensor(copy, [&](Tensor& x) {
    if (x.defined()) x = detail::cloned(x, where);
  });
  return copy;
}
/// An ensemble: a module whose tensors are those of several modules, stacked along a new first axis, for vmap.
///
///   auto all = vmap([](const Net& net, const Tensor& x) { return net.forward(x); }, {0, unbatched})(stack(nets), x);
///
/// Errors   ValueError FM1382 unless there are modules, which have the same tensors; ShapeError where shapes differ.
template <class M> M stack(const std::vector<M>& modules, Location where = Location::current()) {
  std::vector<std::vector<Tensor>> tensors;
  for (const M& module : modules) tensors.push_back(defined_tensors_in(module));
  std::vector<Tensor> all = detail::stacked(tensors, where);
  return with_tensors(modules.front(), std::move(all));
}

/// What the modules of this library share: net(x) is net.forward(x).
template <class Self> struct Callable {
  Tensor operator()(const Tensor& x, Location where = Location::current()) const {
    return static_cast<const Self&>(*this).forward(x, where);
  }
};

}  // namespace fermata::nn
