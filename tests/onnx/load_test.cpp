// Models from files: names, sizes that vary, both modes, compile(fn), parameters, operators of the program.
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/fermata.h"
#include "fermata/library.h"
#include "fermata/modules.h"
#include "fermata/onnx.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/onnx/model_builder.h"

namespace fermata::test {
namespace {

class OnnxLoad : public InScratchFolder {
 protected:
  static onnx::Model load(const GraphBuilder& graph, std::int64_t opset = 17) {
    write_model("model.onnx", model_of(graph, opset));
    return onnx::load("model.onnx");
  }
  /// relu(x W + b), [n, 2] -> [n, 3].
  static GraphBuilder layer() {
    GraphBuilder g;
    g.input("x", TensorProto::FLOAT, {"n", 2}).output("y", TensorProto::FLOAT, {"n", 3});
    g.floats("w", {2, 3}, {1, 2, 3, 4, 5, 6}).floats("b", {3}, {0, -10, 1});
    g.node("Gemm", {"x", "w", "b"}, {"h"});
    g.node("Relu", {"h"}, {"y"});
    return g;
  }
};

TEST_F(OnnxLoad, GivesNamedInputsAndOutputs) {
  const onnx::Model model = load(layer());
  ASSERT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(to_string(model.inputs()[0]), "x f32[n, 2]");
  EXPECT_EQ(to_string(model.outputs()[0]), "y f32[n, 3]");
  const std::vector<float> wanted{5, 0, 10};
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    EXPECT_EQ(model(ones({1, 2})).to_vector<float>(), wanted);
    EXPECT_EQ(model({{"x", ones({1, 2})}}).at("y").to_vector<float>(), wanted);
    EXPECT_EQ(model(std::vector{ones({4, 2})}).at(0).shape(), (Shape{4, 3}));
  }
}

TEST_F(OnnxLoad, OtherSizesCompileNothing) {
  const onnx::Model model = load(layer());
  const auto fast = compile([&](const Tensor& x) { return model(x); });
  fast(ones({2, 2})).sync(), fast(ones({2, 2})).sync();
  const std::uint64_t plans = stats().plans_compiled, kernels = stats().kernels_compiled;
  EXPECT_EQ(fast(ones({5, 2})).shape(), (Shape{5, 3}));
  EXPECT_EQ(fast(ones({7, 2})).to_vector<float>()[0], 5);
  EXPECT_EQ(stats().plans_compiled, plans);
  EXPECT_EQ(stats().kernels_compiled, kernels);
}

TEST_F(OnnxLoad, ShapesAreComputedOnTheHost) {
  // reshape(x, [shape(x)[0] * 2, -1]), as exporters write it.
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {"n", 4}).output("y");
  g.integers("zero", {}, {0}).integers("two", {1}, {2}).integers("rest", {1}, {-1});
  g.node("Shape", {"x"}, {"shape"});
  g.node("Gather", {"shape", "zero"}, {"n"}).set("axis", 0);
  g.node("Unsqueeze", {"n", "zero_axis"}, {"n1"});
  g.integers("zero_axis", {1}, {0});
  g.node("Mul", {"n1", "two"}, {"n2"});
  g.node("Concat", {"n2", "rest"}, {"sizes"}).set("axis", 0);
  g.node("Reshape", {"x", "sizes"}, {"y"});
  const onnx::Model model = load(g);
  const auto fast = compile([&](const Tensor& x) { return model(x) * 1; });
  for (const std::int64_t n : {3, 5, 3}) {
    EXPECT_EQ(model(zeros({n, 4})).shape(), (Shape{2 * n, 2}));
    EXPECT_EQ(fast(zeros({n, 4})).shape(), (Shape{2 * n, 2}));
  }
  const Tensor batch = vmap([&](const Tensor& x) { return model(x); })(zeros({6, 3, 4}));
  EXPECT_EQ(batch.shape(), (Shape{6, 6, 2}));
}

TEST_F(OnnxLoad, NGramsAreCounted) {
  // The results are those of ONNX Runtime.
  const auto model = [](const char* mode) {
    GraphBuilder g;
    g.input("x", TensorProto::INT64, {"n", "c"}).output("y");
    g.node("TfIdfVectorizer", {"x"}, {"y"})
        .set("mode", mode)
        .set("min_gram_length", 1)
        .set("max_gram_length", 2)
        .set("max_skip_count", 1)
        .set("ngram_counts", {0, 2})
        .set("ngram_indexes", {0, 1, 2, 4, 3})
        .set("pool_int64s", {2, 3, 5, 4, 6, 7, 5, 6})
        .set_floats("weights", {2, 3, 4, 5, 6});
    return load(g);
  };
  const Tensor x = reshape(tensor({1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8}), {2, 6});
  const Tensor y = reshape(tensor({5, 9, 6, 5, 6, 7, 2, 5, 4, 6, 7, 7}), {2, 6});
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    EXPECT_EQ(model("TF")(x).to_vector<float>(), (std::vector<float>{0, 3, 0, 0, 0, 0, 0, 0, 1, 1}));
    EXPECT_EQ(model("IDF")(x).to_vector<float>(), (std::vector<float>{0, 3, 0, 0, 0, 0, 0, 0, 6, 5}));
    EXPECT_EQ(model("TFIDF")(x).to_vector<float>(), (std::vector<float>{0, 9, 0, 0, 0, 0, 0, 0, 6, 5}));
    EXPECT_EQ(model("TF")(y).to_vector<float>(), (std::vector<float>{0, 0, 0, 2, 1, 1, 0, 1, 1, 2}));
    EXPECT_EQ(model("TF")(ones({1, 1}, DType::i64)).to_vector<float>(), std::vector<float>(5, 0));
  }
}

