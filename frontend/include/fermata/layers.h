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

/// In training, elements become 0 with probability p and the rest grow by 1 / (1 - p); otherwise x itself. The numbers
/// are those of the generator, so eager and compiled code drop the same elements.
///
/// Errors   ValueError unless 0 <= p <= 1. DType: floating.
/// Source   Srivastava et al., "Dropout", JMLR 15, 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
               Location where = Location::current());
/// Whole channels of x [N, C, ..] at a time: PyTorch's dropout1d, dropout2d and dropout3d.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
                       Location where = Location::current());
/// Keeps mean and variance of what selu gives.
///
/// Source   Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Generator& from = default_generator(),
                     Location where = Location::current());

/// Rows of a table at integer positions; the row `padding_idx` gets no gradient.
///
/// Shapes   index [..I], weight [V, D] -> [..I, D].
Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<std::int64_t> padding_idx = {},
                 Location where = Location::current());
enum class BagMode : std::uint8_t { sum, mean, max };
struct BagOptions {
  BagMode mode = BagMode::mean;
  Tensor weights = {};                           // of each index, for sums
  std::optional<std::int64_t> padding_idx = {};  // a row that counts for nothing
  bool include_last_offset = false;              // the last offset is where the last bag ends
};
/// Sums, means or maxima of rows of a table, a bag of positions each; 0 for an empty bag. No row is kept by itself.
///
/// Shapes   index [B, n], or [n] with offsets [B], where bags begin; weight [V, D] -> [B, D].
/// Source   PyTorch, torch.nn.functional.embedding_bag.
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                     const BagOptions& options = {}, Location where = Location::current());
/// i64: 1 where the position along a new last axis is the element of x, else 0. Without a number of classes it is one
/// more than the largest element, which is read for it. Elements out of range have no 1.
///
/// Errors   DTypeError unless x has an integer dtype.
Tensor one_hot(const Tensor& x, std::optional<std::int64_t> classes = {}, Location where = Location::current());

/// The place of each score, as i64 tensors that broadcast against the scores [.., L, S]: its query and its key, its
/// head, and its batch (0 where there is no such axis).
struct ScorePlace {
  Tensor batch, head, query, key;
};
/// What becomes of scores before the softmax, and which of them count: plain functions, which fuse with the softmax.
/// Positions are as in flex attention, so a block or window mask is one line:
///
///   .keeps = [](const ScorePlace& at) { return abs(at.query - at.key) < 256; }
using ScoreFunction = std::function<Tensor(const Tensor& score, const ScorePlace& at)>;
using ScoreMask = std::function<Tensor(const ScorePlace& at)>;
/// Linear biases by distance: slope[head] * (key - query) is added to a score.
///
/// Source   Press, Smith and Lewis, "Train short, test long", ICLR 2022. The slopes are theirs for so many heads.
ScoreFunction alibi(const Tensor& slopes, Location where = Location::current());
Tensor alibi_slopes(std::int64_t heads, Location where = Location::current());

/// Which blocks of scores have any that count, so that the others are not computed.
struct BlockMask {
  ScoreMask keeps;
  std::int64_t queries = 0, keys = 0, block = 128;
  std::vector<bool> blocks = {};  // row by row

  std::int64_t rows() const;
  std::int64_t columns() const;
  bool has(std::int64_t row, std::int64_t column) const;
  bool same_rows(std::int64_t a, std::int64_t b) const;
  /// The share of blocks that are computed.
  double density() const;
};
/// Finds them now, from positions alone: all heads and batches share them.
///
///   const auto window = block_mask([](const ScorePlace& at) { return abs(at.query - at.key) < 256; }, 4096, 4096);
///   scaled_dot_product_attention(q, k, v, {.blocks = window});
///
/// Errors   ShapeError FM1079 where what `keeps` gives has more axes than two.
/// Source   Dong et al., "Flex attention", 2024.
std::shared_ptr<const BlockMask> block_mask(ScoreMask keeps, std::int64_t queries, std::int64_t keys,
                                            std::int64_t block = 128, Location where = Location::current());

struct AttentionOptions {
  Tensor mask = {};                              // bool: true where a key takes part; or floats, added to the scores
  double dropout_p = 0;                          // of the probabilities
  bool is_causal = false;                        // query i sees keys 0 to i
  std::optional<double> scale = {};              // of the scores; by default 1 / sqrt(E)
  bool enable_gqa = false;                       // query heads share key heads in equal groups
  ScoreFunction score = {};                      // applied to the scaled scores
  ScoreMask keeps = {};                          // bool: where a key takes part
  std::shared_ptr<const BlockMask> blocks = {};  // scores of other blocks do not count, and take no time
};
/// softmax(query key^T * scale + mask) value. A query for which every key is masked out gives 0.
///
/// Shapes   query [.., L, E], key [.., S, E], value [.., S, V] -> [.., L, V]; leading axes broadcast. mask broadcasts
/// to
///          [.., L, S]. With enable_gqa query [.., H, L, E] and key, value [.., G, S, ..], H a multiple of G.
/// DType    floating; the softmax of f16 and bf16 is computed in f32.
/// Source   Vaswani et al., "Attention is all you need", NeurIPS 2017.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {}, Location where = Location::current());

}  // namespace fermata
