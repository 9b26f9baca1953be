// The order in which reductions go over their axes.
#include "runtime/reduced_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace fermata {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

TEST(OrderReducedAxes, NearestElementsAreLast) {
  Numbers sizes = {5, 7, 3}, strides = {1, 5, 35};
  order_reduced_axes(sizes, 0b111, strides);
  EXPECT_THAT(sizes, ElementsAre(3, 7, 5));
  EXPECT_THAT(strides, ElementsAre(35, 5, 1));
}

TEST(OrderReducedAxes, KeptAxesStayWhereTheyAre) {
  Numbers sizes = {5, 7, 3}, strides = {1, 105, 5};
  order_reduced_axes(sizes, 0b101, strides);
  EXPECT_THAT(sizes, ElementsAre(3, 7, 5));
  EXPECT_THAT(strides, ElementsAre(5, 105, 1));
}

TEST(OrderReducedAxes, DistancesCountInEitherDirection) {
  Numbers sizes = {5, 7}, strides = {-1, 5};
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_THAT(strides, ElementsAre(5, -1));
}

TEST(OrderReducedAxes, AxesOfOneElementHaveNoPlace) {
  Numbers sizes = {5, 1, 7}, strides = {1, 1000, 5};
  order_reduced_axes(sizes, 0b111, strides);
  EXPECT_THAT(sizes, ElementsAre(7, 1, 5));
  EXPECT_THAT(strides, ElementsAre(5, 1000, 1));
}

TEST(OrderReducedAxes, OperandsMustAgree) {
  const Numbers before = {5, 7}, disagree = {1, 5, 7, 1}, one_repeats = {1, 5, 1, 0}, agree = {1, 5, 2, 10, 0, 0};
  Numbers sizes = before, strides = disagree;
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_EQ(strides, disagree);
  strides = one_repeats;
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_EQ(strides, one_repeats);
  EXPECT_EQ(sizes, before);
  strides = agree;
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_THAT(strides, ElementsAre(5, 1, 10, 2, 0, 0));
  EXPECT_THAT(sizes, ElementsAre(7, 5));
}

/// Windows of a reversed row, which overlap, beside a turned operand.
TEST(OrderReducedAxes, NeighborsAlongTheLastAxisStayNeighbors) {
  const Numbers reversed = {-1, 1, 1, 5};
  Numbers sizes = {5, 7}, strides = reversed;
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_EQ(strides, reversed);
  strides = {1, 1, 1, 5};
  order_reduced_axes(sizes, 0b11, strides);
  EXPECT_THAT(strides, ElementsAre(1, 1, 5, 1));
}

}  // namespace
}  // namespace fermata
