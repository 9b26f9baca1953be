// Shapes: counts, strides, broadcasting, and reshapes of strided tensors.
#include "ir/shape.h"

#include <gtest/gtest.h>

#include "seed.h"

namespace fermata {
namespace {

TEST(Shape, CountsElementsAndSeesOverflow) {
  EXPECT_EQ(checked_element_count(Shape{}), 1);
  EXPECT_EQ(checked_element_count(Shape{3, 4}), 12);
  EXPECT_EQ(checked_element_count(Shape{3, 0, 4}), 0);
  EXPECT_EQ(checked_element_count(Shape{std::int64_t{1} << 31, std::int64_t{1} << 31}), std::int64_t{1} << 62);
  EXPECT_EQ(checked_element_count(Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(checked_element_count(Shape{0, std::int64_t{1} << 32, std::int64_t{1} << 32}), std::nullopt);
}

TEST(Shape, DenseStridesSkipNothing) {
  EXPECT_EQ(dense_strides(Shape{2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(dense_strides(Shape{2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(dense_strides(Shape{}), Shape{});
}

TEST(Shape, DenseIgnoresStridesOfSizeOne) {
  EXPECT_TRUE(is_dense(Shape{2, 1, 4}, Shape{4, 99, 1}));
  EXPECT_TRUE(is_dense(Shape{}, Shape{}));
  EXPECT_TRUE(is_dense(Shape{0, 4}, Shape{7, 7}));
  EXPECT_FALSE(is_dense(Shape{2, 4}, Shape{5, 1}));
  EXPECT_FALSE(is_dense(Shape{4}, Shape{-1}));
  EXPECT_FALSE(is_dense(Shape{4}, Shape{0}));
}

TEST(Shape, BroadcastAlignsToTheRight) {
  EXPECT_EQ(broadcast_shapes(Shape{4, 1, 3}, Shape{5, 3}), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes(Shape{}, Shape{2, 0}), (Shape{2, 0}));
  EXPECT_EQ(broadcast_shapes(Shape{1}, Shape{0}), Shape{0});
  EXPECT_EQ(broadcast_shapes(Shape{2}, Shape{0}), std::nullopt);
  EXPECT_EQ(broadcast_shapes(Shape{2, 3}, Shape{2, 4}), std::nullopt);
  EXPECT_EQ(stretched_axes(Shape{1, 3}, Shape{4, 5, 3}), 0b011);
  EXPECT_EQ(stretched_axes(Shape{1, 3}, Shape{1, 3}), 0);
}

TEST(Shape, ReshapeKeepsViewsWhereStridesAllow) {
  EXPECT_EQ(reshape_strides(Shape{4, 6}, Shape{6, 1}, Shape{2, 2, 6}), (Shape{12, 6, 1}));
  EXPECT_EQ(reshape_strides(Shape{4, 6}, Shape{12, 1}, Shape{2, 2, 3, 2}), (Shape{24, 12, 2, 1}));
  EXPECT_EQ(reshape_strides(Shape{4, 6}, Shape{12, 1}, Shape{24}), std::nullopt);
  EXPECT_EQ(reshape_strides(Shape{4, 6}, Shape{1, 4}, Shape{24}), std::nullopt);
  EXPECT_EQ(reshape_strides(Shape{6}, Shape{-1}, Shape{2, 3}), (Shape{-3, -1}));
  EXPECT_EQ(reshape_strides(Shape{1, 1}, Shape{9, 9}, Shape{}), Shape{});
  EXPECT_TRUE(reshape_strides(Shape{1}, Shape{5}, Shape{1, 1}).has_value());
  EXPECT_EQ(reshape_strides(Shape{0, 3}, Shape{1, 5}, Shape{3, 0}), dense_strides(Shape{3, 0}));
  // Not as many elements: a file may say so.
  EXPECT_EQ(reshape_strides(Shape{2, 3}, Shape{3, 1}, Shape{15}), std::nullopt);
  EXPECT_EQ(reshape_strides(Shape{2, 3}, Shape{3, 1}, Shape{}), std::nullopt);
  EXPECT_EQ(reshape_strides(Shape{3}, Shape{1}, Shape{4, 3}), std::nullopt);
  EXPECT_EQ(reshape_strides(Shape{3}, Shape{1}, Shape{3, 0}), std::nullopt);
}

std::vector<std::int64_t> offsets_in_order(const Shape& sizes, const Shape& strides) {
  std::vector<std::int64_t> offsets{0};
  for (unsigned axis = 0; axis < sizes.rank(); ++axis) {
    std::vector<std::int64_t> next;
    for (const std::int64_t base : offsets)
      for (std::int64_t i = 0; i < sizes[axis]; ++i) next.push_back(base + i * strides[axis]);
    offsets = std::move(next);
  }
  return offsets;
}

class ShapeProperty : public testing::SeededTest {};

/// Where there are strides, they address the same elements in the same order; a dense tensor always has them.
TEST_F(ShapeProperty, ReshapedStridesAddressTheSameElements) {
  int found = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::int64_t factors[] = {1, 2, 2, 3, 3};
    Shape sizes{1}, new_sizes{1};
    for (const std::int64_t f : factors) {
      if (between(0, 1) != 0)
        sizes.push_back(f);
      else
        sizes[sizes.rank() - 1u] *= f;
      if (between(0, 1) != 0)
        new_sizes.push_back(f);
      else
        new_sizes[new_sizes.rank() - 1u] *= f;
    }
    Shape strides = dense_strides(sizes);
    const bool dense = between(0, 3) == 0;
    if (!dense)
      for (std::int64_t& s : strides) s = between(0, 2) == 0 ? s * 2 : between(0, 4) == 0 ? 0 : -s;
    const auto reshaped = reshape_strides(sizes, strides, new_sizes);
    ASSERT_TRUE(reshaped.has_value() || !dense);
    if (!reshaped) continue;
    ++found;
    ASSERT_EQ(offsets_in_order(sizes, strides), offsets_in_order(new_sizes, *reshaped))
        << to_string(sizes) << " by " << to_string(strides) << " as " << to_string(new_sizes);
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace fermata
