// Activations with parameters, and the softmax family. Those without are rows of the op table (fermata/ops.h): relu,
// relu6, gelu, gelu_tanh, silu, mish, selu, sigmoid, log_sigmoid, hardsigmoid, hardswish, tanh, tanhshrink, softsign,
// softplus.
//
// Names, arguments and defaults follow torch.nn.functional. They are made of pointwise ops, so they fuse, are batched,
// and have derivatives of every order. DType: floating; integers become f32.
#pragma once

#include <string_view>

#include "fermata/random.h"
#include "runtime/operand.h"

namespace fermata {

/// x above 0, else alpha (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1, Location where = Location::current());
/// x above 0, else alpha (exp(x / alpha) - 1).
Tensor celu(const Tensor& x, double alpha = 1, Location where = Location::current());
/// x above 0, else x times a slope.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Location where = Location::current());
/// leaky_relu with slopes that are learned: one, or one for each element of axis 1.
///
/// Errors   ShapeError unless weight has one element or as many as axis 1 of x.
Tensor prelu(const Tensor& x, const Tensor& weight, Location where = Location::current());
/// gelu(x) exactly ("none"), or by a tanh ("tanh"), which is gelu_tanh(x). Errors: ValueError for other names.
Tensor gelu(const Tensor& x, std::string_view approximate, Location where = Location::current());
/// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta, double threshold = 20, Location where = Location::current());
/// The first half of an axis times the sigmoid of the second. Errors: ShapeError where its size is odd.
Tensor glu(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
/// min(max(x, low), high). Errors: ValueError for a low above high.
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1, Location where = Location::current());
/// x above the threshold, else a value.
Tensor threshold(const Tensor& x, double threshold, double value, Location where = Location::current());
/// x where it is further than lambda from 0, else 0; softshrink moves what is left towards 0 by lambda,
/// which must not be negative.
Tensor hardshrink(const Tensor& x, double lambda = 0.5, Location where = Location::current());
Tensor softshrink(const Tensor& x, double lambda = 0.5, Location where = Location::current());

/// softmax(-x).
Tensor softmin(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
/// softmax of logits with Gumbel noise, divided by a temperature: a sample that can be differentiated. `hard` rounds it
/// to one 1 among zeros and keeps the gradient.
///
/// Source   Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", ICLR 2017.
Tensor gumbel_softmax(const Tensor& logits, double temperature = 1, bool hard = false, std::int64_t axis = -1,
                      Generator& from = default_generator(), Location where = Location::current());

}  // namespace fermata
