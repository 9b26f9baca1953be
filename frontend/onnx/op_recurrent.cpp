// RNN, GRU and LSTM: one loop over the steps for each direction, which runs as one step of a plan.
#include <array>
#include <functional>

#include "fermata/activations.h"
#include "fermata/control_flow.h"
#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

using Activation = std::function<Tensor(const Tensor&)>;

class Activations {
 public:
  Activations(const NodeCall& c, std::vector<std::string> otherwise) : c_(c), names_(c.attr_texts("activations")) {
    if (names_.empty())
      while (names_.size() < 6) names_.insert(names_.end(), otherwise.begin(), otherwise.end());
    alphas_ = c.attr_numbers("activation_alpha"), betas_ = c.attr_numbers("activation_beta");
  }
  /// Number k of all directions.
  Activation operator[](std::size_t k) const {
    if (k >= names_.size()) c_.fail("too few activations");
    std::string name = names_[k];
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    // Parameters belong, in order, to the activations that take some; there is seldom more than one.
    const double alpha = k < alphas_.size() ? alphas_[k] : std::numeric_limits<double>::quiet_NaN();
    const double beta = k < betas_.size() ? betas_[k] : std::numeric_limits<double>::quiet_NaN();
    const auto or_else = [](double v, double otherwise) { return v == v ? v : otherwise; };
    if (name == "sigmoid") return [](const Tensor& x) { return sigmoid(x); };
    if (name == "tanh") return [](const Tensor& x) { return tanh(x); };
    if (name == "relu") return [](const Tensor& x) { return relu(x); };
    if (name == "softsign") return [](const Tensor& x) { return softsign(x); };
    if (name == "softplus") return [](const Tensor& x) { return softplus(x); };
    if (name == "affine") return [a = or_else(alpha, 1), b = or_else(beta, 0)](const Tensor& x) { return x * a + b; };
    if (name == "leakyrelu") return [a = or_else(alpha, 0.01)](const Tensor& x) { return leaky_relu(x, a); };
    if (name == "thresholdedrelu") return [a = or_else(alpha, 1)](const Tensor& x) { return threshold(x, a, 0); };
    if (name == "scaledtanh")
      return [a = or_else(alpha, 1), b = or_else(beta, 1)](const Tensor& x) { return tanh(x * b) * a; };
    if (name == "hardsigmoid")
      return [a = or_else(alpha, 0.2), b = or_else(beta, 0.5)](const Tensor& x) { return clip(x * a + b, 0, 1); };
    if (name == "elu") return [a = or_else(alpha, 1)](const Tensor& x) { return elu(x, a); };
    c_.refuse("activation '" + names_[k] + "' is not supported");
  }

 private:
  const NodeCall& c_;
  std::vector<std::string> names_;
  std::vector<double> alphas_, betas_;
};

/// The operands of a node with time first, and what all three cells have in common.
struct Layout {
  Tensor x, lengths;  // x [T, B, I]; lengths [B, 1] or undefined
  bool batch_first;
  std::int64_t directions, hidden;
  std::string direction;

  explicit Layout(const NodeCall& c)
      : x(c.in(0)),
        batch_first(c.attr("layout", std::int64_t{0}) != 0),
        directions(c.in(1).size(0)),
        hidden(c.in(2).size(-1)),
        direction(c.attr("direction", "forward")) {
    if (batch_first) x = swapaxes(x, 0, 1, c.where);
    if (c.has(4)) lengths = reshape(astype(c.in(4), DType::i64, c.where), {-1, 1}, c.where);
  }
  std::int64_t steps() const { return x.size(0); }
  std::int64_t batch() const { return x.size(1); }
  bool is_reverse(std::int64_t d) const { return direction == "reverse" || d == 1; }
  /// What a node starts from along direction d: [B, H].
  Tensor initial(const NodeCall& c, std::size_t k, std::int64_t d) const {
    if (!c.has(k)) return zeros({batch(), hidden}, x.dtype());
    return select(batch_first ? swapaxes(c.in(k), 0, 1, c.where) : c.in(k), 0, d, c.where);
  }
  /// Steps in the order in which a direction takes them; with lengths each example begins with its own last one.
  Tensor ordered(const NodeCall& c, const Tensor& seq, std::int64_t d) const {
    if (!is_reverse(d)) return seq;
    if (!lengths.defined()) return flip(seq, 0, c.where);
    const Tensor t = reshape(arange(steps()), {-1, 1, 1}, c.where), n = reshape(lengths, {1, -1, 1}, c.where);
    const Tensor places = where(t < n, n - 1 - t, t);
    return gather(seq, broadcast_to(places, seq.shape(), c.where), 0, c.where);
  }
  void give(NodeCall& c, const std::vector<Tensor>& outputs, const std::vector<std::vector<Tensor>>& lasts) const {
    const Tensor y = stack(outputs, 1, c.where);  // [T, D, B, H]
    c.give(batch_first ? permute(y, {2, 0, 1, 3}, c.where) : y);
    for (const std::vector<Tensor>& last : lasts) {
      const Tensor h = stack(last, 0, c.where);
      c.give(batch_first ? swapaxes(h, 0, 1, c.where) : h);
    }
  }
};

