// Types of results, and the full text of every error that a wrong call gives.
#include "ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ir/error.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using Types = std::vector<TensorType>;
using Attributes = std::vector<std::int64_t>;

TensorType typed(Op op, const Types& operands, const Attributes& attributes = {}, const TensorType& wanted = {}) {
  return infer(op, operands, attributes, wanted, {});
}
std::string shown(const TensorType& t) { return to_string(t.dtype, t.shape); }
std::string of(Op op, const Types& operands, const Attributes& attributes = {}, const TensorType& wanted = {}) {
  return shown(typed(op, operands, attributes, wanted));
}

template <class E, class F> std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 6), "FM" + std::to_string(error.code()));
    return error.what();
  }
  return "no error";
}
template <class E>
std::string error_of(Op op, const Types& operands, const Attributes& attributes = {}, const TensorType& wanted = {}) {
  return error_text<E>([&] { typed(op, operands, attributes, wanted); });
}

const TensorType kMatrix{DType::f32, {4, 8}}, kVector{DType::f32, {8}}, kIndex{DType::i64, {3}};

TEST(Infer, PointwiseFollowsTheRuleOfTheRow) {
  EXPECT_EQ(of(Op::add, {kMatrix, kVector}), "f32[4, 8]");
  EXPECT_EQ(of(Op::add, {{DType::i8, {1, 3}}, {DType::i8, {2, 1}}}), "i8[2, 3]");
  EXPECT_EQ(of(Op::add, {kMatrix}), "f32[4, 8]") << "the other operand is a host scalar";
  EXPECT_EQ(of(Op::divide, {{DType::i32, {3}}, {DType::u8, {3}}}), "f32[3]") << "both become f32";
  EXPECT_EQ(of(Op::sqrt, {{DType::boolean, {}}}), "f32[]");
  EXPECT_EQ(of(Op::exp, {{DType::bf16, {2}}}), "bf16[2]");
  EXPECT_EQ(of(Op::less, {kMatrix, kVector}), "bool[4, 8]");
  EXPECT_EQ(of(Op::logical_and, {{DType::i32, {3}}, {DType::f64, {3}}}), "bool[3]");
  EXPECT_EQ(of(Op::isnan, {{DType::i32, {3}}}), "bool[3]");
  EXPECT_EQ(of(Op::add, {{DType::f32, {0, 3}}, {DType::f32, {1, 3}}}), "f32[0, 3]");
}

TEST(Infer, WhereTakesItsTypeFromWhatItChooses) {
  const TensorType mask{DType::boolean, {4, 1}};
  EXPECT_EQ(of(Op::where, {mask, kVector, kMatrix}), "f32[4, 8]");
  EXPECT_EQ(of(Op::where, {mask, {DType::i8, {8}}}), "i8[4, 8]");
  EXPECT_EQ(of(Op::where, {mask}, {}, {DType::f64, {}}), "f64[4, 1]");
  EXPECT_EQ(of(Op::where, {{DType::f32, {8}}, kVector, kVector}), "f32[8]") << "any condition: non-zero is true";
}

TEST(Infer, Reductions) {
  EXPECT_EQ(of(Op::sum, {kMatrix}, {2, 0}), "f32[4]");
  EXPECT_EQ(of(Op::sum, {kMatrix}, {1, 1}), "f32[1, 8]");
  EXPECT_EQ(of(Op::sum, {{DType::boolean, {4, 8}}}, {3, 0}), "i64[]");
  EXPECT_EQ(of(Op::prod, {{DType::u8, {4, 8}}}, {3, 1}), "u64[1, 1]");
  EXPECT_EQ(of(Op::max, {{DType::i8, {4, 8}}}, {2, 0}), "i8[4]");
  EXPECT_EQ(of(Op::argmax, {kMatrix}, {2, 0}), "i64[4]");
  EXPECT_EQ(of(Op::argmin, {kMatrix}, {3, 0}), "i64[]");
  EXPECT_EQ(of(Op::any, {kMatrix}, {1, 0}), "bool[8]");
  EXPECT_EQ(of(Op::sum, {{DType::f32, {0, 8}}}, {1, 0}), "f32[8]") << "an empty sum is zero";
  EXPECT_EQ(of(Op::max, {{DType::f32, {0, 8}}}, {2, 0}), "f32[0]") << "the reduced axis is not empty";
}

