// Activations that take parameters, and softmax variants. Activations without parameters are rows of the op table
// (fermata/ops.h): relu, relu6, gelu, gelu_tanh, silu, mish, selu, sigmoid, log_sigmoid, hardsigmoid, hardswish, tanh,
// tanhshrink, softsign, softplus.
//
// Names, arguments and defaults follow torch.nn.functional. They are composed of pointwise ops, so they fuse, batch,
// and are differentiable to any order. DType: floating; integers become f32.
#pragma once

#include <string_view>

#include "fermata/random.h"
#include "runtime/operand.h"

namespace fermata {

/// x where x > 0, else alpha * (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1, Location where = Location::current());
/// x where x > 0, else alpha * (exp(x / alpha) - 1).
Tensor celu(const Tensor& x, double alpha = 1, Location where = Location::current());
/// x where x > 0, else negative_slope * x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Location where = Location::current());
/// leaky_relu with learned slopes: one for all of x, or one per element of axis 1.
///
/// Errors   ShapeError unless weight has one element or as many as axis 1 of x.
Tensor prelu(const Tensor& x, const Tensor& weight, Location where = Location::current());
/// gelu(x) for "none", gelu_tanh(x) for "tanh". Errors: ValueError for any other name.
Tensor gelu(const Tensor& x, std::string_view approximate, Location where = Location::current());
/// log(1 + exp(beta * x)) / beta, or x where beta * x > threshold.
Tensor softplus(const Tensor& x, double beta, double threshold = 20, Location where = Location::current());
/// Splits x in half along `axis` and returns first * sigmoid(second). Errors: ShapeError if the size is odd.
Tensor glu(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
/// min(max(x, low), high). Errors: ValueError if low > high.
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1, Location where = Location::current());
/// x where x > threshold, else value.
Tensor threshold(const Tensor& x, double threshold, double value, Location where = Location::current());
/// hardshrink: x where |x| > lambda, else 0. softshrink also moves x towards 0 by lambda, which must not be negative.
Tensor hardshrink(const Tensor& x, double lambda = 0.5, Location where = Location::current());
Tensor softshrink(const Tensor& x, double lambda = 0.5, Location where = Location::current());

/// softmax(-x).
Tensor softmin(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
/// Draws a differentiable sample: softmax((logits + Gumbel noise) / temperature). `hard` returns a one-hot sample that
/// keeps the gradient of the soft one.
///
/// Source   Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", ICLR 2017.
Tensor gumbel_softmax(const Tensor& logits, double temperature = 1, bool hard = false, std::int64_t axis = -1,
                      Generator& from = default_generator(), Location where = Location::current());

}  // namespace fermata
