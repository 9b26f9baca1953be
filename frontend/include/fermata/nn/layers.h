// Basic modules: Linear, Embedding, Dropout, activations and Sequential.
//
// Parameter names, shapes and initial values follow torch.nn. Parameters require gradients by default. Constructors
// draw from the default generator, and throw ValueError FM1377 for a size that is not positive.
#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fermata/integer_list.h"
#include "fermata/nn/module.h"

namespace fermata::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
};
/// x times the transpose of weight [out, in], plus bias [out].
struct Linear : Callable<Linear>, Named {
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {}, Location where = Location::current());
  /// Shapes   x [.., in] -> [.., out]
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  FERMATA_TREE(weight, bias)
};

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = {};  // this row is initialized to zeros and gets no gradient
  DType dtype = DType::f32;
};
/// Looks up rows of a table [rows, width] by integer indices.
struct Embedding : Callable<Embedding>, Named {
  Embedding(std::int64_t rows, std::int64_t width, const EmbeddingOptions& options = {},
            Location where = Location::current());
  /// Shapes   index [..] -> [.., width]
  Tensor forward(const Tensor& index, Location where = Location::current()) const;
  Tensor weight;
  std::optional<std::int64_t> padding_idx;
  FERMATA_TREE(weight, padding_idx)
};

/// In training, zeroes each element with probability p and scales the rest by 1 / (1 - p); otherwise returns x.
struct Dropout : Callable<Dropout>, Named {
  Dropout() : Dropout(0.5) {}
  explicit Dropout(double probability) : p(probability) {}
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Setting p;
  Training training;
  FERMATA_TREE(p, training)
};
/// Dropout of whole channels of x [N, C, ..].
struct FeatureDropout : Callable<FeatureDropout>, Named {
  FeatureDropout() : FeatureDropout(0.5) {}
  explicit FeatureDropout(double probability) : p(probability) {}
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Setting p;
  Training training;
  FERMATA_TREE(p, training)
};

// Modules without parameters, for Sequential.
struct Identity : Callable<Identity> {
  Tensor forward(const Tensor& x, Location = Location::current()) const { return x; }
};
struct ReLU : Callable<ReLU> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
struct GELU : Callable<GELU> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
struct SiLU : Callable<SiLU> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
struct Mish : Callable<Mish> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
struct Sigmoid : Callable<Sigmoid> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
struct Tanh : Callable<Tanh> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};
/// Flattens all axes but the first into one.
struct Flatten : Callable<Flatten> {
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
};

/// Applies modules in order: Sequential(Linear(4, 8), ReLU(), Linear(8, 2)). Elements may also be functions of one
/// tensor. Parameters are named "0.weight", "2.weight".
template <class... M> class Sequential {
 public:
  Sequential() requires(std::is_default_constructible_v<M>&&...) = default;
  explicit Sequential(M... modules) requires(sizeof...(M) > 0) : modules_(std::move(modules)...) {}
  Tensor forward(const Tensor& x, Location where = Location::current()) const { return run<0>(x, where); }
  Tensor operator()(const Tensor& x, Location where = Location::current()) const { return forward(x, where); }
  template <std::size_t I> auto& get() { return std::get<I>(modules_); }
  template <std::size_t I> const auto& get() const { return std::get<I>(modules_); }

  auto tree_members() { return fermata::detail::members(modules_); }
  auto tree_members() const { return fermata::detail::members(modules_); }

 private:
  template <std::size_t I> Tensor run(const Tensor& x, Location where) const {
    if constexpr (I == sizeof...(M)) {
      return x;
    } else {
      const auto& module = std::get<I>(modules_);
      if constexpr (requires { module.forward(x, where); })
        return run<I + 1>(module.forward(x, where), where);
      else if constexpr (requires { module.forward(x); })
        return run<I + 1>(module.forward(x), where);
      else
        return run<I + 1>(module(x), where);
    }
  }
  std::tuple<M...> modules_;
};

}  // namespace fermata::nn