TEST(Infer, Views) {
  EXPECT_EQ(of(Op::reshape, {kMatrix}, {}, {DType::f32, {2, 16}}), "f32[2, 16]");
  EXPECT_EQ(of(Op::permute, {kMatrix}, {1, 0}), "f32[8, 4]");
  EXPECT_EQ(of(Op::expand_dims, {kMatrix}, {0b1001}), "f32[1, 4, 8, 1]");
  EXPECT_EQ(of(Op::squeeze, {{DType::f32, {1, 4, 1}}}, {0b101}), "f32[4]");
  EXPECT_EQ(of(Op::slice, {kMatrix}, {3, 0, -1, 2}, {DType::f32, {4, 4}}), "f32[4, 4]");
  EXPECT_EQ(of(Op::slice, {kMatrix}, {0, 0, 1, 1}, {DType::f32, {0, 8}}), "f32[0, 8]");
  EXPECT_EQ(of(Op::broadcast_to, {kVector}, {}, {DType::f32, {4, 8}}), "f32[4, 8]");
  EXPECT_EQ(of(Op::copy, {kMatrix}), "f32[4, 8]");
}

TEST(Infer, Makers) {
  EXPECT_EQ(of(Op::input, {}, {}, {DType::c64, {2}}), "c64[2]");
  EXPECT_EQ(of(Op::full, {}, {}, {DType::boolean, {2}}), "bool[2]");
  EXPECT_EQ(of(Op::iota, {}, {1}, {DType::i64, {2, 3}}), "i64[2, 3]");
  EXPECT_EQ(of(Op::random_normal, {}, {}, {DType::bf16, {2}}), "bf16[2]");
  EXPECT_EQ(of(Op::cast, {kMatrix}, {}, {DType::i8, {}}), "i8[4, 8]");
}

TEST(Infer, GathersAndMatmul) {
  EXPECT_EQ(of(Op::concat, {kMatrix, {DType::f32, {2, 8}}}, {0}), "f32[6, 8]");
  EXPECT_EQ(of(Op::take, {kMatrix, kIndex}, {1}), "f32[4, 3]");
  EXPECT_EQ(of(Op::take, {kMatrix, {DType::u8, {2, 5}}}, {0}), "f32[2, 5, 8]");
  EXPECT_EQ(of(Op::take, {kMatrix, {DType::i32, {}}}, {0}), "f32[8]");
  EXPECT_EQ(of(Op::index_add, {kMatrix, kIndex, {DType::f32, {3, 8}}}, {0}), "f32[4, 8]");
  EXPECT_EQ(of(Op::gather, {kMatrix, {DType::u8, {3, 20}}}, {1}), "f32[3, 20]");
  EXPECT_EQ(of(Op::scatter, {kMatrix, {DType::i64, {3, 20}}, {DType::f32, {3, 20}}}, {1}), "f32[4, 8]");
  EXPECT_EQ(of(Op::unfold, {kMatrix}, {1, 3, 2, 2}), "f32[4, 2, 3]");
  EXPECT_EQ(of(Op::fold, {{DType::f32, {4, 2, 3}}}, {1, 2, 2}, {DType::f32, {4, 8}}), "f32[4, 8]");
  const TensorType images{DType::f32, {2, 6, 9, 8}}, filters{DType::f32, {4, 3, 3, 2}},
      result{DType::f32, {2, 4, 5, 7}};
  const std::vector<std::int64_t> arguments{2, 2, 1, 1, 0, 1, 0, 1, 1};
  EXPECT_EQ(of(Op::convolution, {images, filters}, arguments), "f32[2, 4, 5, 7]");
  EXPECT_EQ(of(Op::convolution_data_gradient, {result, filters}, arguments, images), "f32[2, 6, 9, 8]");
  EXPECT_EQ(of(Op::convolution_weight_gradient, {images, result}, arguments, filters), "f32[4, 3, 3, 2]");
  EXPECT_EQ(of(Op::update, {kMatrix, {DType::f32, {2, 2}}}, {31, -8, -1}), "f32[4, 8]");
  EXPECT_EQ(of(Op::matmul, {kMatrix, {DType::f32, {8, 3}}}), "f32[4, 3]");
  EXPECT_EQ(of(Op::matmul, {kVector, {DType::f32, {8, 3}}}), "f32[3]");
  EXPECT_EQ(of(Op::matmul, {kMatrix, kVector}), "f32[4]");
  EXPECT_EQ(of(Op::matmul, {kVector, kVector}), "f32[]");
  EXPECT_EQ(of(Op::matmul, {{DType::i8, {5, 1, 2, 3}}, {DType::i8, {7, 3, 4}}}), "i8[5, 7, 2, 4]");
}

