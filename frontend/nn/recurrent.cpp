// See fermata/nn/recurrent.h.
#include "fermata/nn/recurrent.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "fermata/composites.h"
#include "fermata/control_flow.h"
#include "fermata/layers.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/nn/parameter.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata::nn {
namespace {

/// What is carried from time to time: h, and for LSTM the cell.
using State = std::array<Tensor, 2>;

/// Gate number i of [N, gates * hidden].
Tensor gate(const Tensor& all, std::int64_t i, std::int64_t hidden, Location where) {
  return slice(all, -1, i * hidden, (i + 1) * hidden, 1, where);
}

// One time: the state from the one before, of what the input and the hidden state give to the gates.
State rnn_cell(const Tensor& from_x, const Tensor& from_h, const State&, std::int64_t, Location where) {
  return {tanh({add({from_x, where}, {from_h, where}), where}), Tensor()};
}
State gru_cell(const Tensor& from_x, const Tensor& from_h, const State& state, std::int64_t hidden, Location where) {
  const auto sum = [&](std::int64_t i) {
    return add({gate(from_x, i, hidden, where), where}, {gate(from_h, i, hidden, where), where});
  };
  const Tensor reset = sigmoid({sum(0), where}), update = sigmoid({sum(1), where});
  const Tensor open = multiply({reset, where}, {gate(from_h, 2, hidden, where), where});
  const Tensor next = tanh({add({gate(from_x, 2, hidden, where), where}, {open, where}), where});
  // (1 - update) * next + update * h
  const Tensor back = multiply({update, where}, {subtract({state[0], where}, {next, where}), where});
  return {add({next, where}, {back, where}), Tensor()};
}
State lstm_cell(const Tensor& from_x, const Tensor& from_h, const State& state, std::int64_t hidden, Location where) {
  const Tensor all = add({from_x, where}, {from_h, where});
  const auto open = [&](std::int64_t i) { return sigmoid({gate(all, i, hidden, where), where}); };
  const Tensor fresh = multiply({open(0), where}, {tanh({gate(all, 2, hidden, where), where}), where});
  const Tensor cell = add({multiply({open(1), where}, {state[1], where}), where}, {fresh, where});
  return {multiply({open(3), where}, {tanh({cell, where}), where}), cell};
}
using Cell = State (*)(const Tensor&, const Tensor&, const State&, std::int64_t, Location);

struct Weights {
  Tensor ih, hh, ih_bias, hh_bias;
};
Weights weights_of(const Recurrent& r, std::size_t run) {
  const std::size_t each = r.bias ? 4 : 2, at = run * each;
  const Tensor* const w = &r.weights.at(at);
  return {w[0], w[1], r.bias ? w[2] : Tensor(), r.bias ? w[3] : Tensor()};
}

/// One layer in one direction: x [T, N, in] -> the hidden states [T, N, hidden] and the last state.
std::pair<State, Tensor> run(const Weights& w, Cell cell, std::int64_t hidden, const Tensor& x, const State& first,
                             bool has_cell, bool reverse, Location where) {
  const Tensor from_x = linear(x, w.ih, w.ih_bias, where);
  const Tensor none = zeros_like(gate(select(from_x, 0, 0, where), 0, hidden, where), {}, where);
  State start;
  for (std::size_t i = 0; i < (has_cell ? 2u : 1u); ++i)
    start[i] = first[i].defined() ? astype(first[i], none.dtype(), where) : none;
  const auto step = [=](const State& state, const Tensor& now) {
    State next = cell(now, linear(state[0], w.hh, w.hh_bias, where), state, hidden, where);
    for (std::size_t i = 0; i < next.size(); ++i)
      if (next[i].defined()) next[i] = astype(next[i], state[i].dtype(), where);  // an autocast region may widen it
    return std::pair(next, next[0]);
  };
  return scan(step, start, from_x, reverse, where);
}

[[noreturn]] void fail_input(std::string_view module, const Recurrent& r, const Tensor& x, Location where) {
  const std::string what = fmt::format("{}: x must be a sequence of vectors of {} elements, with or without a batch",
                                       module, r.weights[0].size(1));
  throw ShapeError(1084, format_error(1084, "ShapeError", what, describe(x), where));
}

/// All layers and directions.
LSTMResult forward_all(std::string_view module, const Recurrent& r, Cell cell, const Tensor& x, const State& first,
                       bool has_cell, Location where) {
  require_defined(module, x, where);
  for (const Tensor& weight : r.weights) require_defined(module, weight, where);
  if ((x.rank() != 2 && x.rank() != 3) || x.size(-1) != r.weights[0].size(1)) fail_input(module, r, x, where);
  const bool alone = x.rank() == 2, swapped = r.batch_first && !alone;
  Tensor sequence = alone ? expand_dims(x, 1, where) : swapped ? transpose(x, 0, 1, where) : x;
  const std::size_t directions = r.bidirectional ? 2 : 1;
  const auto runs = static_cast<std::int64_t>(directions) * r.layers;
  State given;
  for (std::size_t i = 0; i < 2; ++i) {
    if (!first[i].defined()) continue;
    given[i] = alone ? expand_dims(first[i], 1, where) : first[i];
    if (given[i].shape() != Shape{runs, sequence.size(1), r.hidden_size})
      throw ShapeError(1084, format_error(1084, "ShapeError",
                                          fmt::format("{}: the shape of the initial state does not match x", module),
                                          describe(x, first[i]), where));
  }
  State ends;
  std::array<std::vector<Tensor>, 2> last;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(r.layers); ++layer) {
    if (layer > 0 && r.training && r.dropout) sequence = dropout(sequence, r.dropout, true, default_generator(), where);
    std::vector<Tensor> outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      const std::size_t number = layer * directions + direction;
      State start;
      for (std::size_t i = 0; i < 2; ++i)
        if (given[i].defined()) start[i] = select(given[i], 0, static_cast<std::int64_t>(number), where);
      auto [end, output] =
          run(weights_of(r, number), cell, r.hidden_size, sequence, start, has_cell, direction == 1, where);
      outputs.push_back(output);
      for (std::size_t i = 0; i < (has_cell ? 2u : 1u); ++i) last[i].push_back(end[i]);
    }
    sequence = outputs.size() == 1 ? outputs[0] : concat(outputs, -1, where);
  }
  LSTMResult result{sequence, stack(last[0], 0, where), has_cell ? stack(last[1], 0, where) : Tensor()};
  if (alone)
    for (Tensor* t : {&result.output, &result.hidden, &result.cell})
      if (t->defined()) *t = squeeze(*t, 1, where);
  if (swapped) result.output = transpose(result.output, 0, 1, where);
  return result;
}

}  // namespace

