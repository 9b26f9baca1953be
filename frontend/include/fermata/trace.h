// Tracing: running a function once and keeping what it did as a program in the text form of ir/graph.h.
//
// The function runs as if it were called, in either mode, so its C++ control flow runs too and what it decided is
// fixed in the program. docs/tracing.md says what becomes of tensors from outside, writes in place, random numbers and
// values that are read on the way.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/tensor_tree.h"
#include "ir/graph.h"
#include "runtime/tensor.h"

namespace fermata {

/// A tensor that the function used and did not take as an argument: an input of the program with a value.
struct TracedConstant {
  ValueId node;
  Tensor value;
};

/// What an output of the program is.
struct TracedOutput {
  enum class Kind : std::uint8_t {
    result,    // number `index` of what the function returned
    argument,  // the value that it left in argument `index`, which it wrote in place
    outside,   // the value that it left in a tensor from outside
  };
  Kind kind;
  std::size_t index;  // of an outside tensor: among the constants, or kNoConstant if it was only written
  static constexpr std::size_t kNoConstant = ~std::size_t{0};
};

/// A function as a program.
struct Trace {
  Graph graph;                    // its first inputs are the arguments, the others the constants
  std::vector<Tensor> arguments;  // the values that the function was traced with
  std::vector<TracedConstant> constants;
  std::vector<TracedOutput> outputs;  // as graph.outputs: results, then what was written
  std::vector<Tensor> results;        // what the function returned
  std::vector<std::string> frozen;    // "item at mlp.cpp:42": values that were read, on which the program cannot depend
};

/// The program as text that `fermata run` and parse_graph() read; comments say what is what.
std::string to_string(const Trace& trace);

/// Computes the outputs for other arguments of the same dtypes and shapes. Writes nothing in place.
///
/// Errors   ValueError if arguments do not fit.
std::vector<Tensor> run_trace(const Trace& trace, std::span<const Tensor> arguments,
                              Location where = Location::current());

/// Writes the text to `path`, and the constants and arguments beside it as .npy files that the text names, so that
/// `fermata run path` computes what the function did.
///
/// Errors   FileError if a file cannot be written.
void save_trace(const Trace& trace, const std::string& path, Location where = Location::current());

class Tracer;
namespace detail {

/// One run of a function under the Tracer key: what trace() is made of.
class TraceRun {
 public:
  TraceRun(std::span<const Tensor> arguments, Location where);
  ~TraceRun();
  TraceRun(const TraceRun&) = delete;
  TraceRun& operator=(const TraceRun&) = delete;
  Trace finish(std::vector<Tensor> results);

 private:
  std::unique_ptr<Tracer> tracer_;
  std::optional<KeyGuard> keys_;
};

}  // namespace detail

/// Runs `fn(args...)` once and returns what it did. Tensors in the arguments, which are trees (fermata/tensor_tree.h),
/// become inputs, in order; what is beside them is passed on, and is fixed in the program. The result is nothing or a
/// tree.
///
/// Errors   ValueError FM1340 if one value is two arguments; UnsupportedError FM2711 inside a traced or compiled
///          function, FM2712 for sparse, quantized and other wrapper tensors, FM2713 for a write through an argument
///          that is a view, FM2710 for data() inside fn.
template <class F, class... A>
requires std::invocable<F&, const A&...> Trace trace(F&& fn, const A&... args) {
  std::vector<Tensor> tensors;
  (each_tensor(args,
               [&](const Tensor& x) {
                 if (std::is_same_v<A, Tensor> || x.defined()) tensors.push_back(x);
               }),
   ...);
  detail::TraceRun run(tensors, {});  // a default argument cannot follow the arguments: errors of theirs name no line
  std::vector<Tensor> results;
  if constexpr (std::is_void_v<std::invoke_result_t<F&, const A&...>>)
    fn(args...);
  else
    results = defined_tensors_in(fn(args...));
  return run.finish(std::move(results));
}

}  // namespace fermata