TEST(InferErrors, ShapesThatDoNotBroadcast) {
  EXPECT_EQ(error_of<ShapeError>(Op::add, {{DType::f32, {2, 3}}, {DType::f32, {4}}}),
            "FM1001 ShapeError: add: shapes do not broadcast (3 and 4)\n"
            "  lhs  f32[2, 3]   axis 1 is 3\n"
            "  rhs  f32[4]      axis 0 is 4");
  EXPECT_EQ(error_of<ShapeError>(Op::where, {{DType::boolean, {1}}, {DType::f32, {2, 3}}, {DType::f32, {5, 3}}}),
            "FM1001 ShapeError: where: shapes do not broadcast (2 and 5)\n"
            "  cond bool[1]\n"
            "  x    f32[2, 3]   axis 0 is 2\n"
            "  y    f32[5, 3]   axis 0 is 5");
  EXPECT_EQ(error_of<ShapeError>(Op::matmul, {{DType::f32, {2, 4, 8}}, {DType::f32, {3, 8, 5}}}),
            "FM1001 ShapeError: matmul: shapes do not broadcast (2 and 3)\n"
            "  lhs  f32[2, 4, 8]   axis 0 is 2\n"
            "  rhs  f32[3, 8, 5]   axis 0 is 3");
}

TEST(InferErrors, SizesThatCannotBe) {
  const auto check = [](std::vector<std::int64_t> sizes) {
    return error_text<ShapeError>([&] { check_shape("zeros", sizes, DType::f32, {}); });
  };
  EXPECT_EQ(check({2, -3}), "FM1002 ShapeError: zeros: a size is negative\n  shape f32[2, -3]   axis 1 is -3");
  EXPECT_EQ(check(std::vector<std::int64_t>(17, 1)),
            "FM1003 ShapeError: zeros: 17 axes, more than 16\n"
            "  shape f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]");
  EXPECT_EQ(check({std::int64_t{1} << 40, std::int64_t{1} << 30}),
            "FM1005 ShapeError: zeros: too many elements for a 64-bit size\n  shape f32[1099511627776, 1073741824]");
  EXPECT_EQ(check({std::int64_t{1} << 61}),
            "FM1005 ShapeError: zeros: too many elements for a 64-bit size\n  shape f32[2305843009213693952]")
      << "the bytes overflow, the count does not";
  EXPECT_EQ(check_shape("zeros", std::vector<std::int64_t>{3, 0}, DType::f64, {}), 0);
  const TensorType tall{DType::i8, {std::int64_t{1} << 40, 1}}, wide{DType::i8, {1, std::int64_t{1} << 40}};
  EXPECT_EQ(error_of<ShapeError>(Op::add, {tall, wide}),
            "FM1005 ShapeError: add: too many elements for a 64-bit size\n  shape i8[1099511627776, 1099511627776]");
  EXPECT_EQ(error_of<ShapeError>(Op::expand_dims, {kVector}, {0xffff}),
            "FM1003 ShapeError: expand_dims: 17 axes, more than 16\n  x    f32[8]");
}

TEST(InferErrors, Matmul) {
  EXPECT_EQ(error_of<ShapeError>(Op::matmul, {kMatrix, {DType::f32, {7, 3}}}),
            "FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)\n"
            "  lhs  f32[4, 8]   axis 1 is 8\n"
            "  rhs  f32[7, 3]   axis 0 is 7");
  EXPECT_EQ(error_of<ShapeError>(Op::matmul, {kMatrix, {DType::f32, {}}}),
            "FM1010 ShapeError: matmul: a 0-d tensor has no rows\n"
            "  lhs  f32[4, 8]\n"
            "  rhs  f32[]\n"
            "  hint use multiply to scale a tensor");
  EXPECT_EQ(error_of<DTypeError>(Op::matmul, {{DType::boolean, {4, 8}}, {DType::boolean, {8, 3}}}),
            "FM1101 DTypeError: matmul: does not take bool\n"
            "  lhs  bool[4, 8]\n"
            "  rhs  bool[8, 3]\n"
            "  hint convert it first, for example to i32");
}

