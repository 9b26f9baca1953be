// Optimizers: update parameters from their gradients.
//
// An optimizer holds its parameters and per-parameter state; a step writes all of them in place. In compiled mode the
// updates of all parameters are one plan with one kernel per parameter, which reads and writes each element once. Names
// and defaults follow torch.optim. f16 and bf16 parameters are updated in f32 and rounded once; their state is f32.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "fermata/member_names.h"
#include "fermata/setting.h"
#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata::optim {

/// A model as a tree of parameters and Buffers, which optimizers accept as an alternative to a list of parameters.
template <class T>
concept TensorTree = !std::convertible_to<const T&, std::span<const Tensor>> &&
                     (fermata::detail::is_struct<T> || fermata::detail::is_tuple<T> || fermata::detail::is_map<T> ||
                      fermata::detail::is_vector<T>);

namespace detail {
/// Returns the parameters of a model, and tells its modules their names (fermata/nn/module.h).
template <class T> std::vector<Tensor> parameters_of(const T& model) {
  using fermata::detail::each_named_part, fermata::detail::TellNames;
  std::vector<Tensor> all;
  std::string path;
  each_named_part<Buffer, TellNames>(model, path, [&]<class P>(const std::string&, const P& part) {
    if constexpr (std::is_same_v<P, Tensor>)
      if (part.defined()) all.push_back(part);
  });
  return all;
}
}  // namespace detail

/// Base of all optimizers: the parameters, and the sources of their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Performs one step with one gradient per parameter; an undefined gradient leaves its parameter unchanged.
  ///
  /// Errors   ValueError unless there are as many gradients as parameters; ShapeError if shapes differ.
  void step(std::span<const Tensor> gradients, Location where = Location::current());
  /// Performs one step with a tree of gradients, as returned by grad(f) for a model. Gradients of Buffers are ignored.
  template <TensorTree T> void step(const T& gradients, Location where = Location::current()) {
    std::vector<Tensor> places = parameter_places_in(gradients);
    if (places.size() != parameters_.size()) places = parameters_in(gradients);  // the model has undefined tensors
    step(std::span<const Tensor>(places), where);
  }
  /// Performs one step with grad() of the parameters.
  void step(Location where = Location::current());
  /// Clears grad() of every parameter.
  void zero_grad() const;
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// All tensors that a step reads and writes besides parameters, in a fixed order, for checkpoints.
  virtual std::vector<Tensor> state() const = 0;

 protected:
  explicit Optimizer(std::vector<Tensor> parameters, Location where);
  /// Updates parameter i and its state; gradient and value are in the compute dtype.
  virtual void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) = 0;
  /// Called once before the updates of a step.
  virtual void begin(Location) {}

 private:
  std::vector<Tensor> parameters_;
};

/// Options may be changed between steps, even in compiled functions: a learning rate schedule neither records nor
/// compiles anything new.
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
      : SGD(detail::parameters_of(model), chosen, where) {}
  std::vector<Tensor> state() const override;
  SgdOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;

 private:
  /// The factor of the gradient that is added to the velocity: 1 in the first step, then 1 - dampening. f64.
  Tensor undamped_share(std::size_t i, bool is_first, Location where);
  std::vector<Tensor> velocity_;  // undefined until momentum is used
  std::vector<Tensor> started_;   // f64, with dampening only: 1 after a step with momentum, else 0
  std::vector<bool> has_moved_;   // whether this object made such a step
};

struct AdamOptions {
  Setting learning_rate = 1e-3;
  Setting beta1 = 0.9, beta2 = 0.999;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting maximize = false;
  Setting amsgrad = false;  // divides by the maximum of all second moments so far
};
/// Adam; weight decay is added to the gradient.
///
/// Source   Kingma and Ba, "Adam", ICLR 2015; amsgrad: Reddi, Kale and Kumar, ICLR 2018.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit Adam(const T& model, const AdamOptions& chosen = {}, Location where = Location::current())
      : Adam(detail::parameters_of(model), chosen, where) {}
  std::vector<Tensor> state() const override;
  AdamOptions options;

 protected:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled, Location where);
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  bool decoupled_;
  Tensor steps_;                          // f64: number of steps so far
  Tensor step_size_, second_correction_;  // of this step; tensors, so that replays advance them
  std::vector<Tensor> first_, second_;    // moments
  std::vector<Tensor> largest_;           // maximum second moments; undefined until amsgrad is used
};