Tensor limited(const NodeCall& c, const Tensor& x) {
  const Attribute* const limit = c.attribute("clip", AttributeType::number);
  return limit == nullptr ? x : clip(x, -limit->number, limit->number);
}

/// state -> state for a step whose part of the input is `x` [B, G * H].
using Cell = std::function<std::vector<Tensor>(const std::vector<Tensor>& state, const Tensor& x)>;

/// Runs a cell over the steps of a direction; gives the outputs [T, B, H], and leaves the last state.
Tensor run(const NodeCall& c, const Layout& l, std::int64_t d, const Tensor& inputs, std::vector<Tensor>& state,
           const Cell& cell) {
  const bool masked = l.lengths.defined();
  const Tensor steps = l.ordered(c, inputs, d);
  const auto step = [cell, masked, lengths = l.lengths](const std::pair<std::vector<Tensor>, Tensor>& carry,
                                                        const Tensor& x) {
    const auto& [before, t] = carry;
    std::vector<Tensor> after = cell(before, x);
    Tensor y = after[0];
    if (masked) {
      const Tensor goes_on = t < lengths;
      y = where(goes_on, y, 0);
      for (std::size_t i = 0; i < after.size(); ++i) after[i] = where(goes_on, after[i], before[i]);
    }
    return std::pair(std::pair(after, t + 1), y);
  };
  auto [last, ys] = scan(step, std::pair(state, zeros({}, DType::i64)), steps, false, c.where);
  state = last.first;
  return l.ordered(c, ys, d);
}

/// Rows k * H to (k + 1) * H.
Tensor part(const Tensor& x, std::int64_t k, std::int64_t hidden) { return slice(x, -1, k * hidden, (k + 1) * hidden); }

struct Weights {
  Tensor inputs, recurrent, input_bias, recurrent_bias;
};
/// Of one direction: W x of all steps, R transposed, and biases of both (zeros where there are none).
Weights weights_of(const NodeCall& c, const Layout& l, std::int64_t d, std::int64_t gates) {
  const Tensor w = select(c.in(1), 0, d, c.where), r = select(c.in(2), 0, d, c.where);
  Weights all{matmul(l.x, transpose(w, -2, -1, c.where), c.where), transpose(r, -2, -1, c.where), {}, {}};
  if (!c.has(3)) {
    all.input_bias = all.recurrent_bias = zeros({gates * l.hidden}, l.x.dtype());
    return all;
  }
  const Tensor b = select(c.in(3), 0, d, c.where);
  all.input_bias = slice(b, 0, 0, gates * l.hidden, 1, c.where);
  all.recurrent_bias = slice(b, 0, gates * l.hidden, 2 * gates * l.hidden, 1, c.where);
  return all;
}

void rnn_op(NodeCall& c) {
  const Layout l(c);
  const Activations activations(c, {"Tanh"});
  std::vector<Tensor> outputs;
  std::vector<std::vector<Tensor>> lasts(1);
  for (std::int64_t d = 0; d < l.directions; ++d) {
    const Weights w = weights_of(c, l, d, 1);
    const Activation f = activations[static_cast<std::size_t>(d)];
    std::vector<Tensor> state{l.initial(c, 5, d)};
    const Tensor recurrent = w.recurrent;
    outputs.push_back(run(c, l, d, w.inputs + w.input_bias + w.recurrent_bias, state,
                          [&c, f, recurrent](const std::vector<Tensor>& h, const Tensor& x) {
                            return std::vector{f(limited(c, x + matmul(h[0], recurrent)))};
                          }));
    lasts[0].push_back(state[0]);
  }
  l.give(c, outputs, lasts);
}

