// Models in ONNX files.
#include <fermata/fermata.h>
#include <fermata/onnx.h>

#include <algorithm>

#include "ir/error.h"
#include "tests/fuzz/targets/target.h"

namespace fermata::testing {
namespace {

/// Zeros of the sizes that a model asks for, or of 2 where it does not say; not of a dtype or of more elements than
/// would take long.
NamedTensors inputs_of(const onnx::Model& model) {
  constexpr std::int64_t kMostElements = 1 << 12;
  NamedTensors inputs;
  for (const onnx::ValueInfo& input : model.required_inputs()) {
    Shape shape;
    for (const onnx::Dimension& size : input.sizes.value_or(std::vector<onnx::Dimension>{}))
      if (shape.size() < 5) shape.push_back(std::clamp<std::int64_t>(size.size.value_or(2), 0, 8));
    if (element_count(shape) > kMostElements) shape = {};
    inputs.emplace(input.name, zeros(shape, input.dtype.value_or(DType::f32)));
  }
  return inputs;
}

onnx::Model read(const std::string& path) {
  constexpr int kNoLibrary = 2301;
  try {
    return onnx::load(path);
  } catch (const Error& error) {
    require(error.code() != kNoLibrary, "the library that reads models is not there");
    throw;
  }
}

void onnx_model(std::string_view input) {
  const MemoryFile file(input);
  const onnx::Model model = read(file.path());
  const ModeGuard mode(Mode::eager);
  for (const auto& [name, result] : model(inputs_of(model))) copy(result).sync();
}
const AddFuzzTarget add_onnx("onnx", &onnx_model);

}  // namespace
}  // namespace fermata::testing
