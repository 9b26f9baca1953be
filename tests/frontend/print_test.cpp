// Tensors as text, in full.
#include "fermata/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "fermata/fermata.h"

namespace fermata {
namespace {

TEST(Print, AlignsColumns) {
  EXPECT_EQ(to_string(tensor({{1, 2}, {3, 4}})), "tensor([[1, 2],\n        [3, 4]], i64)");
  EXPECT_EQ(to_string(tensor({{1, -20}, {300, 4}})), "tensor([[  1, -20],\n        [300,   4]], i64)");
  EXPECT_EQ(to_string(tensor({1, 2, 3}, DType::u8)), "tensor([1, 2, 3], u8)");
  EXPECT_EQ(to_string(tensor({true, false})), "tensor([ true, false], bool)");
}

TEST(Print, FloatsHaveTheDigitsTheyNeed) {
  EXPECT_EQ(to_string(tensor({1.0, 2.0})), "tensor([1., 2.], f32)");
  EXPECT_EQ(to_string(tensor({0.5, -2.25})), "tensor([ 0.50, -2.25], f32)");
  EXPECT_EQ(to_string(tensor({1.0 / 3, 10.0})), "tensor([ 0.3333, 10.0000], f32)");
  EXPECT_EQ(to_string(tensor({1e-10, 1.0})), "tensor([1e-10, 1e+00], f32)");
  EXPECT_EQ(to_string(tensor({1.5e9, 0.0})), "tensor([1.5e+09, 0.0e+00], f32)");
  EXPECT_EQ(to_string(tensor({NAN, INFINITY, -INFINITY, 1.5f})), "tensor([ nan,  inf, -inf,  1.5], f32)");
  EXPECT_EQ(to_string(tensor({-0.0f, 0.0f})), "tensor([-0.,  0.], f32)");
  EXPECT_EQ(to_string(tensor({0.1}, DType::f16)), "tensor([0.1], f16)");
}

TEST(Print, Ranks) {
  EXPECT_EQ(to_string(tensor(2.5)), "tensor(2.5, f32)");
  EXPECT_EQ(to_string(tensor(7)), "tensor(7, i64)");
  EXPECT_EQ(to_string(arange(8).reshape({2, 2, 2})),
            "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]], i64)");
  EXPECT_EQ(to_string(zeros({2, 0})), "tensor([], shape=[2, 0], f32)");
  EXPECT_EQ(to_string(Tensor()), "tensor(undefined)");
}

TEST(Print, ManyElementsAreCut) {
  EXPECT_EQ(to_string(arange(1001)), "tensor([   0,    1,    2, ...,  998,  999, 1000], shape=[1001], i64)");
  EXPECT_EQ(to_string(zeros({2, 600}, DType::i32)),
            "tensor([[0, 0, 0, ..., 0, 0, 0],\n        [0, 0, 0, ..., 0, 0, 0]], shape=[2, 600], i32)");
  const std::string tall = to_string(broadcast_to(arange(2), {1000, 2}));
  EXPECT_EQ(tall,
            "tensor([[0, 1],\n        [0, 1],\n        [0, 1],\n        ...,\n        [0, 1],\n        [0, 1],\n"
            "        [0, 1]], shape=[1000, 2], i64)");
}

TEST(Print, ViewsAndStreams) {
  std::ostringstream out;
  out << arange(6).reshape({2, 3}).mT();
  EXPECT_EQ(out.str(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]], i64)");
}

TEST(Print, ShapesDtypesAndDevices) {
  std::ostringstream out;
  const Tensor x = zeros({4, 8}, DType::bf16);
  out << x.shape() << ' ' << tensor(1).shape() << ' ' << x.dtype() << ' ' << x.device() << ' ' << Device(cuda(1)) << ' '
      << meta() << ' ' << Device(BackendKey::private_use1);
  EXPECT_EQ(out.str(), "[4, 8] [] bf16 cpu cuda:1 meta private_use1:0");
}

TEST(Print, TheLargestAndTheSmallestNumbers) {
  EXPECT_EQ(to_string(tensor(std::vector<double>{5e-324, 1})), "tensor([5e-324,  1e+00], f64)");
  EXPECT_EQ(to_string(tensor(std::vector<double>{-1.7976931348623157e308})), "tensor([-1.7977e+308], f64)");
}

TEST(Print, ReadingComputes) {
  const Tensor x = ones({2}) + 1;
  EXPECT_TRUE(x.pending());
  EXPECT_EQ(to_string(x), "tensor([2., 2.], f32)");
  EXPECT_FALSE(x.pending());
}

}  // namespace
}  // namespace fermata
