// Parameter initializers, which write tensors in place.
//
// Names, arguments and defaults follow torch.nn.init. The fans of a weight [out, in, ..] are in and out times the
// product of the other sizes. Writes are not recorded for gradients, so leaves that require a gradient can be
// initialized. Errors: DTypeError unless the tensor is floating, ShapeError FM1083 for too few axes.
#pragma once

#include <cstdint>
#include <string_view>

#include "fermata/random.h"
#include "runtime/tensor.h"

namespace fermata::nn::init {

void constant(const Tensor& x, double value, Location where = Location::current());
inline void zeros(const Tensor& x, Location where = Location::current()) { constant(x, 0, where); }
inline void ones(const Tensor& x, Location where = Location::current()) { constant(x, 1, where); }
void uniform(const Tensor& x, double low = 0, double high = 1, Generator& from = default_generator(),
             Location where = Location::current());
void normal(const Tensor& x, double mean = 0, double deviation = 1, Generator& from = default_generator(),
            Location where = Location::current());
/// Normal distribution truncated to [low, high].
void truncated_normal(const Tensor& x, double mean = 0, double deviation = 1, double low = -2, double high = 2,
                      Generator& from = default_generator(), Location where = Location::current());
/// Ones on the diagonal of a matrix.
void eye(const Tensor& x, Location where = Location::current());
/// Filters [out, in, ..] that copy channel i to channel i: a one in the center.
void dirac(const Tensor& x, Location where = Location::current());
/// Uniform in +-gain * sqrt(6 / (in + out)); normal with standard deviation gain * sqrt(2 / (in + out)).
///
/// Source   Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
void xavier_uniform(const Tensor& x, double gain = 1, Generator& from = default_generator(),
                    Location where = Location::current());
void xavier_normal(const Tensor& x, double gain = 1, Generator& from = default_generator(),
                   Location where = Location::current());

enum class Fan : std::uint8_t { in, out };
/// Uniform in +-gain * sqrt(3 / fan); normal with standard deviation gain / sqrt(fan). The gain is that of the
/// following activation, see gain().
///
/// Source   He et al., "Delving deep into rectifiers", ICCV 2015.
void kaiming_uniform(const Tensor& x, std::string_view activation = "leaky_relu", double slope = 0, Fan fan = Fan::in,
                     Generator& from = default_generator(), Location where = Location::current());
void kaiming_normal(const Tensor& x, std::string_view activation = "leaky_relu", double slope = 0, Fan fan = Fan::in,
                    Generator& from = default_generator(), Location where = Location::current());
/// Makes the rows or columns of x [out, the rest] orthogonal and of length gain: the q of a random normal matrix.
///
/// Source   Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear networks", 2014.
void orthogonal(const Tensor& x, double gain = 1, Generator& from = default_generator(),
                Location where = Location::current());

/// The recommended gain of weights before an activation: 1 for "linear" and "sigmoid", 5/3 for "tanh", sqrt(2) for
/// "relu", sqrt(2 / (1 + slope^2)) for "leaky_relu", 3/4 for "selu".
///
/// Errors   ValueError FM1377 for any other name.
double gain(std::string_view activation, double slope = 0.01, Location where = Location::current());

}  // namespace fermata::nn::init