TEST_F(OnnxLoad, CausalConvolutionsGoOnWhereTheyEnded) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {"n", 2, "t"})
      .input("past", TensorProto::FLOAT, {"n", 2, 2})
      .output("y")
      .output("state");
  g.floats("w", {2, 1, 3}, {1, 10, 100, -1, 2, 0.5f}).floats("b", {2}, {0.25f, -0.5f});
  g.node("CausalConvWithState", {"x", "w", "b", "past"}, {"y", "state"}).set("activation", "silu");
  const onnx::Model model = load(g, 27);
  const Tensor x = reshape(arange(20, DType::f32) / 8, {1, 2, 10}), none = zeros({1, 2, 2});
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const auto whole = model({{"x", x}, {"past", none}});
    const auto first = model({{"x", slice(x, 2, 0, 4)}, {"past", none}});
    const auto rest = model({{"x", slice(x, 2, 4, 10)}, {"past", first.at("state")}});
    EXPECT_EQ(concat({first.at("y"), rest.at("y")}, 2).to_vector<float>(), whole.at("y").to_vector<float>());
    EXPECT_EQ(rest.at("state").to_vector<float>(), (std::vector<float>{1, 1.125f, 2.25f, 2.375f}));
    const float second = 0.25f + 12.5f;  // x is 0, 1/8 there, and 0 before
    EXPECT_NEAR(whole.at("y").to_vector<float>()[1], second / (1 + std::exp(-second)), 1e-5);
  }
}

TEST_F(OnnxLoad, GatesAreAppliedToTheirValues) {
  GraphBuilder g;
  g.input("a", TensorProto::FLOAT, {"n"}).input("b", TensorProto::FLOAT, {"n"}).output("y");
  g.node("SwiGLU", {"a", "b"}, {"y"}).set("alpha", 2.0f);
  const std::vector<Tensor> arguments{tensor({0.0f, 1.0f, -3.0f}), tensor({5.0f, 2.0f, 4.0f})};
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const std::vector<float> y = load(g, 28)(arguments).at(0).to_vector<float>();
    EXPECT_NEAR(y[0], 0, 1e-7);
    EXPECT_NEAR(y[1], 2 / (1 + std::exp(-2.0)), 1e-6);
    EXPECT_NEAR(y[2], -12 / (1 + std::exp(6.0)), 1e-6);
  }
}

TEST_F(OnnxLoad, IsAModule) {
  onnx::Model model = load(layer());
  ASSERT_EQ(nn::parameters(model).size(), 2u);
  EXPECT_EQ(nn::named_parameters(model)[1].first, "parameters.w");
  EXPECT_FALSE(nn::parameters(model)[0].requires_grad());
  nn::unfreeze(model);
  const Tensor loss = sum(model(ones({1, 2})));
  loss.backward();
  EXPECT_EQ(nn::gradients(model)[0].to_vector<float>(), (std::vector<float>{1, 0, 1}));
  optim::SGD sgd(model, {.learning_rate = 1});
  sgd.step();
  EXPECT_EQ(model(ones({1, 2})).to_vector<float>(), (std::vector<float>{2, 0, 7}));
}

TEST_F(OnnxLoad, InputsMayHaveDefaults) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {2}).input("shift", TensorProto::FLOAT, {1}).output("y");
  g.floats("shift", {1}, {10});
  g.node("Add", {"x", "shift"}, {"y"});
  const onnx::Model model = load(g);
  EXPECT_EQ(model(zeros({2})).to_vector<float>(), (std::vector<float>{10, 10}));
  EXPECT_EQ(model({{"x", zeros({2})}, {"shift", ones({1})}}).at("y").to_vector<float>(), (std::vector<float>{1, 1}));
}

/// then: a + 1, else: a * 10, with a from the graph outside.
GraphBuilder branch(const std::string& op, const std::string& with) {
  GraphBuilder g;
  g.node(op, {"a", with}, {"r"});
  g.output("r");
  return g;
}