/// Adam with decoupled weight decay (0.01 by default).
///
/// Source   Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamOptions& options = {.weight_decay = 0.01},
                 Location where = Location::current());
  template <TensorTree T> explicit AdamW(const T& model, const AdamOptions& chosen = {.weight_decay = 0.01},
                                         Location where = Location::current())
      : AdamW(detail::parameters_of(model), chosen, where) {}
};

/// Base of optimizers that keep state tensors per parameter, initially zero, and count steps.
class RememberingOptimizer : public Optimizer {
 public:
  std::vector<Tensor> state() const override;

 protected:
  /// `slots`: the number of state tensors per parameter. `late`: the number of further ones that are created on first
  /// use.
  RememberingOptimizer(std::vector<Tensor> parameters, std::size_t slots, std::size_t late, Location where);
  void begin(Location where) override;
  Tensor& memory(std::size_t slot, std::size_t i, Location where);

  Tensor steps_;                             // f64: number of steps, including this one
  std::vector<std::vector<Tensor>> memory_;  // by slot, then by parameter
};

struct RMSpropOptions {
  Setting learning_rate = 1e-2;
  Setting alpha = 0.99;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting momentum = 0;
  Setting centered = false;
  Setting maximize = false;
};
/// Divides gradients by the root of a running mean of their squares, or of their variance if `centered`.
///
/// Source   Hinton, "Lecture 6e: rmsprop", 2012; Graves, "Generating sequences with recurrent neural networks", 2013.
class RMSprop : public RememberingOptimizer {
 public:
  explicit RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& options = {},
                   Location where = Location::current());
  template <TensorTree T>
  explicit RMSprop(const T& model, const RMSpropOptions& chosen = {}, Location where = Location::current())
      : RMSprop(detail::parameters_of(model), chosen, where) {}
  RMSpropOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
};

struct AdagradOptions {
  Setting learning_rate = 1e-2;
  Setting learning_rate_decay = 0;
  Setting weight_decay = 0;
  Setting initial_accumulator_value = 0;
  Setting eps = 1e-10;
  Setting maximize = false;
};
/// Divides gradients by the root of the sum of all their squares so far.
///
/// Source   Duchi, Hazan and Singer, JMLR 12, 2011.
class Adagrad : public RememberingOptimizer {
 public:
  explicit Adagrad(std::vector<Tensor> parameters, const AdagradOptions& options = {},
                   Location where = Location::current());
  template <TensorTree T>
  explicit Adagrad(const T& model, const AdagradOptions& chosen = {}, Location where = Location::current())
      : Adagrad(detail::parameters_of(model), chosen, where) {}
  AdagradOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  Tensor step_size_;
};

struct AdadeltaOptions {
  Setting learning_rate = 1.0;
  Setting rho = 0.9;
  Setting eps = 1e-6;
  Setting weight_decay = 0;
  Setting maximize = false;
};
/// Scales gradients by the ratio of the running RMS of previous updates to that of gradients.
///
/// Source   Zeiler, "ADADELTA", 2012.
class Adadelta : public RememberingOptimizer {
 public:
  explicit Adadelta(std::vector<Tensor> parameters, const AdadeltaOptions& options = {},
                    Location where = Location::current());
  template <TensorTree T>
  explicit Adadelta(const T& model, const AdadeltaOptions& chosen = {}, Location where = Location::current())
      : Adadelta(detail::parameters_of(model), chosen, where) {}
  AdadeltaOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
};

struct AdamaxOptions {
  Setting learning_rate = 2e-3;
  Setting beta1 = 0.9, beta2 = 0.999;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting maximize = false;
};
/// Adam with a decayed maximum of gradient magnitudes in place of the second moment.
///
/// Source   Kingma and Ba, "Adam", ICLR 2015.
class Adamax : public RememberingOptimizer {
 public:
  explicit Adamax(std::vector<Tensor> parameters, const AdamaxOptions& options = {},
                  Location where = Location::current());
  template <TensorTree T>
  explicit Adamax(const T& model, const AdamaxOptions& chosen = {}, Location where = Location::current())
      : Adamax(detail::parameters_of(model), chosen, where) {}
  AdamaxOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  Tensor step_size_;
};

