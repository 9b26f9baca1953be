// What the program does with models in ONNX files: those of the tests of ONNX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fermata/fermata.h"
#include "fermata/onnx.h"
#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class OnnxFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!onnx::available(&reason)) GTEST_SKIP() << reason;
  }
  static std::string model(const std::string& name) {
    return fermata::test_folder() + "/onnx/golden/" + name + ".onnx";
  }
  Scratch scratch_;
};

TEST_F(OnnxFiles, AreDescribed) {
  const Outcome shown = run_program("fermata onnx '" + model("resnet_script") + "'");
  EXPECT_EQ(shown.status, 0) << shown.err;
  const onnx::Model net = onnx::load(model("resnet_script"));
  for (const onnx::ValueInfo& v : net.inputs()) EXPECT_THAT(shown.out, HasSubstr(to_string(v)));
  for (const onnx::ValueInfo& v : net.outputs()) EXPECT_THAT(shown.out, HasSubstr(to_string(v)));
  const Outcome table = run_program("fermata onnx --operators");
  EXPECT_THAT(table.out, ContainsRegex("Conv +supported"));
}

TEST_F(OnnxFiles, RunAsInTheProgram) {
  const onnx::Model net = onnx::load(model("resnet_script"));
  std::vector<std::int64_t> sizes;
  for (const onnx::Dimension& d : *net.inputs()[0].sizes) sizes.push_back(d.size.value_or(2));
  manual_seed(3);
  const Tensor x = randn(sizes);
  save_npy("x.npy", x);
  const Outcome run = run_program("fermata run '" + model("resnet_script") + "' --input " + net.inputs()[0].name +
                                  "=x.npy --output y.npz");
  ASSERT_EQ(run.status, 0) << run.err;
  const NamedTensors results = load_npz("y.npz");
  EXPECT_TRUE(allclose(results.at(net.outputs()[0].name), net(x), 1e-4, 1e-5));
}

TEST_F(OnnxFiles, AreTimedAndExplained) {
  const Outcome timed = run_program("fermata bench '" + model("mobilenet_script") + "' --threads 1");
  EXPECT_EQ(timed.status, 0) << timed.err;
  EXPECT_THAT(timed.out, HasSubstr("convolution"));
  EXPECT_EQ(timed.err, "");  // progress is for what takes longer
  const Outcome explained = run_program("fermata explain '" + model("mobilenet_script") + "'");
  EXPECT_EQ(explained.status, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("step 0: "));
}

TEST_F(OnnxFiles, TakeTheSameInputsInEachCommand) {
  const std::string arguments =
      " '" + model("resnet_script") + "' --input " + onnx::load(model("resnet_script")).inputs()[0].name + "=gone.npy";
  for (const std::string command : {"run", "bench", "explain"}) {
    const Outcome missing = run_program("fermata " + command + arguments);
    EXPECT_EQ(missing.status, 1) << command;
    EXPECT_THAT(missing.err, HasSubstr("gone.npy")) << command;
    EXPECT_THAT(run_program("fermata " + command + " --help").out, HasSubstr("NAME=FILE.npy")) << command;
  }
}

TEST_F(OnnxFiles, NamesOfNodesAreInTraces) {
  const Outcome run = run_program("fermata run '" + model("resnet_script") + "'", "FERMATA_PROFILE=run.json ");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(file_text("run.json"), HasSubstr("\"scope\":\"/blocks/"));
}

TEST_F(OnnxFiles, ErrorsEndTheProgram) {
  std::ofstream("no.onnx") << "not a model";
  const Outcome damaged = run_program("fermata run no.onnx");
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("FM2302"));
  EXPECT_THAT(run_program("fermata run nothing.onnx").err, HasSubstr("FM1601"));
  EXPECT_THAT(run_program("fermata run '" + model("resnet_script") + "' --size nobody=3").err, HasSubstr("nobody"));
}

}  // namespace
}  // namespace fermata
