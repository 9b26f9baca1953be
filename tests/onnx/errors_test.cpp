// What is wrong with a file or a call is told, whatever the file says. Texts in full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "fermata/fermata.h"
#include "fermata/onnx.h"
#include "tests/error_message.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/onnx/model_builder.h"

namespace fermata::test {
namespace {

using testing::message;

GraphBuilder sum_of_two() {
  GraphBuilder g;
  g.input("a", TensorProto::FLOAT, {"n", 2}).input("b", TensorProto::FLOAT, {"n", 2}).output("y");
  g.node("Add", {"a", "b"}, {"y"});
  return g;
}

class OnnxErrors : public InScratchFolder {
 protected:
  static std::string load_error(const GraphBuilder& graph, std::int64_t opset = 17) {
    write_model("m.onnx", model_of(graph, opset));
    return message<Error>([] { return onnx::load("m.onnx"); });
  }
};

TEST_F(OnnxErrors, Calls) {
  write_model("m.onnx", model_of(sum_of_two()));
  const onnx::Model model = onnx::load("m.onnx");
  const std::string inputs = "\n  input a f32[n, 2]\n  input b f32[n, 2]\n  at    HERE";
  EXPECT_EQ(message<ValueError>([&] {
              return model({{"a", ones({1, 2})}});
            }),
            "FM2304 ValueError: onnx: m.onnx: input 'b' is missing" + inputs);
  EXPECT_EQ(message<ValueError>([&] {
              return model({{"c", ones({1, 2})}});
            }),
            "FM2304 ValueError: onnx: m.onnx: no input named 'c'" + inputs);
  EXPECT_EQ(message<ValueError>([&] {
              return model(std::vector{ones({1, 2}), ones({1, 2}, DType::f64)});
            }),
            "FM2304 ValueError: onnx: m.onnx: input 'b' is f64[1, 2], but the model takes f32" + inputs);
  EXPECT_EQ(message<ValueError>([&] {
              return model(std::vector{ones({1, 2}), ones({1, 3})});
            }),
            "FM2304 ValueError: onnx: m.onnx: input 'b' is f32[1, 3], but the model takes 2 along axis 1" + inputs);
  EXPECT_EQ(message<ValueError>([&] {
              return model(std::vector{ones({1, 2}), ones({4, 2})});
            }),
            "FM2304 ValueError: onnx: m.onnx: input 'b' is f32[4, 2], but 'n' is 1 along another axis" + inputs);
}

TEST_F(OnnxErrors, NodesAreNamed) {
  GraphBuilder g;
  g.input("a", TensorProto::FLOAT, {}).input("b", TensorProto::FLOAT, {}).output("y");
  g.proto.mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  g.proto.mutable_input(1)->mutable_type()->mutable_tensor_type()->clear_shape();
  g.node("MatMul", {"a", "b"}, {"y"});
  write_model("m.onnx", model_of(g));
  const onnx::Model model = onnx::load("m.onnx");
  EXPECT_EQ(message<ShapeError>([&] {
              return model(std::vector{ones({2, 3}), ones({2, 3})});
            }),
            "FM1004 ShapeError: matmul: contracted sizes differ (3 and 2)\n  lhs  f32[2, 3]   axis 1 is 3\n"
            "  rhs  f32[2, 3]   axis 0 is 2\n  at   HERE\n  node 'MatMul_1' (MatMul)");
}

TEST_F(OnnxErrors, UnsupportedOperatorsAreListedAtOnce) {
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {2}).output("y");
  g.node("Blur", {"x"}, {"a"}).domain("some.where");
  g.node("Nothing", {"a"}, {"b"});
  g.node("Blur", {"b"}, {"c"}).domain("some.where");
  g.node("StringConcat", {"c", "c"}, {"y"});
  EXPECT_EQ(load_error(g),
            "FM2303 UnsupportedError: onnx: m.onnx: unsupported operators\n"
            "  Nothing  in 1 node: Nothing_2\n"
            "  StringConcat (string tensors are not supported)  in 1 node: StringConcat_4\n"
            "  some.where::Blur  in 2 nodes: Blur_1, Blur_3\n  at   HERE");
}

TEST_F(OnnxErrors, DamagedFiles) {
  const auto at_load = [](const std::string& what) {
    return "FM2302 FileError: onnx: m.onnx: " + what + "\n  at   HERE";
  };
  write("m.onnx", "this is no model");
  EXPECT_EQ(message<FileError>([] { return onnx::load("m.onnx"); }), at_load("not an ONNX model, or truncated"));
  write("m.onnx", "");
  EXPECT_EQ(message<FileError>([] { return onnx::load("m.onnx"); }), at_load("no graph"));
  EXPECT_EQ(message<FileError>([] { return onnx::load("none.onnx"); }),
            "FM1601 FileError: onnx: none.onnx: cannot be opened (No such file or directory)\n  at   HERE");
  EXPECT_EQ(message<FileError>([] { return onnx::load("/dev/zero"); }),
            "FM1601 FileError: onnx: /dev/zero: is a device, not a regular file\n  at   HERE");

  GraphBuilder unknown = sum_of_two();
  unknown.node("Add", {"a", "z"}, {"w"});
  EXPECT_EQ(load_error(unknown), at_load("an input of node 'Add_2' is 'z', which is not defined before it"));
  GraphBuilder twice = sum_of_two();
  twice.node("Add", {"a", "b"}, {"y"});
  EXPECT_EQ(load_error(twice), at_load("'y' is defined twice"));

  GraphBuilder large = sum_of_two();
  large.tensor("w", TensorProto::FLOAT, {1'000'000, 1'000'000})->set_raw_data("1234");
  EXPECT_EQ(load_error(large), at_load("tensor 'w' is f32[1000000, 1000000] and holds 4 bytes"));
  GraphBuilder huge = sum_of_two();
  huge.tensor("w", TensorProto::FLOAT, {std::int64_t{1} << 40, std::int64_t{1} << 40});
  EXPECT_EQ(load_error(huge), at_load("tensor 'w' is too large"));
  GraphBuilder negative = sum_of_two();
  negative.tensor("w", TensorProto::FLOAT, {-1});
  EXPECT_EQ(load_error(negative), at_load("tensor 'w' has an axis of size -1"));
  GraphBuilder few = sum_of_two();
  few.tensor("w", TensorProto::FLOAT, {3})->add_float_data(1);
  EXPECT_EQ(load_error(few), at_load("tensor 'w' is f32[3] and holds 1 elements"));
}

TEST_F(OnnxErrors, AttributesOfAWrongType) {
  const auto call_error = [](const GraphBuilder& g) {
    write_model("m.onnx", model_of(g));
    const onnx::Model model = onnx::load("m.onnx");
    return message<FileError>([&] { return model(std::vector{ones({1, 2}), ones({1, 2})}); });
  };
  const auto text = [](const std::string& op, const std::string& what) {
    return "FM2302 FileError: onnx: " + op + ": " + what + "\n  at   HERE\n  node '" + op + "_2' (" + op + ")";
  };
  GraphBuilder number = sum_of_two();
  number.node("Softmax", {"y"}, {"z"}).set("axis", 1.0f);
  EXPECT_EQ(call_error(number), text("Softmax", "attribute 'axis' is of type FLOAT, not INT"));
  GraphBuilder integer = sum_of_two();
  integer.node("Elu", {"y"}, {"z"}).set("alpha", 1);
  EXPECT_EQ(call_error(integer), text("Elu", "attribute 'alpha' is of type INT, not FLOAT"));
  GraphBuilder single = sum_of_two();
  single.node("Transpose", {"y"}, {"z"}).set("perm", 0);
  EXPECT_EQ(call_error(single), text("Transpose", "attribute 'perm' is of type INT, not INTS"));
  GraphBuilder chars = sum_of_two();
  chars.node("Gelu", {"y"}, {"z"}).set("approximate", 1);
  EXPECT_EQ(call_error(chars), text("Gelu", "attribute 'approximate' is of type INT, not STRING"));
  GraphBuilder graph = sum_of_two();
  graph.node("If", {"y"}, {"z"}).set("then_branch", "yes").set("else_branch", "no");
  EXPECT_THAT(call_error(graph), ::testing::HasSubstr("_branch' is of type STRING, not GRAPH"));
  GraphBuilder ratio = sum_of_two();
  ratio.node("Constant", {}, {"z"}).set("value_ints", 3);
  EXPECT_EQ(call_error(ratio), text("Constant", "attribute 'value_ints' is of type INT, not INTS"));

  // The type that is declared is the one that is held, where there is any. It may be left out.
  GraphBuilder both = sum_of_two();
  both.node("Softmax", {"y"}, {"z"}).set("axis", 1.0f);
  both.proto.mutable_node(1)->mutable_attribute(0)->set_type(AttributeProto::INT);
  EXPECT_EQ(load_error(both),
            "FM2302 FileError: onnx: m.onnx: attribute 'axis' is declared as INT and holds FLOAT\n  at   HERE");
  GraphBuilder undeclared = sum_of_two();
  undeclared.node("Softmax", {"y"}, {"z"}).set("axis", 1);
  undeclared.proto.mutable_node(1)->mutable_attribute(0)->clear_type();
  write_model("m.onnx", model_of(undeclared));
  EXPECT_NO_THROW(onnx::load("m.onnx")(std::vector{ones({1, 2}), ones({1, 2})}));
}

TEST_F(OnnxErrors, FilesOutsideTheFolderAreRefused) {
  for (const std::string location : {"../secret", "/etc/passwd", "a/../../secret", ""}) {
    GraphBuilder g = sum_of_two();
    TensorProto* const t = g.tensor("w", TensorProto::FLOAT, {1});
    t->set_data_location(TensorProto::EXTERNAL);
    auto* const entry = t->add_external_data();
    entry->set_key("location"), entry->set_value(location);
    EXPECT_EQ(load_error(g), "FM2302 FileError: onnx: m.onnx: tensor 'w' is in '" + location +
                                 "', which is not a file in the model's folder\n  at   HERE");
  }
  std::filesystem::create_symlink("/etc/passwd", "link");
  GraphBuilder g = sum_of_two();
  TensorProto* const t = g.tensor("w", TensorProto::FLOAT, {1});
  t->set_data_location(TensorProto::EXTERNAL);
  auto* const entry = t->add_external_data();
  entry->set_key("location"), entry->set_value("link");
  EXPECT_THAT(load_error(g), ::testing::HasSubstr("not a file in the model's folder"));
}

TEST_F(OnnxErrors, FunctionsThatCallEachOtherEnd) {
  // f0 calls f1 twice, f1 calls f2 twice, ...: 2^60 nodes when written out.
  GraphBuilder g;
  g.input("x", TensorProto::FLOAT, {1}).output("y");
  g.node("f0", {"x"}, {"y"}).domain("d");
  ModelProto model = model_of(g);
  constexpr int kCount = 60;
  for (int i = 0; i <= kCount; ++i) {
    auto* const f = model.add_functions();
    f->set_domain("d"), f->set_name("f" + std::to_string(i));
    f->add_input("a"), f->add_output("c");
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")}) {
      NodeProto* const n = f->add_node();
      n->set_domain(i < kCount ? "d" : "");
      n->set_op_type(i < kCount ? "f" + std::to_string(i + 1) : "Neg");
      n->add_input(from), n->add_output(to);
    }
  }
  write_model("m.onnx", model);
  EXPECT_EQ(message<FileError>([] { return onnx::load("m.onnx"); }),
            "FM2302 FileError: onnx: m.onnx: too many nodes after functions are inlined\n  at   HERE");
  model.mutable_functions(1)->mutable_node(0)->set_op_type("f0");  // calls itself
  write_model("m.onnx", model);
  EXPECT_THROW(onnx::load("m.onnx"), FileError);
}

TEST_F(OnnxErrors, MutationsAreErrorsOrModels) {
  GraphBuilder g = sum_of_two();
  g.floats("w", {2, 2}, {1, 2, 3, 4}).integers("axes", {1}, {0}).integers("sizes", {2}, {-1, 2});
  g.node("MatMul", {"y", "w"}, {"z"});
  g.node("ReduceSum", {"z", "axes"}, {"r"});
  g.node("Reshape", {"r", "sizes"}, {"s"});
  g.node("ConstantOfShape", {"sizes"}, {"t"});
  std::string bytes;
  model_of(g).SerializeToString(&bytes);
  std::mt19937 random(1);
  int loaded = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = bytes;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8)); break;
        case 2: damaged.erase(at, 1 + random() % 8); break;
        default: damaged.insert(at, 1, static_cast<char>(random()));
      }
      if (damaged.empty()) damaged = bytes;
    }
    write("m.onnx", damaged);
    try {
      const onnx::Model model = onnx::load("m.onnx");
      ++loaded;
      const std::vector<Tensor> results = model(std::vector{ones({1, 2}), ones({1, 2})});
      for (const Tensor& y : results) y.sync();
    } catch (const Error&) {}
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace fermata::test
