// Models in ONNX files (https://onnx.ai): read as modules, and functions written as files. Not part of
// fermata/fermata.h.
//
//   const auto net = fm::onnx::load("model.onnx");
//   const fm::Tensor scores = net(image);                        // one input, one output
//   const auto results = net({{"ids", ids}, {"mask", mask}});    // by name
//   const auto fast = fm::compile([&](const fm::Tensor& x) { return net(x); });
//
// The part of the library that reads and writes ONNX, libfermata_onnx, is loaded at the first call. docs/onnx.md has
// the table of operators.
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

/// A size of an input or output: a number, a name that stands for any number, or neither.
struct Dimension {
  std::optional<std::int64_t> size;
  std::string name;
};
struct ValueInfo {
  std::string name;
  std::optional<DType> dtype;                   // empty for sequences and the like
  std::optional<std::vector<Dimension>> sizes;  // empty where the file does not say
};
/// "x f32[batch, 3, 224, 224]".
std::string to_string(const ValueInfo& value);

namespace detail {
class Program;
}

/// A model: a function of named tensors, and a module (fermata/modules.h). Its parameters are the floating initializers
/// of the file that have axes, its buffers the other ones that have; a copy shares both. Parameters want no gradient
/// before nn::unfreeze(model).
class Model {
 public:
  explicit Model(std::shared_ptr<const detail::Program> program);

  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;
  /// The inputs without a default.
  std::vector<ValueInfo> required_inputs() const;

  /// Results by name. Inputs that the file has a default for may be left out.
  ///
  /// Sizes    any that the operators take; other sizes than those of an earlier call compile nothing.
  /// Errors   ValueError FM2304 for a name that is unknown or missing, a dtype or a size that the model does not take;
  ///          those of the operators, with the node.
  NamedTensors operator()(const NamedTensors& inputs, Location where = Location::current()) const;
  /// Inputs and results in their order.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, Location where = Location::current()) const;
  /// Of models with one input without a default: their first result.
  Tensor operator()(const Tensor& x, Location where = Location::current()) const { return forward(x, where); }
  Tensor forward(const Tensor& x, Location where = Location::current()) const;

  FERMATA_TREE(parameters_, buffers_)

 private:
  std::shared_ptr<const detail::Program> program_;
  NamedTensors parameters_;
  std::map<std::string, Buffer> buffers_;
};

/// Reads a model. Elements of tensors in files beside it are mapped.
///
/// Errors   FileError FM1601 if the file cannot be read, FM2302 if it is damaged, or names a file outside its folder;
///          UnsupportedError FM2303 with all operators that are not supported and their nodes, FM2301 where
///          libfermata_onnx is missing.
Model load(const std::string& path, Location where = Location::current());

/// A size of an input of a model that is written: any number. Axes of one name have one size.
struct DynamicAxis {
  std::string input;
  std::int64_t axis = 0;
  std::string name = {};  // by default that of the input and the axis: "x0_axis1"
};

struct SaveOptions {
  std::vector<std::string> input_names = {};   // of the tensors among the arguments, in order; x0, x1, ... for the rest
  std::vector<std::string> output_names = {};  // of the results; y0, y1, ... for the rest
  std::vector<DynamicAxis> dynamic = {};       // all other sizes are those of the arguments
  std::string name = "fermata";                // of the graph
  Location where = Location::current();        // of the call: no argument can be defaulted after those of a function
};
/// Writes a traced function (fermata/trace.h) as a model of opset 18. Tensors from outside are its initializers.
///
/// Errors   UnsupportedError FM2307 with all ops that cannot be written and their lines; FM2301; FileError FM1602.
void save(const Trace& trace, const std::string& path, const SaveOptions& options = {},
          Location where = Location::current());

namespace detail {
/// The arguments of several traces: with the sizes that the dynamic axes have in the first model, with another size of
/// one name each, and with other sizes of all. Gives names to axes without one.
std::vector<std::vector<Tensor>> dynamic_samples(SaveOptions& options, std::span<const Tensor> arguments);
void save_dynamic(std::span<const Trace> traces, const std::string& path, const SaveOptions& options);
}  // namespace detail

/// The same of fn(args...), which is traced. Sizes are those of the arguments, but for dynamic axes: then fn is called
/// several times, with other sizes.
///
///   fm::onnx::save("net.onnx", {.input_names = {"image"}, .dynamic = {{"image", 0, "batch"}}},
///                  [&](const fm::Tensor& x) { return net(x); }, image);
///
/// Errors   those above; ValueError FM5745 for a dynamic axis that no input has; UnsupportedError FM5746 where fn makes
///          other calls for other sizes, or where a number follows from a size in a way that cannot be written.
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

/// An operator of ONNX: whether load() takes it, and what is to be said about it.
struct OperatorInfo {
  std::string name;
  bool supported;
  std::string note;
};
/// All of ai.onnx, in alphabetical order.
std::vector<OperatorInfo> operators(Location where = Location::current());
/// Whether libfermata_onnx can be loaded, else why not.
bool available(std::string* reason = nullptr);

}  // namespace fermata::onnx
