// Attention with several heads, and the cache of keys and values that generating text needs.
#pragma once

#include "fermata/nn/layers.h"

namespace fermata::nn {

/// Keys and values of the positions so far, written in place: room for `capacity` of them, of which `length` are used.
/// The length is a tensor, so a growing text records and compiles nothing.
struct KeyValueCache {
  Tensor keys, values;  // [N, heads, capacity, width / heads]
  Tensor length;        // i64 of no axes
};

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the probabilities, in training
  bool bias = true;
  DType dtype = DType::f32;
};
struct MultiheadMask {
  Tensor mask =
      {};  // bool: true where a key takes part; or floats, added to the scores; broadcasts to [N, heads, L, S]
  bool is_causal = false;
};
/// Attention of `heads` heads, each a part of the width. Parameters are those of torch.nn.MultiheadAttention; batches
/// come first, and a bool mask is true where a key takes part, as in scaled_dot_product_attention.
struct MultiheadAttention : Named {
  MultiheadAttention(std::int64_t width, std::int64_t heads, const MultiheadAttentionOptions& options = {},
                     Location where = Location::current());
  /// Shapes   query [.., L, width], key and value [.., S, width] -> [.., L, width]
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadMask& options = {},
                 Location where = Location::current()) const;
  /// Attention of x to itself.
  Tensor forward(const Tensor& x, const MultiheadMask& options = {}, Location where = Location::current()) const {
    return forward(x, x, x, options, where);
  }
  /// Causal attention of the next positions to all positions so far, which are taken into the cache. No gradients.
  ///
  /// Shapes   x [N, L, width] -> [N, L, width]
  /// Errors   IndexError, when the value is computed, for more positions than the cache has room for.
  Tensor forward(const Tensor& x, KeyValueCache& cache, Location where = Location::current()) const;
  /// An empty cache for `batch` texts.
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
