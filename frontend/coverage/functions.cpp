// The rows of array_api.def, neural_nets.def and scientific.def as functions.
#include <cmath>
#include <utility>

#include "fermata/fermata.h"
#include "fermata/modules.h"
#include "frontend/coverage/coverage.h"

namespace fermata::coverage {
namespace {

// What a call gives, as a list.
Results listed(Tensor x) { return {std::move(x)}; }
Results listed(std::vector<Tensor> xs) { return xs; }
Results listed(const TopK& t) { return {t.values, t.indices}; }
Results listed(const Unique& u) {
  Results all;
  for (const Tensor& t : {u.values, u.indices, u.inverse_indices, u.counts})
    if (t.defined()) all.push_back(t);
  return all;
}

Results listed(const ValuesAndIndices& v) { return {v.values, v.indices}; }

/// A copy of x after one step along a gradient.
template <class Optimizer> Tensor stepped(const Tensor& x, const Tensor& gradient) {
  if (x.requires_grad() || gradient.requires_grad())
    throw GradientError(1717, "an optimizer's step writes its parameters: nothing is differentiated through it");
  const Tensor parameter = copy(x);
  Optimizer optimizer({parameter});
  optimizer.step(std::array{gradient});
  return parameter;
}

/// The modules of the rows. Made before any of them runs, as a row may run inside a transform; what that draws from the
/// generator is given back.
struct Modules {
  Generator before = default_generator();
  nn::Linear linear{4, 5};
  nn::Embedding embedding{6, 4};
  nn::Conv2d conv{2, 3, 3, {.padding = 1}};
  nn::ConvTranspose1d conv_transpose{3, 2, 3, {.stride = 2}};
  nn::BatchNorm batch_norm{3, {.track_running_stats = false}};
  nn::LayerNorm layer_norm{{3, 4}};
  nn::GroupNorm group_norm{2, 4};
  nn::RMSNorm rms_norm{4};
  nn::MultiheadAttention attention{4, 2, {.bias = false}};
  nn::RNN rnn{3, 4, {.bias = false}};
  nn::GRU gru{3, 4, {.bias = false}};
  nn::LSTM lstm{3, 4, {.bias = false}};
  Modules() { default_generator() = before; }
};
const Modules& modules() {
  static const Modules all;
  return all;
}
/// A module of these tensors.
template <class M> M holding(const M& module, std::vector<Tensor> tensors) {
  return with_tensors(module, std::move(tensors));
}

#define FERMATA_COVERED(name, section, inputs, call, numpy)                    \
  {#name,                                                                      \
   #section,                                                                   \
   inputs,                                                                     \
   +[](std::span<const Tensor> given) -> Results {                             \
     [[maybe_unused]] const Tensor x = given.size() > 0 ? given[0] : Tensor(); \
     [[maybe_unused]] const Tensor y = given.size() > 1 ? given[1] : Tensor(); \
     [[maybe_unused]] const Tensor z = given.size() > 2 ? given[2] : Tensor(); \
     return listed(call);                                                      \
   },                                                                          \
   numpy,                                                                      \
   ""},

constexpr auto kFunctions = std::to_array<Function>({
#define FERMATA_STANDARD(name, section, inputs, call, numpy) FERMATA_COVERED(name, section, inputs, call, numpy)
#define FERMATA_ABSENT(name, section, reason) {#name, #section, "", nullptr, "", reason},
#include "frontend/coverage/array_api.def"

#define FERMATA_STANDARD(name, section, inputs, call, numpy) FERMATA_COVERED(name, section, inputs, call, numpy)
#define FERMATA_ABSENT(name, section, reason) {#name, #section, "", nullptr, "", reason},
#include "frontend/coverage/neural_nets.def"

#define FERMATA_STANDARD(name, section, inputs, call, numpy) FERMATA_COVERED(name, section, inputs, call, numpy)
#define FERMATA_ABSENT(name, section, reason) {#name, #section, "", nullptr, "", reason},
#include "frontend/coverage/scientific.def"
});
#undef FERMATA_COVERED

}  // namespace

std::span<const Function> functions() {
  modules();
  return kFunctions;
}

}  // namespace fermata::coverage
