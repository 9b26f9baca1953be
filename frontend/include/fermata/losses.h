// Loss functions.
//
// Names, arguments and defaults follow torch.nn.functional. x and target broadcast unless stated otherwise; `reduction`
// applies to the elementwise losses. DType: floating; f16 and bf16 are computed in f32 and rounded once, integers
// become f32. Errors: ShapeError if operands do not match, ValueError for parameters out of range.
#pragma once

#include "runtime/operand.h"

namespace fermata {

enum class LossReduction : std::uint8_t {
  none,
  mean,
  sum,
  batch_mean,  // the sum divided by the size of axis 0
};

namespace detail {
/// max(near - far + margin, 0) of distances; uses min(far, swapped) instead of far if `swapped` is defined.
Tensor triplet_loss(const Tensor& near, const Tensor& far, const Tensor& swapped, double margin,
                    LossReduction reduction, Location where);
}  // namespace detail

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::mean,
                Location where = Location::current());
Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::mean,
               Location where = Location::current());
/// d * d / (2 beta) where the distance d is below beta, else d - beta / 2.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::mean,
                      double beta = 1, Location where = Location::current());
/// d * d / 2 where the distance d is below delta, else delta (d - delta / 2).
Tensor huber_loss(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::mean,
                  double delta = 1, Location where = Location::current());

struct ClassOptions {
  Tensor weight = {};                // [C]: per class; also weights the mean
  std::int64_t ignore_index = -100;  // targets with this label are ignored
  LossReduction reduction = LossReduction::mean;
  double label_smoothing = 0;  // cross_entropy: this share of every target is spread over all classes
  std::int64_t axis = 1;       // the class axis of x; 0 for a vector
};
/// The negative log-likelihood of labels; x holds log-probabilities.
///
/// Shapes   x [N, C, ..] or [C], labels [N, ..] or []. Labels are integers in [0, C) or ignore_index; the loss of a
///          label out of range is NaN.
Tensor nll_loss(const Tensor& x, const Tensor& labels, const ClassOptions& options = {},
                Location where = Location::current());
/// nll_loss of log_softmax(x), or the cross entropy with probabilities if target is floating and has the shape of x.
///
/// Shapes   x [N, C, ..] or [C]: classes are along axis 1, as in PyTorch. For scores [.., C] use {.axis = -1}.
/// Source   PyTorch, torch.nn.functional.cross_entropy.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassOptions& options = {},
                     Location where = Location::current());

/// -(t log(x) + (1 - t) log(1 - x)), with logarithms clamped at -100. weight is per element, or undefined.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            LossReduction reduction = LossReduction::mean, Location where = Location::current());
/// binary_cross_entropy of sigmoid(x), without overflow; pos_weight multiplies the term of t.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                        LossReduction reduction = LossReduction::mean, const Tensor& pos_weight = {},
                                        Location where = Location::current());
/// target * (log(target) - x), where x holds log-probabilities; with log_target, so does target.
Tensor kl_div(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::mean,
              bool log_target = false, Location where = Location::current());

/// cosine_similarity: x . y / (|x| |y|) along an axis of the broadcast operands, with lengths clamped at eps.
/// pairwise_distance: the p-norm of x - y + eps along the last axis.
Tensor cosine_similarity(const Tensor& x, const Tensor& y, std::int64_t axis = 1, double eps = 1e-8,
                         Location where = Location::current());
Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p = 2, double eps = 1e-6, bool keepdims = false,
                         Location where = Location::current());

// sign is 1 for pairs that belong together, else -1.
Tensor cosine_embedding_loss(const Tensor& x, const Tensor& y, const Tensor& sign, double margin = 0,
                             LossReduction reduction = LossReduction::mean, Location where = Location::current());
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& sign, double margin = 1,
                            LossReduction reduction = LossReduction::mean, Location where = Location::current());
Tensor margin_ranking_loss(const Tensor& x, const Tensor& y, const Tensor& sign, double margin = 0,
                           LossReduction reduction = LossReduction::mean, Location where = Location::current());
/// log(1 + exp(-sign x)).
Tensor soft_margin_loss(const Tensor& x, const Tensor& sign, LossReduction reduction = LossReduction::mean,
                        Location where = Location::current());
/// max(|anchor - positive| - |anchor - negative| + margin, 0), with p-norm distances. With `swap`, the distance of
/// positive and negative replaces the second one where it is smaller. Errors: ValueError for a negative margin.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin = 1,
                           double p = 2, double eps = 1e-6, bool swap = false,
                           LossReduction reduction = LossReduction::mean, Location where = Location::current());

/// triplet_margin_loss with any distance function of two tensors, which returns one number per example.
///
///   triplet_margin_with_distance_loss(a, p, n,
///                                     [](const Tensor& x, const Tensor& y) { return 1 - cosine_similarity(x, y); });
template <class D> Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                                            const Tensor& negative, D&& distance, double margin = 1,
                                                            bool swap = false,
                                                            LossReduction reduction = LossReduction::mean,
                                                            Location where = Location::current()) {
  return detail::triplet_loss(distance(anchor, positive), distance(anchor, negative),
                              swap ? distance(positive, negative) : Tensor(), margin, reduction, where);
}

/// The mean over all classes but the label of max(0, margin - x[label] + x[class])^p, times weight[label].
///
/// Shapes   x [N, C] or [C], labels [N] or [], weight [C] or undefined -> [N] or [] before reduction. The loss of a
///          label out of range is NaN. p is 1 or 2.
Tensor multi_margin_loss(const Tensor& x, const Tensor& labels, int p = 1, double margin = 1, const Tensor& weight = {},
                         LossReduction reduction = LossReduction::mean, Location where = Location::current());
/// The sum over labels and non-label classes of max(0, 1 - (x[label] - x[class])) / C. An example's labels end at the
/// first negative one.
///
/// Shapes   x and labels [N, C] or [C].
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& labels, LossReduction reduction = LossReduction::mean,
                              Location where = Location::current());
/// The mean over classes, the last axis, of the binary cross entropy of sigmoid(x).
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                   LossReduction reduction = LossReduction::mean, Location where = Location::current());

struct CtcOptions {
  std::int64_t blank = 0;
  LossReduction reduction = LossReduction::mean;  // mean: each loss is first divided by its number of labels
  bool zero_infinity = false;                     // the loss of a target that cannot be aligned is 0, not infinity
};
/// Connectionist temporal classification: -log of the total probability of all alignments of the labels with the steps.
///
/// Shapes   log_probs [T, N, C] or [T, C]; targets [N, S], integers; input_lengths and target_lengths [N] or [], at
///          most T and S. Elements beyond a length are ignored.
/// Source   Graves et al., "Connectionist temporal classification", ICML 2006; PyTorch, ctc_loss.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcOptions& options = {}, Location where = Location::current());

/// (log(var) + (x - target)^2 / var) / 2, with var clamped at eps; `full` adds log(2 pi) / 2.
///
/// Shapes   var has the shape of x, one element, or one element per row: x [.., N] and var [..] or [.., 1].
/// Errors   ShapeError FM1022 for any other shape of var.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var, bool full = false, double eps = 1e-6,
                         LossReduction reduction = LossReduction::mean, Location where = Location::current());
/// exp(x) - target x, or x - target log(x + eps) unless log_input; `full` adds Stirling's approximation of
/// log(target!).
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input = true, bool full = false,
                        double eps = 1e-8, LossReduction reduction = LossReduction::mean,
                        Location where = Location::current());

}  // namespace fermata
