// What libfermata_onnx gives to the library that loads it. Both are of one build.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fermata/onnx.h"

namespace fermata::onnx {

namespace detail {

using Buffers = std::map<std::string, Buffer>;

/// A model that was read: what it is made of, and how to run it.
class Program {
 public:
  virtual ~Program() = default;
  /// Results in order. Inputs that are left out are undefined.
  virtual std::vector<Tensor> run(std::span<const Tensor> inputs, const NamedTensors& parameters,
                                  const Buffers& buffers, Location where) const = 0;

  std::string path;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<bool> has_default;  // of the inputs
  NamedTensors parameters;        // as the file has them
  Buffers buffers;
};

}  // namespace detail

/// The version of this interface; a plugin of another one is not taken.
inline constexpr const char* kPluginVersion = FERMATA_VERSION;

struct Plugin {
  const char* version;
  std::shared_ptr<const detail::Program> (*load)(const std::string& path, Location where);
  std::vector<OperatorInfo> (*operators)();
  /// One trace, or several of one function with other sizes of the dynamic axes.
  void (*save)(std::span<const Trace> traces, const std::string& path, const SaveOptions& options, Location where);
};
/// The name of the function in libfermata_onnx that gives it.
inline constexpr const char* kPluginSymbol = "fermata_onnx_plugin";

}  // namespace fermata::onnx
