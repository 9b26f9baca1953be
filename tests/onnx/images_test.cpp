// Operators on images.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "fermata/onnx.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/onnx/model_builder.h"

namespace fermata::test {
namespace {

class OnnxImages : public InScratchFolder {
 protected:
  static onnx::Model load(const GraphBuilder& graph, std::int64_t opset = 18) {
    write_model("model.onnx", model_of(graph, opset));
    return onnx::load("model.onnx");
  }
};

TEST_F(OnnxImages, ResizeBySizesThatFollowFromOtherSizes) {
  // The upsampling step of a pyramid: to the size of another map.
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {1, 1, "h", "w"}).input("like", TensorProto::FLOAT, {1, 1, "H", "W"}).output("y");
  g.node("Shape", {"like"}, {"sizes"});
  g.node("Resize", {"x", "", "", "sizes"}, {"y"});
  const onnx::Model model = load(g);
  const auto fast = compile([&](const Tensor& x, const Tensor& like) { return model(std::vector{x, like}).at(0) * 1; });
  const Tensor x = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}).reshape({1, 1, 2, 2});
  const std::vector<float> wanted{1, 1, 2, 2, 3, 3, 4, 4};
  EXPECT_EQ(model(std::vector{x, zeros({1, 1, 2, 4})}).at(0).to_vector<float>(), wanted);
  EXPECT_EQ(fast(x, zeros({1, 1, 2, 4})).to_vector<float>(), wanted);
  EXPECT_EQ(fast(x, zeros({1, 1, 6, 2})).shape(), (Shape{1, 1, 6, 2}));
}

TEST_F(OnnxImages, DepthwiseFiltersAtOffsets) {
  // Offsets of 0 make a plain convolution.
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {1, 1, 3, 3}).input("at", TensorProto::FLOAT, {1, 8, 2, 2}).output("y").output("z");
  g.floats("w", {1, 1, 2, 2}, {1, 2, 3, 4});
  g.node("DeformConv", {"x", "w", "at"}, {"y"});
  g.node("Conv", {"x", "w"}, {"z"});
  const auto results = load(g, 19)(std::vector{arange(9, DType::f32).reshape({1, 1, 3, 3}), zeros({1, 8, 2, 2})});
  EXPECT_EQ(results.at(0).to_vector<float>(), results.at(1).to_vector<float>());
}

TEST_F(OnnxImages, PoolsGoBackToWhereTheyTookFrom) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {1, 1, 4, 4}).output("y").output("p", TensorProto::INT64);
  g.node("MaxPool", {"x"}, {"h", "p"}).set("kernel_shape", {2, 2}).set("strides", {2, 2});
  g.node("MaxUnpool", {"h", "p"}, {"y"}).set("kernel_shape", {2, 2}).set("strides", {2, 2});
  const auto results = load(g)(std::vector{arange(16, DType::f32).reshape({1, 1, 4, 4})});
  EXPECT_EQ(results.at(0).to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 13, 0, 15}));
  EXPECT_EQ(results.at(1).to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, 7, 13, 15}));
}

}  // namespace
}  // namespace fermata::test
