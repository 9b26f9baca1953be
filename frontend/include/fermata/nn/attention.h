// Multi-head attention, and a key/value cache for text generation.
#pragma once

#include "fermata/nn/layers.h"

namespace fermata::nn {

/// Keys and values of previous positions, written in place: `length` of `capacity` positions are used. The length is a
/// tensor, so a growing text neither records nor compiles anything new.
struct KeyValueCache {
  Tensor keys, values;  // [N, heads, capacity, width / heads]
  Tensor length;        // i64 [], 0-d
};

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the probabilities, in training
  bool bias = true;
  DType dtype = DType::f32;
};
struct MultiheadMask {
  // bool: true where a key takes part; or floats, added to the scores. Broadcasts to [N, heads, L, S].
  Tensor mask = {};
  bool is_causal = false;
};
/// Attention with `heads` heads, each width / heads wide. Parameters are those of torch.nn.MultiheadAttention. Batches
/// come first, and a bool mask is true where a key takes part, as in scaled_dot_product_attention.
struct MultiheadAttention : Named {
  MultiheadAttention(std::int64_t width, std::int64_t heads, const MultiheadAttentionOptions& options = {},
                     Location where = Location::current());
  /// Shapes   query [.., L, width], key and value [.., S, width] -> [.., L, width]
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadMask& options = {},
                 Location where = Location::current()) const;
  /// Self-attention.
  Tensor forward(const Tensor& x, const MultiheadMask& options = {}, Location where = Location::current()) const {
    return forward(x, x, x, options, where);
  }
  /// Causal attention of the next positions to all positions so far. Appends their keys and values to the cache. No
  /// gradients.
  ///
  /// Shapes   x [N, L, width] -> [N, L, width]
  /// Errors   IndexError, when the value is computed, if the cache is full.
  Tensor forward(const Tensor& x, KeyValueCache& cache, Location where = Location::current()) const;
  /// Returns an empty cache for `batch` sequences.
  KeyValueCache make_cache(std::int64_t batch, std::int64_t capacity, Location where = Location::current()) const;

  Tensor in_proj_weight, in_proj_bias;  // of query, key and value: [3 width, width], [3 width]
  Linear out_proj;
  std::int64_t heads;
  Setting dropout;
  Training training;
  FERMATA_TREE(in_proj_weight, in_proj_bias, out_proj, heads, dropout, training)

 private:
  Tensor projected(const Tensor& x, std::int64_t part, Location where) const;
  Tensor split_heads(const Tensor& x, Location where) const;
  Tensor joined(const Tensor& heads_apart, Location where) const;
};

}  // namespace fermata::nn
