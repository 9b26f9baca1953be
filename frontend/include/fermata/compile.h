// compile(fn): captures a function once and replays it without recording.
//
// A replay checks the signature of the arguments (exact sizes, dtypes, strides, host numbers), binds buffers and runs
// the plan. A new signature records fn again, which takes microseconds; kernels do not depend on sizes, so a new size
// compiles nothing. Captured tensors are hidden inputs, bound by identity: a replay uses their current value, and
// repeats fn's in-place writes and its accumulation into grad() of leaves. A Setting is read at every call. Other host
// numbers that fn captures are constants, and changing one is UserError FM1702: the second call of each signature
// records fn again and compares; with FERMATA_CHECK_REPLAY=1 and in debug builds every call does. Reading a value
// inside fn is an error at that line. If a result carries a gradient history, fn is run instead of replayed. Threads
// may replay concurrently. docs/modes.md has the rules.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/setting.h"
#include "fermata/tensor_tree.h"
#include "runtime/function_ref.h"
#include "runtime/tensor.h"

namespace fermata {

/// Sets whether every replay records the function again and compares, as with FERMATA_CHECK_REPLAY=1 and in debug
/// builds. Returns the previous setting.
bool set_check_replay(bool on);

namespace detail {

/// The captures of one compiled function.
class CompiledCore {
 public:
  CompiledCore();
  ~CompiledCore();
  CompiledCore(CompiledCore&&) noexcept;
  CompiledCore& operator=(CompiledCore&&) noexcept;

