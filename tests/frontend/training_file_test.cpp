// Training runs as files: a run that is stopped at any step and resumed gives the same losses to the bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "fermata/modules.h"
#include "fermata/schedules.h"
#include "fermata/training_file.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;

/// Dropout draws, normalization counts: everything that a file has to keep.
struct Net {
  nn::Linear in{4, 16};
  nn::BatchNorm norm{16};
  nn::Dropout drop{0.3};
  nn::Linear out{16, 3};
  Tensor forward(const Tensor& x) const { return out(drop(relu(norm(in(x))))); }
};

class TrainingFiles : public InBothModes {
 protected:
  TrainingFiles()
      : path_(std::filesystem::temp_directory_path() / ("fermata_training_" + std::to_string(::getpid()))) {}
  ~TrainingFiles() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_;
};
INSTANTIATE_TEST_SUITE_P(Modes, TrainingFiles, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// Objects of a run, made from scratch, and its steps.
template <class Optimizer, auto kOptions> class TrainingRun {
 public:
  explicit TrainingRun(std::uint64_t seed)
      : loader_(TensorDataset(std::tuple(random_f64({40, 4}, 0, 1, true, 9).astype(DType::f32), arange(40) % 3)),
                {.batch_size = 8, .shuffle = true, .seed = 2}) {
    manual_seed(seed);
    net_ = std::make_unique<Net>();
    optimizer_ = std::make_unique<Optimizer>(*net_, kOptions());
  }
  void resume(const std::string& path) {
    const TrainingState at = load_training(path, *net_, *optimizer_);
    step_ = at.step;
    loader_.seek(at.data);
    EXPECT_EQ(at.notes.at("name"), "run");
    EXPECT_EQ(at.tensors.at("best").item<float>(), 0.5f);
  }
  void save(const std::string& path) const {
    save_training(
        path, *net_, *optimizer_,
        {.step = step_, .data = loader_.position(), .tensors = {{"best", full({}, 0.5)}}, .notes = {{"name", "run"}}});
  }
  /// Losses of the steps up to a number.
  std::vector<float> train(std::int64_t last, bool compiled) {
    const auto one = [&](const Tensor& x, const Tensor& labels) {
      optimizer_->zero_grad();
      const Tensor loss = cross_entropy(net_->forward(x), labels);
      loss.backward();
      optimizer_->step();
      return loss.detach();
    };
    auto once = compile(one);
    const auto rate = optim::schedule::warmup(3, optim::schedule::cosine(0.05, 12));
    std::vector<float> losses;
    while (step_ < last)
      for (const auto& [x, labels] : loader_) {
        optimizer_->options.learning_rate = rate(step_);
        const Tensor loss = compiled ? once(x, labels) : one(x, labels);
        losses.push_back(loss.item<float>());
        if (++step_ == last) break;
      }
    return losses;
  }

 private:
  DataLoader<TensorDataset<std::tuple<Tensor, Tensor>>> loader_;
  std::unique_ptr<Net> net_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t step_ = 0;
};

template <class Run> void expect_same_bits_when_resumed(const std::string& path) {
  constexpr std::int64_t kSteps = 14;
  for (const bool compiled : {false, true}) {
    Run whole(1);
    const std::vector<float> wanted = whole.train(kSteps, compiled);
    for (const std::int64_t stop : {1, 5, 7, 13}) {
      std::vector<float> losses;
      {
        Run first(1);
        losses = first.train(stop, compiled);
        first.save(path);
      }
      Run second(99);
      rand({17}).sync();  // another program has drawn other numbers
      second.resume(path);
      const std::vector<float> rest = second.train(kSteps, compiled);
      losses.insert(losses.end(), rest.begin(), rest.end());
      EXPECT_EQ(losses, wanted) << "stopped after " << stop << (compiled ? ", in one function" : "");
    }
  }
}
using WithAdamW = TrainingRun<optim::AdamW, [] { return optim::AdamOptions{.weight_decay = 0.01}; }>;
using WithMomentum = TrainingRun<optim::SGD, [] { return optim::SgdOptions{.momentum = 0.9}; }>;
using WithDampening = TrainingRun<optim::SGD, [] { return optim::SgdOptions{.momentum = 0.9, .dampening = 0.5}; }>;
using WithRMSprop =
    TrainingRun<optim::RMSprop, [] { return optim::RMSpropOptions{.momentum = 0.9, .centered = true}; }>;
using WithNAdam = TrainingRun<optim::NAdam, [] { return optim::NAdamOptions{}; }>;
using WithLion = TrainingRun<optim::Lion, [] { return optim::LionOptions{}; }>;
using WithAmsgrad = TrainingRun<optim::Adam, [] { return optim::AdamOptions{.amsgrad = true}; }>;
using WithASGD = TrainingRun<optim::ASGD, [] { return optim::AsgdOptions{.start = 3}; }>;
using WithRprop = TrainingRun<optim::Rprop, [] { return optim::RpropOptions{}; }>;
TEST_P(TrainingFiles, ResumedRunsHaveTheSameBits) {
  expect_same_bits_when_resumed<WithAmsgrad>(path_);
  expect_same_bits_when_resumed<WithASGD>(path_);
  expect_same_bits_when_resumed<WithRprop>(path_);
  expect_same_bits_when_resumed<WithRMSprop>(path_);
  expect_same_bits_when_resumed<WithNAdam>(path_);
  expect_same_bits_when_resumed<WithLion>(path_);
  expect_same_bits_when_resumed<WithAdamW>(path_);
  expect_same_bits_when_resumed<WithMomentum>(path_);
  expect_same_bits_when_resumed<WithDampening>(path_);
}

TEST_P(TrainingFiles, LbfgsGoesOnFromItsFile) {
  const Tensor x = random_f64({20, 3}, 0, 1, true, 1).astype(DType::f32), y = sum(sin(x), 1, true).sync();
  const optim::LbfgsOptions options{.max_iterations = 4, .history_size = 3, .strong_wolfe = true};
  nn::Linear first(3, 1), second(3, 1);
  optim::LBFGS one(first, options), other(second, options);
  const auto step = [&](nn::Linear& model, optim::LBFGS& lbfgs) {
    return lbfgs.step([&] { return mse_loss(tanh(model(x)), y); });
  };
  step(first, one);
  save_training(path_, first, one);
  load_training(path_, second, other);
  EXPECT_EQ(step(first, one), step(second, other));
  EXPECT_TRUE(array_equal(first.weight.detach(), second.weight.detach()));
}

TEST_P(TrainingFiles, FilesOfOtherRunsChangeNothing) {
  WithAdamW run(1);
  run.train(2, false);
  run.save(path_);
  nn::Linear other(4, 3);
  optim::AdamW of_other(other);
  const auto before = other.weight.to_vector<float>();
  EXPECT_EQ(
      message_without_place<ValueError>([&] { load_training(path_, other, of_other); }),
      "FM1384 ValueError: load_training: " + path_.string() + ": has 13 optimizer tensors, but this optimizer has 5");
  Net net;
  optim::SGD plain(net);
  EXPECT_THROW(load_training(path_, net, plain), ValueError);
  nn::Sequential same_sizes(nn::Linear(4, 16), nn::LayerNorm(16), nn::Linear(16, 3));
  optim::AdamW of_same(same_sizes);
  EXPECT_EQ(message_without_place<ValueError>([&] { load_training(path_, same_sizes, of_same); }).substr(0, 6),
            "FM1380");
  EXPECT_EQ(other.weight.to_vector<float>(), before);
  EXPECT_EQ(of_same.state()[0].item<double>(), 0);
  save_safetensors(path_, {{"x", ones({1})}});
  EXPECT_EQ(message_without_place<FileError>([&] { load_training(path_, other, of_other); }),
            "FM1603 FileError: load_training: " + path_.string() + ": is not a training run of this version");
}

}  // namespace
}  // namespace fermata