TEST_F(OnnxLoad, BranchesInBothModesAndCaptured) {
  GraphBuilder g;
  g.input("a", TensorProto::FLOAT, {3}).output("y");
  g.floats("one", {}, {1}).floats("ten", {}, {10}).floats("limit", {}, {0});
  g.node("ReduceSum", {"a"}, {"total"}).set("keepdims", 0);
  g.node("Greater", {"total", "limit"}, {"positive"});
  g.node("If", {"positive"}, {"y"})
      .set("then_branch", branch("Add", "one").proto)
      .set("else_branch", branch("Mul", "ten").proto);
  const onnx::Model model = load(g);
  const auto fast = compile([&](const Tensor& x) { return model(x); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model(ones({3})).to_vector<float>(), (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(model(-ones({3})).to_vector<float>(), (std::vector<float>{-10, -10, -10}));
    EXPECT_EQ(fast(ones({3})).to_vector<float>(), (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(fast(-ones({3})).to_vector<float>(), (std::vector<float>{-10, -10, -10}));
  }
}

TEST_F(OnnxLoad, LoopsInBothModesAndCaptured) {
  // Doubles a until its sum is 100 or more.
  GraphBuilder body;
  body.input("i", TensorProto::INT64, {}).input("go", TensorProto::BOOL, {}).input("s", TensorProto::FLOAT, {2});
  body.node("Add", {"s", "s"}, {"t"});
  body.node("ReduceSum", {"t"}, {"sum"}).set("keepdims", 0);
  body.node("Less", {"sum", "hundred"}, {"more"});
  body.output("more", TensorProto::BOOL).output("t");
  GraphBuilder g;
  g.input("a", TensorProto::FLOAT, {2}).output("y");
  g.floats("hundred", {}, {100});
  g.tensor("yes", TensorProto::BOOL, {})->add_int32_data(1);
  g.node("Loop", {"", "yes", "a"}, {"y"}).set("body", body.proto);
  const onnx::Model model = load(g);
  const auto fast = compile([&](const Tensor& x) { return model(x); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model(ones({2})).to_vector<float>(), (std::vector<float>{64, 64}));
    EXPECT_EQ(fast(ones({2})).to_vector<float>(), (std::vector<float>{64, 64}));
    EXPECT_EQ(fast(full({2}, 30.0f)).to_vector<float>(), (std::vector<float>{60, 60}));
  }
}

TEST_F(OnnxLoad, FunctionsOfTheFileTakeAttributes) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {2}).output("y");
  g.node("Slope", {"x"}, {"y"}).domain("local").set("slope", 0.5f);
  ModelProto model = model_of(g);
  auto* const f = model.add_functions();
  f->set_domain("local"), f->set_name("Slope");
  f->add_input("a"), f->add_output("b"), f->add_attribute("slope");
  NodeProto* const n = f->add_node();
  n->set_op_type("LeakyRelu");
  n->add_input("a"), n->add_output("b");
  AttributeProto* const alpha = n->add_attribute();
  alpha->set_name("alpha"), alpha->set_type(AttributeProto::FLOAT), alpha->set_ref_attr_name("slope");
  f->add_opset_import()->set_version(17);
  write_model("model.onnx", model);
  EXPECT_EQ(onnx::load("model.onnx")(tensor({-2.0f, 4.0f})).to_vector<float>(), (std::vector<float>{-1, 4}));
}

Tensor scaled(const Tensor& x, double factor) { return x * factor; }
FERMATA_LIBRARY(com_example, m) {
  m.def("pure Scaled(Tensor x, float factor) -> Tensor", "x times a number.");
  m.impl("Scaled", &scaled);
}

TEST_F(OnnxLoad, OperatorsOfTheProgram) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {2}).output("y");
  g.node("Scaled", {"x"}, {"y"}).domain("com.example").set("factor", 3.0f);
  const onnx::Model model = load(g);
  EXPECT_EQ(model(ones({2})).to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(compile([&](const Tensor& x) { return model(x); })(ones({2})).to_vector<float>(),
            (std::vector<float>{3, 3}));
}

TEST_F(OnnxLoad, ElementsInOtherFilesAreMapped) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  write("weights.bin", "01234567" + std::string(reinterpret_cast<const char*>(values.data()), 24));
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {3}).output("y");
  TensorProto* const t = g.tensor("w", TensorProto::FLOAT, {2, 3});
  t->set_data_location(TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const char* value) {
    auto* const entry = t->add_external_data();
    entry->set_key(key), entry->set_value(value);
  };
  add("location", "weights.bin"), add("offset", "8"), add("length", "24");
  g.node("MatMul", {"w", "x"}, {"y"});
  EXPECT_EQ(load(g)(ones({3})).to_vector<float>(), (std::vector<float>{6, 15}));
}

TEST_F(OnnxLoad, BytesAreAddedUpExactly) {
  GraphBuilder g;
  g.input("a", TensorProto::UINT8, {2, 3}).input("b", TensorProto::INT8, {3, 2}).output("y", TensorProto::INT32);
  TensorProto* const z = g.tensor("z", TensorProto::UINT8, {});
  z->add_int32_data(128);
  g.node("MatMulInteger", {"a", "b", "z"}, {"y"});
  const onnx::Model model = load(g);
  const Tensor a = tensor(std::vector<std::uint8_t>{255, 128, 0, 1, 2, 3}, {2, 3});
  const Tensor b = tensor(std::vector<std::int8_t>{127, -128, 1, 1, -128, 127}, {3, 2});
  EXPECT_EQ(model(std::vector{a, b}).at(0).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{32513, -32512, -255, 255}));
}

}  // namespace
}  // namespace fermata::test