  /// The result of one run: its tensors, its numbers and text as words, and its tree structure.
  struct Results {
    std::vector<Tensor> tensors;
    std::vector<std::uint64_t> numbers{};
    std::shared_ptr<const void> form{};
  };
  using Body = FunctionRef<Results(std::span<const Tensor> args)>;
  /// Receives the results in place.
  using Deliver = FunctionRef<void(std::span<Tensor> results, const void* form)>;
  /// Runs `body` on placeholders for the arguments once per distinct signature; otherwise replays the capture.
  void call(std::span<const Tensor> args, std::span<const std::uint64_t> numbers, Body body, Deliver deliver,
            Location where);
  /// Distinct signatures captured so far.
  std::size_t captures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class T> inline constexpr bool is_number =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Setting>;
template <class T> inline constexpr bool is_text =
    std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>;

/// Whether a compiled function can take and return a type: trees of tensors, numbers and text only.
template <class T> consteval bool is_plain_tree() {
  if constexpr (std::is_same_v<T, Tensor> || is_number<T> || is_text<T>)
    return true;
  else if constexpr (is_vector<T> || is_optional<T>)
    return is_plain_tree<typename T::value_type>();
  else if constexpr (is_map<T>)
    return (is_number<typename T::key_type> || is_text<typename T::key_type>)&&is_plain_tree<typename T::mapped_type>();
  else if constexpr (is_tuple<T> || is_struct<T>)
    return []<class... M>(std::type_identity<std::tuple<M...>>) {
      return (is_plain_tree<std::remove_cvref_t<M>>() && ...);
    }(std::type_identity<decltype(members(std::declval<T&>()))>{});
  else
    return std::is_empty_v<T>;
}

/// Appends everything in a tree except its tensors as words: numbers, text, list sizes, and which tensors are
/// undefined.
template <class T> void add_words(std::vector<std::uint64_t>& words, const T& value) {
  if constexpr (std::is_same_v<T, Tensor>)
    words.push_back(value.defined() ? 1 : 0);
  else if constexpr (std::is_same_v<T, Setting>)
    words.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
  else if constexpr (std::is_floating_point_v<T>)
    words.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
  else if constexpr (is_number<T>)
    words.push_back(static_cast<std::uint64_t>(value));
  else if constexpr (is_text<T>) {
    words.push_back(value.size());
    for (std::size_t at = 0; at < value.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, value.data() + at, std::min(sizeof word, value.size() - at));
      words.push_back(word);
    }
  } else if constexpr (is_vector<T>) {
    words.push_back(value.size());
    for (const typename T::value_type& x : value) add_words(words, x);
  } else if constexpr (is_optional<T>) {
    words.push_back(value.has_value() ? 1 : 0);
    if (value.has_value()) add_words(words, *value);
  } else if constexpr (is_map<T>) {
    words.push_back(value.size());
    for (const auto& [key, x] : value) add_words(words, key), add_words(words, x);
  } else if constexpr (is_tuple<T> || is_struct<T>) {
    std::apply([&](const auto&... parts) { (add_words(words, parts), ...); }, members(value));
  }
}

/// Returns a copy of a tree whose defined tensors are replaced by the next ones of `tensors`.
template <class T> T refilled(const T& value, std::span<const Tensor> tensors, std::size_t& next) {
  T filled = value;
  each_tensor(filled, [&](Tensor& x) {
    if (x.defined()) x = tensors[next++];
  });
  return filled;
}

/// The tensors and words of a call's arguments. Allocates no memory if all arguments are tensors and numbers.
template <class... A> class CallArguments {
  static constexpr bool kPlain = ((std::is_same_v<A, Tensor> || std::is_arithmetic_v<A>)&&...);
  static constexpr std::size_t kNumbers = (std::size_t{0} + ... + (std::is_same_v<A, Tensor> ? 0 : 1));
  using Tensors = std::conditional_t<kPlain, std::array<Tensor, sizeof...(A) - kNumbers>, std::vector<Tensor>>;
  using Words = std::conditional_t<kPlain, std::array<std::uint64_t, kNumbers>, std::vector<std::uint64_t>>;

 public:
  explicit CallArguments(const A&... args) {
    if constexpr (kPlain) {
      [[maybe_unused]] std::size_t tensor = 0, word = 0;
      [[maybe_unused]] const auto take = [&]<class T>(const T& a) {
        if constexpr (std::is_same_v<T, Tensor>)
          tensors[tensor++] = a;
        else if constexpr (std::is_floating_point_v<T>)
          words[word++] = std::bit_cast<std::uint64_t>(static_cast<double>(a));
        else
          words[word++] = static_cast<std::uint64_t>(a);
      };
      (take(args), ...);
    } else {
      (each_tensor(args,
                   [&](const Tensor& x) {
                     if (x.defined()) tensors.push_back(x);
                   }),
       ...);
      (add_words(words, args), ...);
    }
  }
  Tensors tensors;
  Words words{};
};

}  // namespace detail

/// A compiled function. Arguments and results are trees (fermata/tensor_tree.h) of tensors, numbers, enums and text.
/// A handle: copies share the function and its captures, so it can be stored in a std::function.
template <class F> class CompiledFunction {
 public:
  explicit CompiledFunction(F fn, Location where) : shared_(std::make_shared<Shared>(std::move(fn))), where_(where) {}

  template <class... A> auto operator()(const A&... args) const {
    if constexpr (!(detail::is_plain_tree<A>() && ...)) {
      static_assert(
          (detail::is_plain_tree<A>() && ...),
          "arguments of a compiled function must be tensors, numbers, enums and text, and vectors, arrays, tuples, "
          "pairs, optionals, "
          "maps and structs of those (fermata/tensor_tree.h)");
    } else if constexpr (!std::is_invocable_v<F&, const A&...>) {
      static_assert(std::is_invocable_v<F&, const A&...>, "the compiled function does not take these arguments");
    } else {
      return call<std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>>(args...);
    }
  }
  std::size_t captures() const { return shared_->core.captures(); }

 private:
  template <class R, class... A> R call(const A&... args) const {
    if constexpr (std::is_void_v<R>) {
      const auto body = [&](std::span<const Tensor> placeholders) {
        run(placeholders, args...);
        return detail::CompiledCore::Results{};
      };
      replay(
          body, [](std::span<Tensor>, const void*) {}, args...);
    } else if constexpr (std::is_same_v<R, Tensor>) {
      const auto body = [&](std::span<const Tensor> placeholders) {
        return detail::CompiledCore::Results{{run(placeholders, args...)}};
      };
      Tensor result;
      replay(
          body, [&](std::span<Tensor> values, const void*) { result = std::move(values[0]); }, args...);
      return result;
    } else if constexpr (!detail::is_plain_tree<R>()) {
      static_assert(
          detail::is_plain_tree<R>(),
          "the result of a compiled function must be void, a tensor, a number, an enum or text, or a vector, array, "
          "tuple, pair, optional, map or struct of those (fermata/tensor_tree.h)");
    } else {
      const auto body = [&](std::span<const Tensor> placeholders) {
        R result = run(placeholders, args...);
        detail::CompiledCore::Results out{defined_tensors_in(result)};
        detail::add_words(out.numbers, result);
        out.form = std::make_shared<const detail::TreeForm<R>>(std::move(result));
        return out;
      };
      std::optional<R> result;
      replay(
          body,
          [&](std::span<Tensor> values, const void* form) {
            result.emplace(static_cast<const detail::TreeForm<R>*>(form)->filled(values));
          },
          args...);
      return *std::move(result);
    }
  }
  template <class Body, class Deliver, class... A> void replay(Body&& body, Deliver&& deliver, const A&... args) const {
    const detail::CallArguments<A...> flat(args...);
    shared_->core.call(flat.tensors, flat.words, body, deliver, where_);
  }
  /// Runs the function on other tensors.
  template <class... A> decltype(auto) run([[maybe_unused]] std::span<const Tensor> tensors, const A&... args) const {
    [[maybe_unused]] std::size_t next = 0;
    // Braces: arguments are filled from left to right.
    const std::tuple<A...> filled{detail::refilled(args, tensors, next)...};
    return std::apply(shared_->fn, filled);
  }

  struct Shared {
    explicit Shared(F f) : fn(std::move(f)) {}
    F fn;
    detail::CompiledCore core{};  // its captures
  };
  std::shared_ptr<Shared> shared_;
  Location where_;  // of compile(); a default argument cannot follow args...
};

/// Returns a compiled version of fn. Errors of a call as a whole name the line of compile(); errors of calls inside fn
/// name their own line.
template <class F> CompiledFunction<std::decay_t<F>> compile(F&& fn, Location where = Location::current()) {
  return CompiledFunction<std::decay_t<F>>(std::forward<F>(fn), where);
}

}  // namespace fermata
