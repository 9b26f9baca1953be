// Data loaders: order, batches, threads, errors; and the text of a progress line.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "fermata/data_loader.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Numbers = std::vector<int>;

class DataLoaders : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, DataLoaders, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

TensorDataset<Tensor> counting(std::int64_t size) { return TensorDataset<Tensor>(arange(size)); }
template <class L> std::vector<Numbers> batches_of(L& loader) {
  std::vector<Numbers> all;
  for (const Tensor& batch : loader) all.push_back(batch.to_vector<int>());
  return all;
}

TEST_P(DataLoaders, BatchesComeInOrder) {
  for (const std::int64_t prefetch : {0, 1, 3}) {
    DataLoader all(counting(7), {.batch_size = 3, .prefetch = prefetch});
    EXPECT_EQ(all.size(), 3);
    EXPECT_EQ(batches_of(all), (std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}, {6}}));
    DataLoader full(counting(7), {.batch_size = 3, .drop_last = true, .prefetch = prefetch});
    EXPECT_EQ(full.size(), 2);
    EXPECT_EQ(batches_of(full), (std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}}));
    DataLoader none(counting(0), {.prefetch = prefetch});
    EXPECT_TRUE(batches_of(none).empty());
  }
}

TEST_P(DataLoaders, EveryEpochHasAnOrderOfItsOwn) {
  DataLoader a(counting(50), {.batch_size = 8, .shuffle = true, .seed = 3});
  DataLoader b(counting(50), {.batch_size = 8, .shuffle = true, .seed = 3, .prefetch = 0});
  DataLoader c(counting(50), {.batch_size = 8, .shuffle = true, .seed = 4});
  const auto first = batches_of(a), second = batches_of(a);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, batches_of(b));
  EXPECT_EQ(second, batches_of(b));
  EXPECT_NE(first, batches_of(c));
  Numbers all;
  for (const Numbers& batch : first) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  Numbers wanted(50);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(all, wanted);
}

TEST_P(DataLoaders, GoOnWhereTheyWere) {
  DataLoader a(counting(20), {.batch_size = 3, .shuffle = true}), b = a;
  batches_of(a);
  std::vector<Numbers> rest;
  DataPosition at;
  for (const Tensor& batch : a) {
    if (a.position().batch == 3) at = a.position();
    if (a.position().batch > 3) rest.push_back(batch.to_vector<int>());
  }
  EXPECT_EQ(at, (DataPosition{1, 3}));
  EXPECT_EQ(a.position(), (DataPosition{2, 0}));
  b.seek(at);
  EXPECT_EQ(batches_of(b), rest);
  for (const Tensor& batch : b)
    if (batch.defined()) break;  // the thread ends with the loop
  EXPECT_EQ(b.position(), (DataPosition{2, 1}));
}

/// Examples one by one, with noise of the default generator.
struct Noisy {
  struct Example {
    Tensor x, label;
  };
  std::int64_t size() const { return 10; }
  Example operator[](std::int64_t i) const { return {rand({2}) + i, full({}, i)}; }
};

TEST_P(DataLoaders, ExamplesAreStackedAndDrawTheSame) {
  const auto read = [](std::int64_t prefetch) {
    DataLoader loader(Noisy(), {.batch_size = 4, .shuffle = true, .prefetch = prefetch});
    std::vector<float> all;
    for (const auto& [x, label] : loader) {
      EXPECT_EQ(x.shape(), Shape({label.size(0), 2}));
      EXPECT_FALSE(x.pending());
      for (const float v : x.to_vector<float>()) all.push_back(v);
    }
    return all;
  };
  manual_seed(5);
  const float before = rand({1}).item<float>();
  manual_seed(5);
  const auto a = read(0);
  EXPECT_EQ(rand({1}).item<float>(), before);  // of the loop's own generator nothing was taken
  EXPECT_EQ(a, read(2));
}

struct Failing {
  std::int64_t size() const { return 6; }
  Tensor operator[](std::int64_t i) const {
    if (i == 4) throw std::runtime_error("example 4 is damaged");
    return full({}, i);
  }
};

TEST_P(DataLoaders, ErrorsAreThrownInTheLoop) {
  for (const std::int64_t prefetch : {0, 2}) {
    DataLoader loader(Failing(), {.batch_size = 2, .prefetch = prefetch});
    Numbers seen;
    std::string error;
    try {
      for (const Tensor& batch : loader) seen.push_back(batch[0].item<int>());
    } catch (const std::runtime_error& e) { error = e.what(); }
    EXPECT_EQ(seen, (Numbers{0, 2}));
    EXPECT_EQ(error, "example 4 is damaged");
  }
  EXPECT_EQ(message<ValueError>([] { DataLoader(counting(3), {.batch_size = 0}); }),
            "FM1377 ValueError: DataLoader: batch_size is 0, not positive\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] { TensorDataset(std::tuple(ones({3}), ones({4}))); }),
            "FM1085 ShapeError: TensorDataset: first axes differ\n"
            "  lhs  f32[3]\n"
            "  rhs  f32[4]\n"
            "  at   HERE");
}

TEST_P(DataLoaders, TrainingDoesNotDependOnTheThread) {
  const auto run = [](std::int64_t prefetch) {
    const Tensor x = random_f64({64, 4}, 0, 1, true, 1), y = sum(x * arange(4), 1);
    DataLoader loader(TensorDataset(std::tuple(x, y)), {.batch_size = 8, .shuffle = true, .prefetch = prefetch});
    Tensor w = zeros({4}, DType::f64).requires_grad(true);
    optim::Adam adam({w}, {.learning_rate = 0.05});
    for (int epoch = 0; epoch < 3; ++epoch)
      for (const auto& [at, target] : loader) {
        adam.zero_grad();
        mean(square(matmul(at, w) - target)).backward();
        adam.step();
      }
    return w.to_vector<double>();
  };
  EXPECT_EQ(run(0), run(2));
}

TEST(ProgressLine, HasRateAndTimeLeft) {
  EXPECT_EQ(detail::progress_line("train", 0, 100, 0), "train  0/100");
  EXPECT_EQ(detail::progress_line("train", 30, 100, 2.4), "train  30/100  12.5/s  5.6 s left");
  EXPECT_EQ(detail::progress_line("train", 1, 8000, 1), "train  1/8000  1.0/s  2:13:19 left");
  EXPECT_EQ(detail::progress_line("train", 100, 100, 8), "train  100/100  12.5/s  8.0 s");
}

}  // namespace
}  // namespace fermata
