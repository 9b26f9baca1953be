// export_program(): writes a function as a program that runs without a compiler (docs/export.md).
//
//   fm::export_program("model.fermata", {.targets = {fm::Target::avx2, fm::Target::avx512},
//                                        .dynamic = {{.input = "input0", .axis = 0, .name = "batch"}}},
//                      [&](const fm::Tensor& x) { return model.forward(x); }, example);
//
// The file contains a plan, machine code, constants and the names of inputs and outputs. libfermata_run loads it from
// C++ (fermata/program.h) and from C (fermata/run.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/compile.h"
#include "fermata/member_names.h"
#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata {

/// An instruction set to generate machine code for.
enum class Target : std::uint8_t { avx2, avx512 };

/// Devices of CUDA by their compute capability: {9, 0} is sm_90, a Hopper.
struct CudaArchitecture {
  int major = 0, minor = 0;
};

/// An input by its name, or by its number among the inputs.
struct InputName {
  InputName() = default;
  InputName(std::string input) : name(std::move(input)) {}
  InputName(const char* input) : name(input != nullptr ? input : "") {}
  /// So that 0 is the first input and not a null string.
  template <std::integral T> InputName(T input) : number(static_cast<std::int64_t>(input)) {}

  std::string name;
  std::optional<std::int64_t> number;
};

/// An input size that may differ between runs. Axes with the same name have the same size. The default name combines
/// the input and the axis: "input0_axis0".
struct DynamicAxis {
  InputName input;
  unsigned axis = 0;
  std::string name{};
  std::int64_t least = 1, most = std::numeric_limits<std::int32_t>::max(), multiple_of = 1;
};

struct ExportOptions {
  std::vector<Target> targets{};  // none: that of this machine, or of no processor where `cuda` names some
  // Machine code for CUDA devices, beside that for processors: of each architecture, which later ones of the same major
  // version run as well, and PTX of the newest one, which the driver translates for all that are newer still. Made by
  // NVRTC; neither a driver nor a device is needed.
  std::vector<CudaArchitecture> cuda{};
  bool cuda_ptx = true;
  std::vector<DynamicAxis> dynamic{};  // all other sizes are those of the arguments
  // Of the arguments; by default "input0", "input1" and so on. Tensors in a tree have the names of its members behind
  // that: "input0.weight".
  std::vector<std::string> inputs{};
  // Names of the result tensors; by default "output0", "output1" and so on, or the names of the members of a struct.
  std::vector<std::string> outputs{};
};

/// The path of a program, and the source line for errors.
struct ExportPath {
  template <class P>
  requires std::is_constructible_v<std::string, P> ExportPath(P&& to, Location line = Location::current())
      : where(line) {
    if constexpr (std::is_convertible_v<P, const char*>) {
      if (const char* const text = to; text != nullptr) path = text;
    } else {
      path = std::forward<P>(to);
    }
  }
  std::string path;
  Location where;
};

/// A summary of the file's contents.
struct ExportSummary {
  std::vector<std::string> inputs, outputs;
  std::size_t kernels = 0, calls = 0;  // steps of the plan and of the plans of its functions
  bool needs_math = false;             // calls a kernel that only libfermata_run_math has
  std::size_t code_bytes = 0, constant_bytes = 0, file_bytes = 0;
  std::size_t cuda_functions = 0, cuda_bytes = 0;  // of all architectures together
};

namespace detail {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using ExportBody = std::function<std::vector<NamedTensor>(std::span<const Tensor> arguments)>;
ExportSummary export_tensors(const ExportPath& to, const ExportOptions& options, std::vector<NamedTensor> arguments,
                             const ExportBody& body);

template <class T> void add_named(std::vector<NamedTensor>& to, const std::string& name, const T& tree) {
  std::string path = name;
  each_named_part(tree, path, [&]<class P>(const std::string& full, const P& part) {
    if constexpr (std::is_same_v<P, Tensor>)
      if (part.defined()) to.push_back({full, part});
  });
}

/// Names results: "output0" for a tensor or the first element of a list, "logits" for a struct member of that name.
template <class R> void add_results(std::vector<NamedTensor>& to, const R& result) {
  std::size_t i = 0;
  const auto add = [&](const auto& part) { add_named(to, "output" + std::to_string(i++), part); };
  if constexpr (is_tuple<R>)
    std::apply([&](const auto&... parts) { (add(parts), ...); }, result);
  else if constexpr (is_vector<R>)
    for (const auto& part : result) add(part);
  else if constexpr (is_struct<R>)
    add_named(to, "", result);
  else
    add(result);
}

inline std::string export_name(const std::vector<std::string>& names, const char* prefix, std::size_t i) {
  return i < names.size() ? names[i] : prefix + std::to_string(i);
}

}  // namespace detail

/// Captures fn as compile() does and writes it as a standalone program. Captured tensors and number arguments become
/// constants of the program.
///
/// Errors   ValueError FM2220 for options that do not fit the arguments; UnsupportedError FM2221 for what a program
///          cannot do: write tensors or gradients, call custom operators with kernels of their own, or, for CUDA, ops
///          that have no kernel there, all of which are named; FM2222 where a size that is dynamic decides which calls
///          are made; FM2223 where a number or a size cannot be expressed by those that are dynamic; FM2101 without a
///          compiler; FM2224 where NVRTC is not there or makes no code for an architecture; FileError FM1602, in which
///          case an earlier file of that name is still there.
template <class F, class... A>
ExportSummary export_program(const ExportPath& to, const ExportOptions& options, F&& fn, const A&... args) {
  static_assert((detail::is_plain_tree<A>() && ...),
                "arguments of an exported function must be trees (fermata/tensor_tree.h)");
  std::vector<detail::NamedTensor> arguments;
  std::size_t number = 0;
  (detail::add_named(arguments, detail::export_name(options.inputs, "input", number++), args), ...);
  const detail::ExportBody body = [&](std::span<const Tensor> tensors) {
    [[maybe_unused]] std::size_t next = 0;
    const std::tuple<A...> filled{detail::refilled(args, tensors, next)...};
    using R = std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>;
    static_assert(!std::is_void_v<R>, "an exported function must return a result");
    const R result = std::apply(fn, filled);
    std::vector<detail::NamedTensor> results;
    detail::add_results(results, result);
    return results;
  };
  return detail::export_tensors(to, options, std::move(arguments), body);
}
/// Exports with fixed sizes and code for this machine.
template <class F, class... A>
requires(!std::is_same_v<std::remove_cvref_t<F>, ExportOptions>) ExportSummary
    export_program(const ExportPath& to, F&& fn, const A&... args) {
  return export_program(to, ExportOptions{}, std::forward<F>(fn), args...);
}

}  // namespace fermata
