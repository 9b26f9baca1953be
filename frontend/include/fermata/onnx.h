// Loads ONNX models (https://onnx.ai) as modules, and saves functions as ONNX files. Not part of fermata/fermata.h.
//
//   const auto net = fm::onnx::load("model.onnx");
//   const fm::Tensor scores = net(image);                        // one input, one output
//   const auto results = net({{"ids", ids}, {"mask", mask}});    // by name
//   const auto fast = fm::compile([&](const fm::Tensor& x) { return net(x); });
//
// libfermata_onnx, which reads and writes ONNX, is loaded at the first call. docs/onnx.md has the table of operators.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fermata/named_tensors.h"
#include "fermata/tensor_tree.h"
#include "fermata/trace.h"
#include "runtime/tensor.h"

namespace fermata::onnx {

/// A size of an input or output: a number, a symbolic name, or unknown.
struct Dimension {
  std::optional<std::int64_t> size;
  std::string name;
};
struct ValueInfo {
  std::string name;
  std::optional<DType> dtype;                   // empty for sequences and the like
  std::optional<std::vector<Dimension>> sizes;  // empty if the file does not say
};
/// "x f32[batch, 3, 224, 224]".
std::string to_string(const ValueInfo& value);

namespace detail {
class Program;
}

/// A model: a function of named tensors, and a module (fermata/modules.h). Initializers that have axes become
/// parameters if they are floating, and buffers otherwise; a copy shares both. Parameters require no gradient until
/// nn::unfreeze(model).
class Model {
 public:
  explicit Model(std::shared_ptr<const detail::Program> program);

  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;
  /// The inputs that have no default.
  std::vector<ValueInfo> required_inputs() const;

  /// Runs the model on named inputs and returns results by name. Inputs that have a default in the file may be left
  /// out.
  ///
  /// Sizes    any that the operators support; new sizes compile nothing.
  /// Errors   ValueError FM2304 for an unknown or missing name, or a dtype or size that the model does not accept;
  ///          errors of the operators, with the node.
  NamedTensors operator()(const NamedTensors& inputs, Location where = Location::current()) const;
  /// Runs the model on inputs in order and returns results in order.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, Location where = Location::current()) const;
  /// For models with one required input: returns the first result.
  Tensor operator()(const Tensor& x, Location where = Location::current()) const { return forward(x, where); }
  Tensor forward(const Tensor& x, Location where = Location::current()) const;

  FERMATA_TREE(parameters_, buffers_)

 private:
  std::shared_ptr<const detail::Program> program_;
  NamedTensors parameters_;
  std::map<std::string, Buffer> buffers_;
};

/// Loads a model. External tensor data in files next to it is memory-mapped.
///
/// Errors   FileError FM1601 if the file cannot be read, FM2302 if it is damaged or refers to a file outside its
///          folder; UnsupportedError FM2303 with all unsupported operators and their nodes, FM2301 if libfermata_onnx
///          is missing.
Model load(const std::string& path, Location where = Location::current());

/// A dynamic input size of a saved model. Axes with the same name have the same size.
struct DynamicAxis {
  std::string input;
  std::int64_t axis = 0;
  std::string name = {};  // by default combined from input and axis: "x0_axis1"
};

struct SaveOptions {
  std::vector<std::string> input_names = {};   // of the tensor arguments, in order; x0, x1, ... for the rest
  std::vector<std::string> output_names = {};  // of the results; y0, y1, ... for the rest
  std::vector<DynamicAxis> dynamic = {};       // all other sizes are fixed to those of the arguments
  std::string name = "fermata";                // of the graph
  Location where = Location::current();        // of the call; a default argument cannot follow args...
};
/// Saves a traced function (fermata/trace.h) as a model of opset 18. Captured tensors become initializers.
///
/// Errors   UnsupportedError FM2307 with all ops that cannot be exported and their lines; FM2301; FileError FM1602.
void save(const Trace& trace, const std::string& path, const SaveOptions& options = {},
          Location where = Location::current());

namespace detail {
/// Returns the arguments of several traces: the original sizes, one trace per axis name with only that size changed,
/// and one with all sizes changed. Names axes that have no name.
std::vector<std::vector<Tensor>> dynamic_samples(SaveOptions& options, std::span<const Tensor> arguments);
void save_dynamic(std::span<const Trace> traces, const std::string& path, const SaveOptions& options);
}  // namespace detail

/// Traces fn(args...) and saves it. Sizes are fixed to those of the arguments, except dynamic axes; for these, fn is
/// called several times with other sizes.
///
///   fm::onnx::save("net.onnx", {.input_names = {"image"}, .dynamic = {{"image", 0, "batch"}}},
///                  [&](const fm::Tensor& x) { return net(x); }, image);
///
/// Errors   those above; ValueError FM5745 for a dynamic axis that no input has; UnsupportedError FM5746 if the calls
///          that fn makes depend on a dynamic size, or a number depends on it in a way that cannot be expressed.
template <class F, class... A>
requires std::invocable<F&, const A&...>
void save(const std::string& path, const SaveOptions& options, F&& fn, const A&... args) {
  if (options.dynamic.empty()) return save(trace(fn, args...), path, options, options.where);
  SaveOptions named = options;
  const std::tuple<A...> given(args...);
  std::vector<Trace> traces;
  for (std::vector<Tensor>& sample : detail::dynamic_samples(named, defined_tensors_in(given)))
    traces.push_back(
        std::apply([&](const A&... other) { return trace(fn, other...); }, with_tensors(given, std::move(sample))));
  detail::save_dynamic(traces, path, named);
}

/// An ONNX operator, whether load() supports it, and a note on limitations.
struct OperatorInfo {
  std::string name;
  bool supported;
  std::string note;
};
/// Returns all operators of ai.onnx in alphabetical order.
std::vector<OperatorInfo> operators(Location where = Location::current());
/// Whether libfermata_onnx can be loaded; if not, `reason` is set.
bool available(std::string* reason = nullptr);

}  // namespace fermata::onnx
