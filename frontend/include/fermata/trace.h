// Tracing: runs a function once and records it as a program in the text form of ir/graph.h.
//
// The function runs as if it were called, in either mode. Its C++ control flow runs too, and its decisions are fixed in
// the program. docs/tracing.md explains how captured tensors, in-place writes, random numbers and values read along the
// way are handled.
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

/// A captured tensor: an input of the program with a value.
struct TracedConstant {
  ValueId node;
  Tensor value;
};

/// The meaning of an output of the program.
struct TracedOutput {
  enum class Kind : std::uint8_t {
    result,    // tensor `index` of the function's result
    argument,  // the final value of argument `index`, which it wrote in place
    outside,   // the final value of a captured tensor, which it wrote in place
  };
  Kind kind;
  std::size_t index;  // of a captured tensor: among the constants, or kNoConstant if it was only written
  static constexpr std::size_t kNoConstant = ~std::size_t{0};
};

/// A function as a program.
struct Trace {
  Graph graph;                    // its first inputs are the arguments, the others the constants
  std::vector<Tensor> arguments;  // the values it was traced with
  std::vector<TracedConstant> constants;
  std::vector<TracedOutput> outputs;  // parallel to graph.outputs: results, then written tensors
  std::vector<Tensor> results;        // the function's result
  std::vector<std::string> frozen;    // "item at mlp.cpp:42": values read during tracing, which are fixed
};

/// The program as text that `fermata run` and parse_graph() read, with explanatory comments.
std::string to_string(const Trace& trace);

/// Computes the outputs for arguments of the same dtypes and shapes. Does not write in place.
///
/// Errors   ValueError if arguments do not match.
std::vector<Tensor> run_trace(const Trace& trace, std::span<const Tensor> arguments,
                              Location where = Location::current());

/// Writes the text to `path`, and the constants and arguments next to it as .npy files that the text names, so that
/// `fermata run path` computes what the function did.
///
/// Errors   FileError if a file cannot be written.
void save_trace(const Trace& trace, const std::string& path, Location where = Location::current());

class Tracer;
namespace detail {

/// One run of a function under the Tracer key; implements trace().
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

/// Runs `fn(args...)` once and returns its trace. Arguments are trees (fermata/tensor_tree.h): their tensors become
/// inputs, in order; other values are passed through and fixed in the program. The result is void or a tree.
///
/// Errors   ValueError FM1340 if two arguments are the same value; UnsupportedError FM2711 inside a traced or compiled
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
  detail::TraceRun run(tensors, {});  // a default argument cannot follow args..., so its errors name no line
  std::vector<Tensor> results;
  if constexpr (std::is_void_v<std::invoke_result_t<F&, const A&...>>)
    fn(args...);
  else
    results = defined_tensors_in(fn(args...));
  return run.finish(std::move(results));
}

}  // namespace fermata
