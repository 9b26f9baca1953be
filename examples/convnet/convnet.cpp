// A convolutional network that recognizes handwritten digits (examples/digits), trained in eager and in compiled mode.
//   convnet [EPOCHS [IMAGES]] [--cuda]
//
// Exits with an error unless both modes have the same losses and reach 96% on the test images. With IMAGES it trains on
// that many images only, and does not check the accuracy.
#include <compare_modes.h>
#include <device_argument.h>
#include <digits/training.h>

#include <cstdlib>

namespace fm = fermata;
using fm::Tensor;

namespace {

constexpr std::int64_t kBatch = 64, kSide = 8, kClasses = 10;
constexpr double kAccuracy = 0.96, kDifference = 1e-4;

/// Two convolutions with batch normalization and pooling, and one linear layer.
class ConvNet {
 public:
  ConvNet(std::uint64_t seed, fm::Device device) : generator_(seed), device_(device) {
    first_ = weight({16, 1, 3, 3}, 9), second_ = weight({32, 16, 3, 3}, 16 * 9);
    for (const std::int64_t channels : {16, 32}) {
      scale_.push_back(filled(channels, 1).requires_grad(true)),
          shift_.push_back(filled(channels, 0).requires_grad(true));
      running_mean_.push_back(filled(channels, 0)), running_var_.push_back(filled(channels, 1));
    }
    last_ = weight({kClasses, 32 * 2 * 2}, 32 * 2 * 2), bias_ = filled(kClasses, 0).requires_grad(true);
  }

  Tensor logits(const Tensor& images, bool training) const {
    Tensor x = images.reshape({-1, 1, kSide, kSide});
    x = block(x, first_, 0, training);
    x = block(x, second_, 1, training);
    return fm::linear(x.reshape({-1, 32 * 2 * 2}), last_, bias_);
  }
  std::vector<Tensor> parameters() const {
    return {first_, second_, scale_[0], scale_[1], shift_[0], shift_[1], last_, bias_};
  }
  double accuracy(const Tensor& images, const Tensor& labels) const {
    const fm::NoGradGuard no_grad;
    return fm::mean((fm::argmax(logits(images, false), 1) == labels).astype(fm::DType::f32)).item<double>();
  }

 private:
  Tensor weight(const fm::IntegerList& sizes, double inputs) {
    return fm::normal(sizes, 0, std::sqrt(2 / inputs), fm::DType::f32, generator_).to(device_).requires_grad(true);
  }
  Tensor filled(std::int64_t count, float value) const { return fm::full({count}, value, fm::DType::f32, device_); }
  Tensor block(const Tensor& x, const Tensor& filters, std::size_t i, bool training) const {
    const Tensor y = fm::conv2d(x, filters, {}, 1, "same");
    return fm::max_pool2d(
        fm::relu(fm::batch_norm(y, running_mean_[i], running_var_[i], scale_[i], shift_[i], training)), 2);
  }

  fm::Generator generator_;
  fm::Device device_;
  Tensor first_, second_, last_, bias_;
  std::vector<Tensor> scale_, shift_, running_mean_, running_var_;
};

/// Trains a network from a fixed seed, in the mode of the thread.
std::vector<double> train(const digits::Data& data, int epochs, double& accuracy) {
  const ConvNet net(1, fm::device(data.train_images));
  fm::optim::Adam adam(net.parameters(), {.learning_rate = 3e-3});
  fm::Generator order(2);
  std::vector<double> losses;
  const std::int64_t count = data.train_images.size(0);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const Tensor shuffled = fm::permutation(count, order).to(fm::device(data.train_images));
    for (std::int64_t from = 0; from + kBatch <= count; from += kBatch) {
      const Tensor batch = shuffled.slice(0, from, from + kBatch);
      const Tensor images = fm::take(data.train_images, batch), labels = fm::take(data.train_labels, batch);
      adam.zero_grad();
      const Tensor loss = fm::cross_entropy(net.logits(images, true), labels);
      loss.backward();
      adam.step();
      losses.push_back(loss.item<double>());
    }
    accuracy = net.accuracy(data.test_images, data.test_labels);
    std::printf("  epoch %2d  loss %.4f  test accuracy %.2f%%\n", epoch, losses.back(), 100 * accuracy);
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const fm::Device device = examples::take_device(argc, argv);
    const int epochs = argc > 1 ? std::atoi(argv[1]) : 6;
    const std::int64_t images = argc > 2 ? std::atoi(argv[2]) : fm::kNone;
    digits::Data data = digits::load_data(digits::find_data());
    for (Tensor* const part : {&data.train_images, &data.train_labels, &data.test_images, &data.test_labels})
      *part = part->slice(0, 0, images).to(device);
    double eager_accuracy = 0, compiled_accuracy = 0;
    const auto eager = examples::timed(fm::Mode::eager, [&] { return train(data, epochs, eager_accuracy); });
    const auto compiled = examples::timed(fm::Mode::compiled, [&] { return train(data, epochs, compiled_accuracy); });
    const bool same = examples::compare(eager, compiled) <= kDifference;
    return same && (argc > 2 || std::min(eager_accuracy, compiled_accuracy) >= kAccuracy) ? 0 : 1;
  } catch (const fm::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
