// GPT-2- and Llama-shaped decoders over the weights of a checkpoint in Hugging Face's layout.
//
// Keys and values of the positions so far are in a cache of fixed size, and their number is a tensor. So every step of
// a growing text is the same computation, and nothing is recorded or compiled again.
#pragma once

#include <fermata/fermata.h>
#include <fermata/mesh.h>

#include <functional>
#include <string>
#include <vector>

#include "checkpoint.h"

namespace gpt {

using fermata::Tensor;

struct Cache {
  struct Layer {
    Tensor keys, values;  // [1, key heads, capacity, head width]
  };
  std::vector<Layer> layers;
  Tensor length;  // i64[]
};

class Decoder {
 public:
  /// Reads model.safetensors, or model.safetensors.index.json, in the folder.
  Decoder(const Config& config, const std::string& folder);

  /// Keeps the matrices of all projections in 8 or 4 bits (docs/quantized.md); embeddings stay as they are. Not after
  /// divide().
  void quantize(const fermata::WeightFormat& format);
  /// Divides heads and inner layers among the processes along an axis of a mesh; caches made afterwards, too.
  void divide(const fermata::Mesh& mesh, const std::string& axis);
  Cache make_cache(std::int64_t capacity) const;
  /// Appends the tokens i64 [L] to the cache, and returns the logits [vocabulary] of the next token.
  Tensor forward(const Tensor& tokens, const Cache& cache) const;
  const Config& config() const { return config_; }

 private:
  struct Projection {
    Tensor weight, bias;  // [in, out], or [out, in] in fewer bits; no bias where it is not defined
  };
  struct Norm {
    Tensor weight, bias;
  };
  struct Layer {
    Norm before_attention, before_inner;
    Projection query, key, value, output;
    Projection gate, widening, narrowing;  // GPT-2 has no gate
  };
  class Weights;
  void read_gpt2(const Weights& weights);
  void read_llama(const Weights& weights);
  Tensor normalized(const Tensor& x, const Norm& norm) const;
  Tensor rotated(const Tensor& x, const Tensor& positions) const;
  Tensor attention(const Tensor& x, const Layer& layer, const Cache::Layer& cache, const Tensor& positions) const;
  Tensor inner(const Tensor& x, const Layer& layer) const;

  Config config_;
  std::function<void(const Tensor& heads)> divides_cache_ = [](const Tensor&) {};
  Tensor embedding_, positions_, head_;  // no positions in Llama; head_ [vocabulary, width]
  Norm last_;
  std::vector<Layer> layers_;
};

}  // namespace gpt