TEST(InferErrors, Reshape) {
  EXPECT_EQ(error_of<ShapeError>(Op::reshape, {kMatrix}, {}, {DType::f32, {5, 6}}),
            "FM1006 ShapeError: reshape: [5, 6] has 30 elements\n  x    f32[4, 8]   32 elements");
  const auto resolve = [](std::vector<std::int64_t> sizes) {
    return error_text<UserError>([&] { resolve_reshape(sizes, kMatrix, {}); });
  };
  EXPECT_EQ(resolve({5, -1}),
            "FM1006 ShapeError: reshape: the -1 in [5, -1] cannot be inferred\n  x    f32[4, 8]   32 elements");
  EXPECT_EQ(resolve({-1, -1}), "FM1304 ValueError: reshape: more than one -1 in [-1, -1]\n  x    f32[4, 8]");
  EXPECT_EQ(resolve({-2, -1}), "FM1002 ShapeError: reshape: a size is negative\n  shape f32[-2, 1]   axis 0 is -2");
  EXPECT_EQ(resolve_reshape(std::vector<std::int64_t>{2, -1, 4}, kMatrix, {}), (Shape{2, 4, 4}));
  EXPECT_EQ(resolve_reshape(std::vector<std::int64_t>{32}, kMatrix, {}), Shape{32});
}

TEST(InferErrors, OtherShapes) {
  EXPECT_EQ(error_of<ShapeError>(Op::broadcast_to, {kMatrix}, {}, {DType::f32, {4, 1}}),
            "FM1007 ShapeError: broadcast_to: cannot stretch to [4, 1]\n  x    f32[4, 8]");
  EXPECT_EQ(error_of<ShapeError>(Op::concat, {kMatrix, {DType::f32, {4, 7}}}, {0}),
            "FM1008 ShapeError: concat: shapes differ in an axis other than 0\n  x0   f32[4, 8]\n  x1   f32[4, 7]");
  EXPECT_EQ(error_of<ShapeError>(Op::max, {{DType::f32, {0, 8}}}, {1, 0}),
            "FM1009 ShapeError: max: no elements\n  x    f32[0, 8]   axis 0 is 0");
  EXPECT_EQ(error_of<ShapeError>(Op::take, {{DType::f32, {0}}, kIndex}, {0}),
            "FM1009 ShapeError: take: no elements\n  x     f32[0]   axis 0 is 0\n  index i64[3]");
  EXPECT_EQ(error_of<ShapeError>(Op::index_add, {kMatrix, kIndex, kMatrix}, {0}),
            "FM1011 ShapeError: index_add: the shape of source does not match\n"
            "  x      f32[4, 8]\n"
            "  index  i64[3]\n"
            "  source f32[4, 8]   should be [3, 8]");
  EXPECT_EQ(error_of<ShapeError>(Op::concat, {}, {0}), "FM1012 ShapeError: concat: requires at least one tensor");
  EXPECT_EQ(error_of<ShapeError>(Op::squeeze, {kMatrix}, {2}),
            "FM1014 ShapeError: squeeze: axis 1 has size 8, not 1\n  x    f32[4, 8]");
}

TEST(InferErrors, DTypes) {
  const TensorType mask{DType::boolean, {3}};
  EXPECT_EQ(error_of<DTypeError>(Op::add, {mask, mask}),
            "FM1101 DTypeError: add: does not take bool\n"
            "  lhs  bool[3]\n"
            "  rhs  bool[3]\n"
            "  hint convert it first, for example to i32");
  EXPECT_EQ(error_of<DTypeError>(Op::bitwise_and, {kVector, kVector}),
            "FM1101 DTypeError: bitwise_and: does not take f32\n  lhs  f32[8]\n  rhs  f32[8]");
  EXPECT_EQ(error_of<DTypeError>(Op::add, {kVector, {DType::f64, {8}}}),
            "FM1102 DTypeError: add: operands differ in dtype (f32 and f64)\n"
            "  lhs  f32[8]\n"
            "  rhs  f64[8]\n"
            "  hint cast both to f64");
  EXPECT_EQ(error_of<DTypeError>(Op::add, {{DType::u64, {8}}, {DType::i64, {8}}}),
            "FM1102 DTypeError: add: operands differ in dtype (u64 and i64)\n  lhs  u64[8]\n  rhs  i64[8]");
  EXPECT_EQ(error_of<DTypeError>(Op::take, {kMatrix, kVector}, {0}),
            "FM1103 DTypeError: take: positions must be integers, not f32\n  x     f32[4, 8]\n  index f32[8]");
  EXPECT_EQ(error_of<DTypeError>(Op::random_normal, {}, {}, {DType::i32, {3}}),
            "FM1104 DTypeError: random_normal: the result must be floating, not i32");
  EXPECT_EQ(error_of<UnsupportedError>(Op::exp, {{DType::qi8, {3}}}),
            "FM2004 UnsupportedError: exp: does not compute with qi8\n  x    qi8[3]");
  EXPECT_EQ(error_of<DTypeError>(Op::floor, {{DType::c64, {3}}}),
            "FM1101 DTypeError: floor: does not take c64\n  x    c64[3]");
}

