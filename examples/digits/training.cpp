// See training.h.
#include "digits/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace digits {
namespace {

namespace fm = fermata;
using fm::Tensor;

constexpr std::int64_t kPixels = 64, kClasses = 10;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // Kingma and Ba, "Adam", 2015
constexpr std::uint64_t kSplitSeed = 20;

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string find_data() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto installed = program.parent_path().parent_path() / "share" / "fermata" / "digits.csv";
  return std::filesystem::exists(installed, ignored) ? installed.string() : DIGITS_FILE;
}

Data load_data(const std::string& path) {
  const Tensor table = fm::load_csv(path);
  if (table.rank() != 2 || table.size(1) != kPixels + 1)
    throw fm::FileError(
        1603, fm::format_error(1603, "FileError", "digits: " + path + ": not 64 pixels and a label a line", {},
                               std::source_location::current()));
  // Consecutive lines come from one writer, so the test set (a fifth) is drawn at random from all lines.
  fm::Generator split(kSplitSeed);
  const Tensor order = fm::permutation(table.size(0), split);
  const std::int64_t held_out = table.size(0) / 5;
  const auto part = [&](std::int64_t from, std::int64_t to) {
    const Tensor rows = fm::take(table, order.slice(0, from, to));
    return std::pair(rows.slice(1, 0, kPixels) / 16.0, fm::astype(fm::select(rows, 1, kPixels), fm::DType::i64));
  };
  Data data;
  std::tie(data.test_images, data.test_labels) = part(0, held_out);
  std::tie(data.train_images, data.train_labels) = part(held_out, table.size(0));
  fm::sync({data.test_images, data.test_labels, data.train_images, data.train_labels});
  return data;
}

Classifier::Classifier(std::uint64_t seed) {
  fm::Generator generator(seed);
  add_layer(kPixels, 128, generator);
  add_layer(128, 64, generator);
  add_layer(64, kClasses, generator);
  fm::sync(state());
}

void Classifier::add_layer(std::int64_t inputs, std::int64_t outputs, fm::Generator& generator) {
  const double scale = std::sqrt(2.0 / static_cast<double>(inputs));
  for (Tensor value : {fm::normal({inputs, outputs}, 0, scale, fm::DType::f32, generator), fm::zeros(outputs)}) {
    const Tensor mean = fm::zeros_like(value), square = fm::zeros_like(value);
    parameters_.push_back({value.requires_grad(true), mean, square});
  }
}

Tensor Classifier::logits(const Tensor& images) const {
  Tensor x = images;
  for (std::size_t i = 0; i < parameters_.size(); i += 2) {
    x = fm::matmul(x, parameters_[i].value) + parameters_[i + 1].value;
    if (i + 2 < parameters_.size()) x = fm::gelu(x);
  }
  return x;
}

Tensor Classifier::step(const Tensor& images, const Tensor& labels, double learning_rate) {
  const Tensor loss = fm::cross_entropy(logits(images), labels);
  std::vector<Tensor> values;
  for (const Parameter& p : parameters_) values.push_back(p.value);
  const std::vector<Tensor> gradients = fm::gradients(loss, values);

  const fm::NoGradGuard no_grad;
  ++steps_;
  const double rate = learning_rate / (1 - std::pow(kBeta1, steps_)), square_scale = 1 / (1 - std::pow(kBeta2, steps_));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [value, mean, square] = parameters_[i];
    mean *= kBeta1, mean += gradients[i] * (1 - kBeta1);
    square *= kBeta2, square += fm::square(gradients[i]) * (1 - kBeta2);
    value -= mean * rate / (fm::sqrt(square * square_scale) + kEpsilon);
  }
  return loss.detach();
}

void Classifier::divide(const fm::Mesh& mesh, const char* axis) {
  // The first weight is split by columns and the second by rows, so no communication is needed between them.
  const fm::AxisSplits splits[] = {{{}, axis}, {axis}, {axis}};
  for (std::size_t i = 0; i < std::size(splits); ++i)
    for (const Tensor* t : {&parameters_[i].value, &parameters_[i].mean, &parameters_[i].square})
      fm::shard_(*t, mesh, splits[i]);
}

std::vector<Tensor> Classifier::state() const {
  std::vector<Tensor> all;
  for (const auto& [value, mean, square] : parameters_) all.insert(all.end(), {value, mean, square});
  return all;
}

double Classifier::accuracy(const Tensor& images, const Tensor& labels) const {
  const fm::NoGradGuard no_grad;
  return fm::mean(fm::astype(fm::argmax(logits(images), 1) == labels, fm::DType::f32)).item<double>();
}

Result train(const Data& data, const Settings& settings, const std::function<void(int, double, double)>& progress) {
  Classifier classifier(settings.seed);
  const auto along = [&](std::string_view name) {
    return settings.mesh != nullptr && std::ranges::count(settings.mesh->axes(), name) != 0;
  };
  if (along("model")) classifier.divide(*settings.mesh, "model");
  const auto batch_of = [&](const Tensor& all, std::int64_t from) {
    const Tensor batch = all.slice(0, from, from + settings.batch);
    return along("data") ? fm::shard(batch, *settings.mesh, {"data"}) : batch;
  };
  fm::Generator order(settings.seed + 1);
  const std::int64_t count = data.train_images.size(0);
  Result result;
  std::vector<double> times;
  for (int epoch = 1; epoch <= settings.epochs; ++epoch) {
    const Tensor shuffled = fm::permutation(count, order);
    const Tensor images = fm::take(data.train_images, shuffled), labels = fm::take(data.train_labels, shuffled);
    fm::sync({images, labels});
    double total = 0;
    int steps = 0;
    // The incomplete last batch is dropped; each epoch it has other images.
    for (std::int64_t from = 0; from + settings.batch <= count; from += settings.batch, ++steps) {
      const auto start = Clock::now();
      const Tensor loss = classifier.step(batch_of(images, from), batch_of(labels, from), settings.learning_rate);
      std::vector<Tensor> changed = classifier.state();
      changed.push_back(loss);
      fm::sync(changed);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      result.seconds += seconds;
      if (epoch > 1) times.push_back(seconds * 1e6);
      total += result.losses.emplace_back(loss.item<double>());
    }
    result.accuracy = classifier.accuracy(data.test_images, data.test_labels);
    progress(epoch, total / std::max(steps, 1), result.accuracy);
  }
  result.us_per_step = median(std::move(times));
  return result;
}

}  // namespace digits
