// A character-level language model: a small transformer that learns to write like Shakespeare's sonnets, trained in
// eager and in compiled mode.
//   transformer [STEPS [FILE]] [--cuda]
//   mpirun -n 2 transformer [STEPS [FILE]]
//
// Several ranks divide each batch among them and have the losses of one, but for rounding. What that costs is measured
// by bench/distributed/overlap.cpp.
//
// Exits with an error unless both modes have the same losses, and these fall from about 4.1 (all characters equally
// likely) below 2.2 nats per character. With fewer than 100 steps the losses are only compared.
#include <compare_modes.h>
#include <device_argument.h>

#include <cstdlib>
#include <string>

#include "model.h"

namespace fm = fermata;
using examples::Corpus, examples::kBatch, examples::kContext, examples::Transformer;
using fm::Tensor;

namespace {

constexpr int kEnoughSteps = 100;
constexpr double kLoss = 2.2, kDifference = 1e-4;

/// Generates text by sampling one character after another.
std::string write(const Transformer& model, const Corpus& corpus, std::string text, int count) {
  const fm::NoGradGuard no_grad;
  fm::Generator generator(7);
  for (int i = 0; i < count; ++i) {
    const std::string last = text.substr(text.size() - std::min<std::size_t>(text.size(), kContext));
    std::vector<std::int64_t> numbers;
    for (const char c : last) numbers.push_back(static_cast<std::int64_t>(corpus.alphabet.find(c)));
    const Tensor next =
        model.logits(fm::tensor(numbers).reshape({1, -1}).to(fm::device(corpus.characters)))[0][-1].to(fm::cpu());
    const Tensor chosen = fm::argmax(fm::gumbel_softmax(next, 0.7, false, -1, generator));
    text += corpus.alphabet[chosen.item<std::size_t>()];
  }
  return text;
}

/// Trains a model from a fixed seed, in the mode of the thread.
std::vector<double> train(const Corpus& corpus, int steps) {
  const fm::Device device = fm::device(corpus.characters);
  const Transformer model(corpus.kinds(), 1, device);
  fm::optim::AdamW adam(model.parameters(), {.learning_rate = 3e-3, .weight_decay = 0.01});
  fm::Generator places(2);
  const fm::distributed::Group& ranks = fm::distributed::world();
  const std::int64_t rows = kBatch / ranks.size(), first = rows * ranks.rank();  // of each batch, on this rank
  const auto train_on = fm::compile([&](const Tensor& given, const Tensor& wanted) {
    return examples::train_on(model, adam, {given, wanted}, ranks.size() > 1 ? &ranks : nullptr, true);
  });
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    const Tensor starts =
        fm::randint(0, corpus.characters.size(0) - kContext, {kBatch, 1}, fm::DType::i64, places).to(device);
    const examples::Batch batch = examples::batch_at(corpus, starts.slice(0, first, first + rows));
    losses.push_back(train_on(batch.given, batch.wanted).item<double>());
    if (step == 1 || step % 50 == 0) std::printf("  step %3d  loss %.4f\n", step, losses.back());
  }
  std::printf("  it writes: %s\n", write(model, corpus, "\nShall I", steps < kEnoughSteps ? 4 : 120).substr(1).c_str());
  return losses;
}

/// The mean of the last twenty, because single batches vary.
double reached(const std::vector<double>& losses) {
  const std::size_t count = std::min<std::size_t>(losses.size(), 20);
  double total = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) total += losses[i];
  return total / static_cast<double>(count);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const fm::Device device = examples::take_device(argc, argv);
    const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
    const fm::distributed::Group& ranks = fm::distributed::world();
    if (kBatch % ranks.size() != 0) {
      std::fprintf(stderr, "%d ranks cannot divide batches of %d\n", static_cast<int>(ranks.size()),
                   static_cast<int>(kBatch));
      return 2;
    }
    if (ranks.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return 2;  // one of them tells
    const Corpus corpus(argc > 2 ? argv[2] : SONNETS_FILE, device);
    const auto eager = examples::timed(fm::Mode::eager, [&] { return train(corpus, steps); });
    const auto compiled = examples::timed(fm::Mode::compiled, [&] { return train(corpus, steps); });
    const bool same = examples::compare(eager, compiled) <= kDifference;
    std::printf("loss reached: eager %.3f, compiled %.3f\n", reached(eager.losses), reached(compiled.losses));
    return same && (steps < kEnoughSteps || std::max(reached(eager.losses), reached(compiled.losses)) < kLoss) ? 0 : 1;
  } catch (const fm::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
