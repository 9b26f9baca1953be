// Dropout, embeddings and attention.
//
// Names, arguments and defaults follow torch.nn.functional.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fermata/random.h"
#include "runtime/tensor.h"

namespace fermata {

/// In training, zeroes elements with probability p and scales the rest by 1 / (1 - p); otherwise returns x. The random
/// numbers come from `from`, so eager and compiled code drop the same elements.
///
/// Errors   ValueError unless 0 <= p <= 1. DType: floating.
/// Source   Srivastava et al., "Dropout", JMLR 15, 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
               Location where = Location::current());
/// Drops whole channels of x [N, C, ..]: PyTorch's dropout1d, dropout2d and dropout3d.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
                       Location where = Location::current());
/// Dropout that preserves the mean and variance of selu outputs.
///
/// Source   Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
                     Location where = Location::current());

/// Looks up rows of a table by integer indices; row `padding_idx` gets no gradient.
///
/// Shapes   index [..I], weight [V, D] -> [..I, D].
Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<std::int64_t> padding_idx = {},
                 Location where = Location::current());
enum class BagMode : std::uint8_t { sum, mean, max };
struct BagOptions {
  BagMode mode = BagMode::mean;
  Tensor weights = {};                           // per index; sum mode only
  std::optional<std::int64_t> padding_idx = {};  // a row that is ignored
  bool include_last_offset = false;              // the last offset is the end of the last bag
};
/// Sums, means or maxima over bags of table rows, without materializing the rows; 0 for an empty bag.
///
/// Shapes   index [B, n], or [n] with the start offsets of the bags [B]; weight [V, D] -> [B, D].
/// Source   PyTorch, torch.nn.functional.embedding_bag.
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                     const BagOptions& options = {}, Location where = Location::current());
/// i64: 1 where the position along a new last axis equals the element of x, else 0. The default number of classes is
/// the largest element plus one, which syncs. Elements out of range give all zeros.
///
/// Errors   DTypeError unless x has an integer dtype.
Tensor one_hot(const Tensor& x, std::optional<std::int64_t> classes = {}, Location where = Location::current());

/// The indices of each score, as i64 tensors that broadcast against the scores [.., L, S]: batch, head, query and key.
/// Batch and head are 0 if there is no such axis.
struct ScorePlace {
  Tensor batch, head, query, key;
};
/// ScoreFunction modifies scores before the softmax; ScoreMask says which ones take part. Both are plain functions that
/// fuse with the softmax, as in flex attention. A block or window mask is one line:
///
///   .keeps = [](const ScorePlace& at) { return abs(at.query - at.key) < 256; }
using ScoreFunction = std::function<Tensor(const Tensor& score, const ScorePlace& at)>;
using ScoreMask = std::function<Tensor(const ScorePlace& at)>;
/// Linear position biases: adds slope[head] * (key - query) to each score.
///
/// Source   Press, Smith and Lewis, "Train short, test long", ICLR 2022. alibi_slopes() returns the paper's slopes.
ScoreFunction alibi(const Tensor& slopes, Location where = Location::current());
Tensor alibi_slopes(std::int64_t heads, Location where = Location::current());

/// Marks the blocks of scores that have unmasked elements; other blocks are not computed.
struct BlockMask {
  ScoreMask keeps;
  std::int64_t queries = 0, keys = 0, block = 128;
  std::vector<bool> blocks = {};  // row-major

  std::int64_t rows() const;
  std::int64_t columns() const;
  bool has(std::int64_t row, std::int64_t column) const;
  bool same_rows(std::int64_t a, std::int64_t b) const;
  /// The fraction of blocks that are computed.
  double density() const;
};
/// Evaluates `keeps` immediately, as a function of query and key positions only; all heads and batches share the mask.
///
///   const auto window = block_mask([](const ScorePlace& at) { return abs(at.query - at.key) < 256; }, 4096, 4096);
///   scaled_dot_product_attention(q, k, v, {.blocks = window});
///
/// Errors   ShapeError FM1079 if the result of `keeps` has more than two axes.
/// Source   Dong et al., "Flex attention", 2024.
std::shared_ptr<const BlockMask> block_mask(ScoreMask keeps, std::int64_t queries, std::int64_t keys,
                                            std::int64_t block = 128, Location where = Location::current());

struct AttentionOptions {
  Tensor mask = {};                              // bool: true where a key takes part; or floats, added to the scores
  double dropout_p = 0;                          // of the probabilities
  bool is_causal = false;                        // query i attends to keys 0 to i
  std::optional<double> scale = {};              // of the scores; by default 1 / sqrt(E)
  bool enable_gqa = false;                       // equal groups of query heads share a key head
  ScoreFunction score = {};                      // applied to the scaled scores
  ScoreMask keeps = {};                          // bool: where a key takes part
  std::shared_ptr<const BlockMask> blocks = {};  // other blocks are masked out and skipped
};
/// softmax(query key^T * scale + mask) value. A query whose keys are all masked out gives 0.
///
/// Shapes   query [.., L, E], key [.., S, E], value [.., S, V] -> [.., L, V]; leading axes broadcast. mask broadcasts
///          to [.., L, S]. With enable_gqa, query [.., H, L, E] and key, value [.., G, S, ..], H a multiple of G.
/// DType    floating; the softmax of f16 and bf16 is computed in f32.
/// Source   Vaswani et al., "Attention is all you need", NeurIPS 2017.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {}, Location where = Location::current());

}  // namespace fermata
