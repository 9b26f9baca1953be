// Views of elements and borrowed memory: what shows where, and who keeps what.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Floats = std::vector<float>;

class HostViews : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, HostViews, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Floats list(std::span<const float> elements) { return Floats(elements.begin(), elements.end()); }

TEST_P(HostViews, ShowElementsByPosition) {
  const Tensor x = arange(24).astype(DType::f32).reshape({2, 3, 4});
  const HostView<const float> v(x);
  EXPECT_EQ(v.rank(), 3u);
  EXPECT_EQ(v.size(), 24u);
  EXPECT_EQ(v.size(1), 3);
  EXPECT_EQ(v.strides(), Shape({12, 4, 1}));
  EXPECT_EQ(v(1, 2, 3), 23);
  EXPECT_EQ(v[5], 5);
  EXPECT_EQ(std::accumulate(v.begin(), v.end(), 0.0f), 276);
  const HostView<const float> turned(x.select(0, 1).T());
  EXPECT_EQ(turned.shape(), Shape({4, 3}));
  EXPECT_EQ(turned(3, 0), 15);
  EXPECT_EQ(HostView<const bool>(x > 22).span().back(), true);
  EXPECT_EQ(HostView<const float>(zeros({0, 3})).size(), 0u);
  EXPECT_EQ(HostView<const float>(full({}, 2.5))[0], 2.5f);
}

TEST_P(HostViews, OfConstElementsKeepTheValueTheyShow) {
  Tensor x = ones({1000}) * 2;
  const HostView<const float> before(x);
  x += 1;
  EXPECT_EQ(HostView<const float>(x)[999], 3);
  EXPECT_EQ(before[999], 2);
  for (int i = 0; i < 4; ++i) x = x * 2;
  x.sync();
  EXPECT_EQ(before[0], 2);
  const auto of_temporary = [] { return HostView<const float>(ones({1000}) + 4); }();
  for (int i = 0; i < 8; ++i) (ones({1000}) * i).sync();  // would use its memory again
  EXPECT_EQ(of_temporary[500], 5);
  x.data<float>();
  const HostView<const float> behind_an_address(x);
  x += 1;
  EXPECT_EQ(behind_an_address[0], 48);
  EXPECT_EQ(x.data<float>()[0], 49);
}

TEST_P(HostViews, OfElementsThatAreWrittenAreTheTensor) {
  Tensor x = zeros({2, 2});
  {
    const HostView<float> v(x);
    v(1, 0) = 7;
    EXPECT_EQ(x.to_vector<float>(), (Floats{0, 0, 7, 0}));
    x += 1;
    EXPECT_EQ(list(v.span()), (Floats{1, 1, 8, 1}));
  }
  const HostView<float> kept = [] { return HostView<float>(ones({3})); }();
  kept[1] = 5;
  EXPECT_EQ(list(kept.span()), (Floats{1, 5, 1}));
}

/// Counts when it is given up.
std::shared_ptr<const void> owner_of(int& released) {
  return {static_cast<const void*>(&released), [&released](const void*) { ++released; }};
}

TEST_P(HostViews, BorrowedMemoryIsKeptUntilItsLastUse) {
  const Floats memory{1, 2, 3, 4};
  int released = 0;
  Tensor y;
  {
    Tensor x = borrow(std::span(memory), {2, 2}, owner_of(released));
    EXPECT_EQ(HostView<const float>(x).data(), memory.data());
    const Tensor row = x[1];
    y = row * 10;
    x = Tensor();
    EXPECT_EQ(row.to_vector<float>(), (Floats{3, 4}));
    EXPECT_EQ(released, 0);  // the view is there
  }
  EXPECT_EQ(y.to_vector<float>(), (Floats{30, 40}));
  EXPECT_EQ(released, 1);
  {
    const HostView<const float> v(borrow(std::span(memory), {4}, owner_of(released)));
    EXPECT_EQ(released, 1);
    EXPECT_EQ(v[3], 4);
  }
  EXPECT_EQ(released, 2);
}

TEST_P(HostViews, BorrowedMemoryIsNeverWritten) {
  static const float memory[4] = {1, 2, 3, 4};  // in pages that cannot be
  Tensor x = borrow(std::span<const float>(memory), {4});
  x += 1;
  x[0].assign(9);
  EXPECT_EQ(x.to_vector<float>(), (Floats{9, 3, 4, 5}));
  Tensor y = borrow(std::span<const float>(memory), {4});
  y.data<float>()[1] = -1;
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, -1, 3, 4}));
  const HostView<float> v(borrow(std::span<const float>(memory), {4}));
  v[0] = 5;
  Tensor big = borrow(std::span<const float>(memory), {4});
  const Tensor z = big * 2 + 1;
  big = Tensor();
  EXPECT_EQ(z.to_vector<float>(), (Floats{3, 5, 7, 9}));
  EXPECT_EQ(list(memory), (Floats{1, 2, 3, 4}));
}

TEST_P(HostViews, VectorsAreTaken) {
  Floats numbers(1000, 2);
  const float* const at = numbers.data();
  const Tensor x = adopt(std::move(numbers), {10, 100});
  EXPECT_EQ(HostView<const float>(x).data(), at);
  EXPECT_EQ(sum(x).item<float>(), 2000);
  EXPECT_EQ(adopt(std::vector<std::int64_t>{}, {0}).shape(), Shape({0}));
}

TEST_P(HostViews, WrongTypesAndSizesAreErrorsOfTheLine) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<DTypeError>([&] { HostView<const double> v(x); }),
            "FM1106 DTypeError: HostView: the element type is f32, not f64\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { HostView<float> v(x.T()); }),
            "FM1309 ValueError: data: the elements of this view are not contiguous\n"
            "  x    f32[3, 2]\n"
            "  at   HERE\n"
            "  hint copy() returns a contiguous tensor");
  EXPECT_EQ(message<ShapeError>([] {
              adopt(Floats{1, 2, 3}, {2, 2});
            }),
            "FM1017 ShapeError: borrow: 3 values for shape [2, 2]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { HostView<const float> v{Tensor()}; }).substr(0, 6), "FM1306");
}

}  // namespace
}  // namespace fermata