void gru_op(NodeCall& c) {
  const Layout l(c);
  const Activations activations(c, {"Sigmoid", "Tanh"});
  const bool before = c.attr("linear_before_reset", std::int64_t{0}) != 0;
  std::vector<Tensor> outputs;
  std::vector<std::vector<Tensor>> lasts(1);
  for (std::int64_t d = 0; d < l.directions; ++d) {
    const Weights w = weights_of(c, l, d, 3);
    const auto first = static_cast<std::size_t>(2 * d);
    const Activation f = activations[first], g = activations[first + 1];
    std::vector<Tensor> state{l.initial(c, 5, d)};
    const std::int64_t n = l.hidden;
    const Tensor gates = slice(w.recurrent, -1, 0, 2 * n), hidden = slice(w.recurrent, -1, 2 * n, 3 * n);
    const Tensor gate_bias = slice(w.recurrent_bias, -1, 0, 2 * n), hidden_bias = part(w.recurrent_bias, 2, n);
    outputs.push_back(run(c, l, d, w.inputs + w.input_bias, state,
                          [&c, f, g, gates, hidden, gate_bias, hidden_bias, n, before](
                              const std::vector<Tensor>& state_before, const Tensor& x) {
                            const Tensor& h = state_before[0];
                            const Tensor both = f(limited(c, slice(x, -1, 0, 2 * n) + matmul(h, gates) + gate_bias));
                            const Tensor z = part(both, 0, n), r = part(both, 1, n);
                            const Tensor part_of_h =
                                before ? r * (matmul(h, hidden) + hidden_bias) : matmul(r * h, hidden) + hidden_bias;
                            const Tensor candidate = g(limited(c, part(x, 2, n) + part_of_h));
                            return std::vector{(1 - z) * candidate + z * h};
                          }));
    lasts[0].push_back(state[0]);
  }
  l.give(c, outputs, lasts);
}

void lstm_op(NodeCall& c) {
  const Layout l(c);
  const Activations activations(c, {"Sigmoid", "Tanh", "Tanh"});
  const bool coupled = c.attr("input_forget", std::int64_t{0}) != 0;
  std::vector<Tensor> outputs;
  std::vector<std::vector<Tensor>> lasts(2);
  for (std::int64_t d = 0; d < l.directions; ++d) {
    const Weights w = weights_of(c, l, d, 4);
    const auto first = static_cast<std::size_t>(3 * d);
    const Activation f = activations[first], g = activations[first + 1], h = activations[first + 2];
    std::vector<Tensor> state{l.initial(c, 5, d), l.initial(c, 6, d)};
    const std::int64_t n = l.hidden;
    const Tensor recurrent = w.recurrent;
    const Tensor peepholes = c.has(7) ? select(c.in(7), 0, d, c.where) : Tensor();  // of i, o, f
    outputs.push_back(
        run(c, l, d, w.inputs + w.input_bias + w.recurrent_bias, state,
            [&c, f, g, h, recurrent, peepholes, n, coupled](const std::vector<Tensor>& before, const Tensor& x) {
              const Tensor& cell = before[1];
              const Tensor all = x + matmul(before[0], recurrent);  // of i, o, f, c
              const auto gate = [&](std::int64_t k, std::int64_t peephole, const Tensor& seen) {
                const Tensor own = part(all, k, n);
                return f(limited(c, peepholes.defined() ? own + part(peepholes, peephole, n) * seen : own));
              };
              const Tensor input = gate(0, 0, cell);
              const Tensor forget = coupled ? 1 - input : gate(2, 2, cell);
              const Tensor next = forget * cell + input * g(limited(c, part(all, 3, n)));
              return std::vector{gate(1, 1, next) * h(next), next};
            }));
    lasts[0].push_back(state[0]), lasts[1].push_back(state[1]);
  }
  l.give(c, outputs, lasts);
}

constexpr std::array kRows{
    OperatorRow{"GRU", &gru_op},
    OperatorRow{"LSTM", &lstm_op},
    OperatorRow{"RNN", &rnn_op},
};

}  // namespace

Rows recurrent_rows() { return kRows; }

}  // namespace fermata::onnx
