// Models of PyTorch's two exporters, with inputs and the outputs of ONNX Runtime: golden/write_models.py makes them.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "fermata/fermata.h"
#include "fermata/onnx.h"
#include "tests/test_folder.h"

namespace fermata::test {
namespace {

/// Names in an archive: "model.input.x", "model.output.0".
struct Example {
  NamedTensors inputs;
  std::map<std::string, Tensor> outputs;
};

Example example_of(const NamedTensors& arrays, const std::string& model) {
  Example e;
  for (const auto& [name, tensor] : arrays) {
    const std::string in = model + ".input.", out = model + ".output.";
    if (name.starts_with(in)) e.inputs.emplace(name.substr(in.size()), tensor);
    if (name.starts_with(out)) e.outputs.emplace(name.substr(out.size()), tensor);
  }
  return e;
}

class OnnxGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(OnnxGolden, AgreesWithOnnxRuntime) {
  const std::filesystem::path folder = std::filesystem::path(fermata::test_folder()) / "onnx/golden";
  NamedTensors arrays;
  try {
    arrays = load_npz((folder / "models.npz").string());
  } catch (const UnsupportedError& error) { GTEST_SKIP() << error.what(); }
  const std::string name = GetParam();
  const onnx::Model model = onnx::load((folder / (name + ".onnx")).string());
  const Example example = example_of(arrays, name.substr(0, name.find('_')));
  ASSERT_FALSE(example.outputs.empty());
  std::vector<Tensor> inputs;
  for (const onnx::ValueInfo& input : model.inputs()) inputs.push_back(example.inputs.at(input.name));
  const auto fast = compile([&](const std::vector<Tensor>& x) { return model(x); });
  const auto check = [&](const std::vector<Tensor>& results, const char* how) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Tensor& wanted = example.outputs.at(std::to_string(i));
      ASSERT_EQ(results[i].shape(), wanted.shape());
      EXPECT_TRUE(allclose(results[i], wanted, 1e-4, 1e-4)) << name << ", output " << i << ", " << how;
    }
  };
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    check(model(inputs), mode == Mode::eager ? "eager" : "compiled");
  }
  for (int i = 0; i < 2; ++i) check(fast(inputs), "captured");
}

INSTANTIATE_TEST_SUITE_P(Models, OnnxGolden,
                         ::testing::Values("resnet_script", "mobilenet_script", "bert_script", "gpt_script",
                                           "lstm_script", "resnet_dynamo", "bert_dynamo", "gpt_dynamo",
                                           "whisper_dynamo"));

}  // namespace
}  // namespace fermata::test
