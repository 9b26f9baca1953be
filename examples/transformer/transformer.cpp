// A character-level language model: a small transformer that learns to write like Shakespeare's sonnets, trained in
// eager and in compiled mode.
//   transformer [STEPS [FILE]] [--cuda]
//
// Exits with an error unless both modes have the same losses, and these fall from about 4.1 (all characters equally
// likely) below 2.2 nats per character. With fewer than 100 steps the losses are only compared.
#include <compare_modes.h>
#include <device_argument.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fm = fermata;
using fm::Tensor;

namespace {

constexpr std::int64_t kContext = 64, kBatch = 16, kWidth = 64, kHeads = 4, kLayers = 2;
constexpr int kEnoughSteps = 100;
constexpr double kLoss = 2.2, kDifference = 1e-4;

/// The text as character indices.
struct Corpus {
  Corpus(const std::string& path, fm::Device device) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::string sorted = text;
    std::sort(sorted.begin(), sorted.end());
    alphabet.assign(sorted.begin(), std::unique(sorted.begin(), sorted.end()));
    std::vector<std::int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<std::int64_t>(alphabet.find(c)));
    characters = fm::tensor(numbers).to(device);
  }
  std::int64_t kinds() const { return static_cast<std::int64_t>(alphabet.size()); }

  std::string text, alphabet;
  Tensor characters;  // i64
};

/// Pre-norm blocks of causal attention and a gelu layer, with learned positional embeddings.
class Transformer {
 public:
  Transformer(std::int64_t kinds, std::uint64_t seed, fm::Device device) : generator_(seed), device_(device) {
    embedding_ = weight({kinds, kWidth}, 0.1), positions_ = weight({kContext, kWidth}, 0.1);
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
      layers_.push_back({weight({3 * kWidth, kWidth}, scale), weight({kWidth, kWidth}, scale / 2),
                         weight({4 * kWidth, kWidth}, scale), weight({kWidth, 4 * kWidth}, scale / 4), ones(), ones()});
    }
    norm_ = ones();
  }

  /// Logits of the next character for each position of [N, length].
  Tensor logits(const Tensor& characters) const {
    const std::int64_t n = characters.size(0), length = characters.size(1);
    Tensor x = fm::embedding(characters, embedding_) + positions_.slice(0, 0, length);
    for (const Layer& layer : layers_) {
      const Tensor projected = fm::linear(fm::rms_norm(x, layer.attention_norm), layer.projections);
      const Tensor heads = fm::permute(projected.reshape({n, length, 3, kHeads, kWidth / kHeads}), {2, 0, 3, 1, 4});
      const Tensor seen = fm::scaled_dot_product_attention(heads[0], heads[1], heads[2], {.is_causal = true});
      x = x + fm::linear(fm::permute(seen, {0, 2, 1, 3}).reshape({n, length, kWidth}), layer.output);
      x = x + fm::linear(fm::gelu(fm::linear(fm::rms_norm(x, layer.inner_norm), layer.widening)), layer.narrowing);
    }
    return fm::linear(fm::rms_norm(x, norm_), embedding_);
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all{embedding_, positions_, norm_};
    for (const Layer& l : layers_)
      all.insert(all.end(), {l.projections, l.output, l.widening, l.narrowing, l.attention_norm, l.inner_norm});
    return all;
  }

 private:
  struct Layer {
    Tensor projections, output, widening, narrowing, attention_norm, inner_norm;
  };
  Tensor weight(const fm::IntegerList& sizes, double deviation) {
    return fm::normal(sizes, 0, deviation, fm::DType::f32, generator_).to(device_).requires_grad(true);
  }
  Tensor ones() const { return fm::ones({kWidth}, fm::DType::f32, device_).requires_grad(true); }

  fm::Generator generator_;
  fm::Device device_;
  Tensor embedding_, positions_, norm_;
  std::vector<Layer> layers_;
};

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
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    const Tensor starts =
        fm::randint(0, corpus.characters.size(0) - kContext, {kBatch, 1}, fm::DType::i64, places).to(device);
    const Tensor at = starts + fm::iota({kContext}, 0, device);
    const Tensor given = fm::take(corpus.characters, at), wanted = fm::take(corpus.characters, at + 1);
    adam.zero_grad();
    const Tensor loss = fm::cross_entropy(model.logits(given), wanted, {.axis = -1});
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
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
