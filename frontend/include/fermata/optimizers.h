// Optimizers: how parameters follow their gradients.
//
// An optimizer holds its parameters and what it remembers of each; a step writes all of them in place. In compiled mode
// the updates of all parameters are one plan: one kernel for each parameter, each reading and writing its elements
// once. Names and defaults follow torch.optim. f16 and bf16 parameters are updated in f32 and rounded once; what is
// remembered of them is f32.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "fermata/setting.h"
#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata::optim {

/// A model as a tree of its parameters, and of Buffers: what optimizers take beside lists of parameters.
template <class T>
concept TensorTree = !std::convertible_to<const T&, std::span<const Tensor>> &&
                     (detail::is_struct<T> || detail::is_tuple<T> || detail::is_map<T> || detail::is_vector<T>);

/// What all optimizers share: the parameters, and where their gradients come from.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One step along these gradients, one for each parameter; undefined ones leave their parameter as it is.
  ///
  /// Errors   ValueError unless there are as many gradients as parameters; ShapeError where shapes differ.
  void step(std::span<const Tensor> gradients, Location where = Location::current());
  /// The same along a tree of gradients, as grad(f) gives for a model. Those of Buffers are left out.
  template <TensorTree T> void step(const T& gradients, Location where = Location::current()) {
    std::vector<Tensor> places = parameter_places_in(gradients);
    if (places.size() != parameters_.size()) places = parameters_in(gradients);  // the model has empty places, too
    step(std::span<const Tensor>(places), where);
  }
  /// The same along grad() of the parameters.
  void step(Location where = Location::current());
  /// Forgets grad() of every parameter.
  void zero_grad() const;
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// Everything that a step reads and writes besides parameters, in a fixed order: what a checkpoint needs.
  virtual std::vector<Tensor> state() const = 0;

 protected:
  explicit Optimizer(std::vector<Tensor> parameters, Location where);
  /// Writes parameter i and its state; gradient and value are in the dtype that is computed in.
  virtual void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) = 0;
  /// Called once before the updates of a step.
  virtual void begin(Location) {}

 private:
  std::vector<Tensor> parameters_;
};

/// Options may be changed between steps, those of compiled functions included: a schedule that gives another learning
/// rate to every step records and compiles nothing.
struct SgdOptions {
  Setting learning_rate = 1e-3;
  Setting momentum = 0;
  Setting dampening = 0;
  Setting weight_decay = 0;
  Setting nesterov = false;
  Setting maximize = false;
};
/// Stochastic gradient descent. Errors: ValueError for nesterov without momentum or with dampening.
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SgdOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit SGD(const T& model, const SgdOptions& chosen = {}, Location where = Location::current())
      : SGD(parameters_in(model), chosen, where) {}
  std::vector<Tensor> state() const override;
  SgdOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;

 private:
  /// What part of a gradient is added to the velocity: all of the first one. f64.
  Tensor undamped_share(std::size_t i, bool is_first, Location where);
  std::vector<Tensor> velocity_;  // undefined until there is momentum
  std::vector<Tensor> started_;   // f64, where there is dampening: 1 if there was a step with momentum, else 0
  std::vector<bool> has_moved_;   // whether there was such a step of this object
};

struct AdamOptions {
  Setting learning_rate = 1e-3;
  Setting beta1 = 0.9, beta2 = 0.999;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting maximize = false;
};
/// Adam; weight decay is added to the gradient.
///
/// Source   Kingma and Ba, "Adam", ICLR 2015.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit Adam(const T& model, const AdamOptions& chosen = {}, Location where = Location::current())
      : Adam(parameters_in(model), chosen, where) {}
  std::vector<Tensor> state() const override;
  AdamOptions options;

 protected:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled, Location where);
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  bool decoupled_;
  Tensor steps_;                          // f64: how many there were
  Tensor step_size_, second_correction_;  // of this step: tensors, so that compiled functions count on
  std::vector<Tensor> first_, second_;    // moments
};

/// Adam with a weight decay that is apart from the gradient (0.01 by default).
///
/// Source   Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamOptions& options = {.weight_decay = 0.01},
                 Location where = Location::current());
  template <TensorTree T> explicit AdamW(const T& model, const AdamOptions& chosen = {.weight_decay = 0.01},
                                         Location where = Location::current())
      : AdamW(parameters_in(model), chosen, where) {}
};

/// The mean of the gradients of several batches, for batches that do not fit into memory at once. They are summed in
/// f32 or wider.
class GradientAccumulator {
 public:
  /// Errors   ValueError FM1378 for another number of gradients than before, ShapeError FM1080 where shapes differ.
  void add(std::span<const Tensor> gradients, Location where = Location::current());
  template <TensorTree T> void add(const T& gradients, Location where = Location::current()) {
    add(std::span<const Tensor>(parameters_in(gradients)), where);
  }
  std::int64_t count() const { return count_; }
  /// The means, in the dtypes of the gradients; starts again. Undefined where no batch had a gradient.
  std::vector<Tensor> take(Location where = Location::current());

 private:
  std::vector<Tensor> sums_;
  std::vector<DType> dtypes_;
  std::int64_t count_ = 0;
};

/// Scales gradients down together so that their common length of order `norm_type` is at most `max_norm`; gives the
/// length they had. Undefined gradients are left out.
Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm, double norm_type = 2,
                      Location where = Location::current());
/// Limits every element of the gradients to [-limit, limit].
void clip_grad_value(std::vector<Tensor>& gradients, double limit, Location where = Location::current());

}  // namespace fermata::optim