TEST(InferErrors, AxesAndPositions) {
  EXPECT_EQ(error_text<IndexError>([] { normalize_axis("sum", 2, kMatrix, {}); }),
            "FM1201 IndexError: sum: axis 2 is out of range for 2 axes\n"
            "  x    f32[4, 8]\n"
            "  hint axes go from -2 to 1");
  EXPECT_EQ(error_text<IndexError>([] {
              normalize_axis("sum", 0, {DType::f32, {}}, {});
            }),
            "FM1201 IndexError: sum: axis 0 is out of range for a 0-d tensor\n  x    f32[]");
  const std::vector<std::int64_t> twice{1, -1};
  EXPECT_EQ(error_text<IndexError>([&] { axes_mask("sum", twice, kMatrix, {}); }),
            "FM1202 IndexError: sum: axis 1 is named twice in [1, -1]\n  x    f32[4, 8]");
  EXPECT_EQ(normalize_axis("sum", -2, kMatrix, {}), 0u);
  EXPECT_EQ(axes_mask("sum", {}, kMatrix, {}), 3);
  EXPECT_EQ(axes_mask("sum", {}, {DType::f32, {}}, {}), 0);
  EXPECT_EQ(axes_mask("sum", std::vector<std::int64_t>{-1}, kMatrix, {}), 2);
  EXPECT_EQ(error_of<IndexError>(Op::slice, {kMatrix}, {2, 0, 1, 1}, {DType::f32, {3, 8}}),
            "FM1203 IndexError: slice: 3 elements from 2 by 1 exceed axis 0\n  x    f32[4, 8]   axis 0 is 4");
  EXPECT_EQ(error_of<IndexError>(Op::update, {kMatrix, kVector}, {30, 1}),
            "FM1203 IndexError: update: the view exceeds the tensor\n"
            "  x      f32[4, 8]   32 elements\n"
            "  values f32[8]      go to elements 30 to 37");
  EXPECT_EQ(error_of<IndexError>(Op::concat, {kMatrix}, {5}),
            "FM1201 IndexError: concat: axis 5 is out of range for 2 axes\n"
            "  x    f32[4, 8]\n"
            "  hint axes go from -2 to 1");
}

TEST(InferErrors, Values) {
  EXPECT_EQ(error_of<ValueError>(Op::argmax, {{DType::f32, {2, 3, 4}}}, {3, 0}),
            "FM1301 ValueError: argmax: takes one axis or all of them\n  x    f32[2, 3, 4]");
  EXPECT_EQ(error_of<ValueError>(Op::permute, {kMatrix}, {0, 0}),
            "FM1302 ValueError: permute: [0, 0] is not a permutation of the axes\n  x    f32[4, 8]");
  EXPECT_EQ(error_of<ValueError>(Op::slice, {kMatrix}, {0, 0, 1, 0}, {DType::f32, {1, 1}}),
            "FM1303 ValueError: slice: the step along axis 1 is 0\n  x    f32[4, 8]");
  EXPECT_EQ(error_of<ValueError>(Op::slice, {kMatrix}, {0, 1}, {DType::f32, {1, 1}}),
            "FM1305 ValueError: slice: needs a start, a step and a count for every axis\n  x    f32[4, 8]");
}

TEST(InferErrors, NameTheCallersLine) {
  const auto here = std::source_location::current();
  const std::string shapes = error_text<ShapeError>([&] {
    infer(Op::add, Types{kMatrix, {DType::f32, {3}}}, {}, {}, here);
  });
  EXPECT_EQ(shapes.substr(shapes.rfind('\n')), "\n  at   ir/infer_test.cpp:" + std::to_string(here.line()));
}

TEST(ErrorPage, HasAnEntryForEveryCodeOfThisFolder) {
  std::ifstream file(fermata::test_folder() + "/../docs/errors.md");
  std::ostringstream page;
  page << file.rdbuf();
  for (const int code :
       {1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1014, 1101, 1102, 1103,
        1104, 1201, 1202, 1203, 1204, 1301, 1302, 1303, 1304, 1305, 1501, 1502, 1503, 1504, 2004, 9001})
    EXPECT_THAT(page.str(), ::testing::HasSubstr("\n## FM" + std::to_string(code) + "\n"));
}

}  // namespace
}  // namespace fermata