Recurrent::Recurrent(std::string_view module, std::int64_t gates, std::int64_t in, std::int64_t hidden,
                     const RecurrentOptions& options, Location where)
    : hidden_size(hidden),
      layers(options.layers),
      bias(options.bias),
      batch_first(options.batch_first),
      bidirectional(options.bidirectional),
      dropout(options.dropout) {
  require_positive(module, {{"in", in}, {"hidden", hidden}, {"layers", layers}}, where);
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const std::int64_t rows = gates * hidden, directions = bidirectional ? 2 : 1;
  for (std::int64_t run = 0; run < layers * directions; ++run) {
    const std::int64_t width = run < directions ? in : hidden * directions;
    weights.push_back(uniform_parameter({rows, width}, bound, options.dtype, where));
    weights.push_back(uniform_parameter({rows, hidden}, bound, options.dtype, where));
    for (int i = 0; bias && i < 2; ++i) weights.push_back(uniform_parameter(rows, bound, options.dtype, where));
  }
}

std::vector<std::string> Recurrent::tensor_names() const {
  std::vector<std::string> names;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (int direction = 0; direction < (bidirectional ? 2 : 1); ++direction)
      for (const char* what : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
        if (bias || *what == 'w')
          names.push_back(fmt::format("{}_l{}{}", what, layer, direction == 1 ? "_reverse" : ""));
  return names;
}

RNN::RNN(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options, Location where)
    : Recurrent("RNN", 1, in, hidden, options, where) {}
RecurrentResult RNN::forward(const Tensor& x, const Tensor& hidden, Location where) const {
  const ModuleScope scope(*this);
  const LSTMResult all = forward_all("RNN", *this, &rnn_cell, x, {hidden, Tensor()}, false, where);
  return {all.output, all.hidden};
}

GRU::GRU(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options, Location where)
    : Recurrent("GRU", 3, in, hidden, options, where) {}
RecurrentResult GRU::forward(const Tensor& x, const Tensor& hidden, Location where) const {
  const ModuleScope scope(*this);
  const LSTMResult all = forward_all("GRU", *this, &gru_cell, x, {hidden, Tensor()}, false, where);
  return {all.output, all.hidden};
}

LSTM::LSTM(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options, Location where)
    : Recurrent("LSTM", 4, in, hidden, options, where) {}
LSTMResult LSTM::forward(const Tensor& x, const Tensor& hidden, const Tensor& cell, Location where) const {
  const ModuleScope scope(*this);
  return forward_all("LSTM", *this, &lstm_cell, x, {hidden, cell}, true, where);
}

}  // namespace fermata::nn
