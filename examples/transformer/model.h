// The transformer of this example, the text that it learns, and a step of its training on one rank or several.
#pragma once

#include <fermata/distributed.h>
#include <fermata/fermata.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace examples {

inline constexpr std::int64_t kContext = 64, kBatch = 16, kWidth = 64, kHeads = 4, kLayers = 2;

/// The text as character indices.
struct Corpus {
  Corpus(const std::string& path, fermata::Device device) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::string sorted = text;
    std::sort(sorted.begin(), sorted.end());
    alphabet.assign(sorted.begin(), std::unique(sorted.begin(), sorted.end()));
    std::vector<std::int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<std::int64_t>(alphabet.find(c)));
    characters = fermata::tensor(numbers).to(device);
  }
  std::int64_t kinds() const { return static_cast<std::int64_t>(alphabet.size()); }

  std::string text, alphabet;
  fermata::Tensor characters;  // i64
};

/// Pre-norm blocks of causal attention and a gelu layer, with learned positional embeddings.
class Transformer {
 public:
  Transformer(std::int64_t kinds, std::uint64_t seed, fermata::Device device) : generator_(seed), device_(device) {
    embedding_ = weight({kinds, kWidth}, 0.1), positions_ = weight({kContext, kWidth}, 0.1);
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
      layers_.push_back({weight({3 * kWidth, kWidth}, scale), weight({kWidth, kWidth}, scale / 2),
                         weight({4 * kWidth, kWidth}, scale), weight({kWidth, 4 * kWidth}, scale / 4), ones(), ones()});
    }
    norm_ = ones();
  }

  /// Logits of the next character for each position of [N, length].
  fermata::Tensor logits(const fermata::Tensor& characters) const {
    const std::int64_t n = characters.size(0), length = characters.size(1);
    fermata::Tensor x = fermata::embedding(characters, embedding_) + positions_.slice(0, 0, length);
    for (const Layer& layer : layers_) {
      const fermata::Tensor projected = fermata::linear(fermata::rms_norm(x, layer.attention_norm), layer.projections);
      const fermata::Tensor heads =
          fermata::permute(projected.reshape({n, length, 3, kHeads, kWidth / kHeads}), {2, 0, 3, 1, 4});
      const fermata::Tensor seen =
          fermata::scaled_dot_product_attention(heads[0], heads[1], heads[2], {.is_causal = true});
      x = x + fermata::linear(fermata::permute(seen, {0, 2, 1, 3}).reshape({n, length, kWidth}), layer.output);
      x = x + fermata::linear(fermata::gelu(fermata::linear(fermata::rms_norm(x, layer.inner_norm), layer.widening)),
                              layer.narrowing);
    }
    return fermata::linear(fermata::rms_norm(x, norm_), embedding_);
  }
  std::vector<fermata::Tensor> parameters() const {
    std::vector<fermata::Tensor> all{embedding_, positions_, norm_};
    for (const Layer& l : layers_)
      all.insert(all.end(), {l.projections, l.output, l.widening, l.narrowing, l.attention_norm, l.inner_norm});
    return all;
  }

 private:
  struct Layer {
    fermata::Tensor projections, output, widening, narrowing, attention_norm, inner_norm;
  };
  fermata::Tensor weight(const fermata::IntegerList& sizes, double deviation) {
    return fermata::normal(sizes, 0, deviation, fermata::DType::f32, generator_).to(device_).requires_grad(true);
  }
  fermata::Tensor ones() const { return fermata::ones({kWidth}, fermata::DType::f32, device_).requires_grad(true); }

  fermata::Generator generator_;
  fermata::Device device_;
  fermata::Tensor embedding_, positions_, norm_;
  std::vector<Layer> layers_;
};

/// Characters of the text from some places on, and the character after each of them.
struct Batch {
  fermata::Tensor given, wanted;  // [N, kContext]
};
inline Batch batch_at(const Corpus& corpus, const fermata::Tensor& starts) {
  const fermata::Tensor at = starts + fermata::iota({kContext}, 0, fermata::device(starts));
  return {fermata::take(corpus.characters, at), fermata::take(corpus.characters, at + 1)};
}

/// One step on a batch of this rank's own. The ranks of a group use the mean of their gradients; the loss is that of
/// all their batches. Without a group the rank trains alone. In a compiled function, gradients are reduced one by one,
/// and the compiler joins small ones; elsewhere a list of them is joined.
inline fermata::Tensor train_on(const Transformer& model, fermata::optim::Optimizer& optimizer, const Batch& batch,
                                const fermata::distributed::Group* together, bool in_compiled_function) {
  optimizer.zero_grad();
  const fermata::Tensor loss = fermata::cross_entropy(model.logits(batch.given), batch.wanted, {.axis = -1});
  loss.backward();
  if (together == nullptr) {
    optimizer.step();
    return loss;
  }
  using fermata::distributed::all_reduce, fermata::distributed::Reduction;
  std::vector<fermata::Tensor> means;
  for (const fermata::Tensor& p : optimizer.parameters()) means.push_back(p.grad());
  means.push_back(loss.detach());
  if (in_compiled_function)
    for (fermata::Tensor& mean : means) mean = all_reduce(mean, Reduction::mean, *together);
  else
    means = all_reduce(means, Reduction::mean, *together);
  optimizer.step(std::span(means).first(means.size() - 1));
  return means.back();
}

}  // namespace examples