struct NAdamOptions {
  Setting learning_rate = 2e-3;
  Setting beta1 = 0.9, beta2 = 0.999;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting momentum_decay = 4e-3;
  Setting decoupled_weight_decay = false;
  Setting maximize = false;
};
/// Adam with Nesterov momentum, on a schedule set by `momentum_decay`.
///
/// Source   Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016.
class NAdam : public RememberingOptimizer {
 public:
  explicit NAdam(std::vector<Tensor> parameters, const NAdamOptions& options = {},
                 Location where = Location::current());
  template <TensorTree T>
  explicit NAdam(const T& model, const NAdamOptions& chosen = {}, Location where = Location::current())
      : NAdam(detail::parameters_of(model), chosen, where) {}
  std::vector<Tensor> state() const override;
  NAdamOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  Tensor product_;                               // f64: product of all momenta so far
  Tensor of_gradient_, of_moment_, correction_;  // of this step
};

struct RAdamOptions {
  Setting learning_rate = 1e-3;
  Setting beta1 = 0.9, beta2 = 0.999;
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting decoupled_weight_decay = false;
  Setting maximize = false;
};
/// Adam that uses plain momentum until enough steps make the variance estimate reliable.
///
/// Source   Liu et al., "On the variance of the adaptive learning rate and beyond", ICLR 2020.
class RAdam : public RememberingOptimizer {
 public:
  explicit RAdam(std::vector<Tensor> parameters, const RAdamOptions& options = {},
                 Location where = Location::current());
  template <TensorTree T>
  explicit RAdam(const T& model, const RAdamOptions& chosen = {}, Location where = Location::current())
      : RAdam(detail::parameters_of(model), chosen, where) {}
  RAdamOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  Tensor step_size_, rectified_, plain_;
};

struct LionOptions {
  Setting learning_rate = 1e-4;
  Setting beta1 = 0.9, beta2 = 0.99;
  Setting weight_decay = 0;
  Setting maximize = false;
};
/// Updates by the sign of an average of momentum and gradient, so all elements move by the same amount.
///
/// Source   Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023.
class Lion : public RememberingOptimizer {
 public:
  explicit Lion(std::vector<Tensor> parameters, const LionOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit Lion(const T& model, const LionOptions& chosen = {}, Location where = Location::current())
      : Lion(detail::parameters_of(model), chosen, where) {}
  LionOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
};

struct AsgdOptions {
  Setting learning_rate = 1e-2;
  Setting decay = 1e-4;  // of parameters, and of the learning rate over the steps
  Setting power = 0.75;
  Setting start = 1e6;  // the step at which averaging starts
  Setting weight_decay = 0;
  Setting maximize = false;
};
/// Stochastic gradient descent that also averages the parameters.
///
/// Source   Polyak and Juditsky, SIAM J. Control Optim. 30, 1992; torch.optim.ASGD.
class ASGD : public RememberingOptimizer {
 public:
  explicit ASGD(std::vector<Tensor> parameters, const AsgdOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit ASGD(const T& model, const AsgdOptions& chosen = {}, Location where = Location::current())
      : ASGD(detail::parameters_of(model), chosen, where) {}
  /// The averages, in parameter order; equal to the parameters before `start`.
  std::vector<Tensor> averages() const;
  AsgdOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
  void begin(Location where) override;

 private:
  Tensor step_size_, kept_, share_;  // of this step
};

struct RpropOptions {
  Setting learning_rate = 1e-2;  // the first step of each element
  Setting shrink = 0.5, grow = 1.2;
  Setting smallest_step = 1e-6, largest_step = 50;
  Setting maximize = false;
};
/// Updates by the sign of the gradient, with a step size per element that grows while the sign stays the same.
///
/// Source   Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning", 1993;
///          torch.optim.Rprop.
class Rprop : public RememberingOptimizer {
 public:
  explicit Rprop(std::vector<Tensor> parameters, const RpropOptions& options = {},
                 Location where = Location::current());
  template <TensorTree T>
  explicit Rprop(const T& model, const RpropOptions& chosen = {}, Location where = Location::current())
      : Rprop(detail::parameters_of(model), chosen, where) {}
  RpropOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
};

struct MuonOptions {
  Setting learning_rate = 1e-3;
  Setting weight_decay = 0.1;
  Setting momentum = 0.95;
  Setting nesterov = true;
  Setting eps = 1e-7;
  Setting maximize = false;
  Setting match_rms_adamw = false;  // scales updates to the RMS of AdamW's; else by sqrt(max(1, rows / columns))
  std::int64_t iterations = 5;
};
/// Momentum with updates orthogonalized by a Newton-Schulz iteration in f32. All parameters must be matrices; use
/// another optimizer for the rest.
///
/// Errors   ShapeError FM1083 for a parameter that is not a matrix.
/// Source   Jordan et al., "Muon", 2024; torch.optim.Muon.
class Muon : public RememberingOptimizer {
 public:
  explicit Muon(std::vector<Tensor> parameters, const MuonOptions& options = {}, Location where = Location::current());
  template <TensorTree T>
  explicit Muon(const T& model, const MuonOptions& chosen = {}, Location where = Location::current())
      : Muon(detail::parameters_of(model), chosen, where) {}
  MuonOptions options;

