// A non-owning reference to a callable: two pointers, no allocation. It must not outlive the callable.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace fermata {

template <class Signature> class FunctionRef;

template <class R, class... Args> class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...> &&
           !std::is_function_v<std::remove_reference_t<F>>)
      FunctionRef(F&& f)  // NOLINT: implicit, so that a lambda can be passed where one is taken
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  // A function is called by its address: POSIX lets an object pointer hold it.
  template <class F>
  requires(std::is_function_v<F>&& std::is_invocable_r_v<R, F&, Args...>) FunctionRef(F& f)  // NOLINT
      : object_(reinterpret_cast<void*>(&f)), call_([](void* object, Args... args) -> R {
          return (*reinterpret_cast<F*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace fermata