 protected:
  void update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) override;
};

struct LbfgsOptions {
  Setting learning_rate = 1;
  std::int64_t max_iterations = 20;                  // per step
  std::optional<std::int64_t> max_evaluations = {};  // by default 5 / 4 of max_iterations
  double tolerance_gradient = 1e-7, tolerance_change = 1e-9;
  std::int64_t history_size = 100;
  bool strong_wolfe = false;  // use a line search; else the step length is the learning rate
};
/// Limited-memory BFGS, a quasi-Newton method. A step evaluates the loss several times and reads it, so it cannot be
/// inside compile(fn); its parts are compiled like any code.
///
///   lbfgs.step([&] { return mse_loss(model.forward(x), y); });
///
/// Source   Nocedal and Wright, "Numerical optimization", 2006, chapters 3 and 7; torch.optim.LBFGS.
class LBFGS {
 public:
  explicit LBFGS(std::vector<Tensor> parameters, const LbfgsOptions& options = {},
                 Location where = Location::current());
  template <TensorTree T>
  explicit LBFGS(const T& model, const LbfgsOptions& chosen = {}, Location where = Location::current())
      : LBFGS(detail::parameters_of(model), chosen, where) {}
  /// `loss` recomputes the loss from the parameters at every call. Returns its value before the step.
  double step(const std::function<Tensor()>& loss, Location where = Location::current());
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// As Optimizer::state(); restoring these tensors resumes a run bit for bit.
  std::vector<Tensor> state() const { return {history_, last_, numbers_}; }
  LbfgsOptions options;

 private:
  struct Evaluation;
  struct Search;
  std::vector<Tensor> parameters_;
  Tensor history_;  // [2 history_size, n]: changes of the parameters, then of their gradients
  Tensor last_;     // [2, n]: the previous direction and gradient
  Tensor numbers_;  // f64: iterations, pairs so far, step length, scale of the first guess, products of the history
};

/// Averages the gradients of several batches, for batches that do not fit into memory at once. Sums in f32 or wider.
class GradientAccumulator {
 public:
  /// Errors   ValueError FM1378 if the number of gradients changes, ShapeError FM1080 if shapes differ.
  void add(std::span<const Tensor> gradients, Location where = Location::current());
  template <TensorTree T> void add(const T& gradients, Location where = Location::current()) {
    add(std::span<const Tensor>(parameters_in(gradients)), where);
  }
  std::int64_t count() const { return count_; }
  /// Returns the means in the dtypes of the gradients, and resets the sums. Undefined if no batch had a gradient.
  std::vector<Tensor> take(Location where = Location::current());

 private:
  std::vector<Tensor> sums_;
  std::vector<DType> dtypes_;
  std::int64_t count_ = 0;
};

/// Scales all gradients by a common factor so that their joint norm of order `norm_type` is at most `max_norm`. Returns
/// the norm before clipping. Undefined gradients are ignored.
Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm, double norm_type = 2,
                      Location where = Location::current());
/// Clamps every element of the gradients to [-limit, limit].
void clip_grad_value(std::vector<Tensor>& gradients, double limit, Location where = Location::current());

}  // namespace fermata::optim
