// Recurrent networks: RNN, LSTM and GRU, multi-layer and bidirectional.
//
// Parameters, their names (weight_ih_l0, bias_hh_l1_reverse, ..) and their order are those of torch.nn. Each layer and
// direction is one scan (fermata/control_flow.h), so a new sequence length compiles nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fermata/nn/module.h"

namespace fermata::nn {

struct RecurrentOptions {
  std::int64_t layers = 1;
  bool bias = true;
  bool batch_first = false;  // sequences are [N, T, ..] instead of [T, N, ..]
  bool bidirectional = false;
  double dropout = 0;  // between layers, in training
  DType dtype = DType::f32;
};

/// Common base of RNN, GRU and LSTM.
struct Recurrent : Named {
  std::vector<std::string> tensor_names() const;
  /// For every layer and direction weight_ih [gates * hidden, in], weight_hh [gates * hidden, hidden] and, with bias,
  /// bias_ih and bias_hh.
  std::vector<Tensor> weights;
  std::int64_t hidden_size, layers;
  bool bias, batch_first, bidirectional;
  Setting dropout;
  Training training;
  FERMATA_TREE(weights, hidden_size, layers, bias, batch_first, bidirectional, dropout, training)

 protected:
  Recurrent(std::string_view module, std::int64_t gates, std::int64_t in, std::int64_t hidden,
            const RecurrentOptions& options, Location where);
};

struct RecurrentResult {
  Tensor output;  // of the last layer at all steps: [T, N, directions * hidden]
  Tensor hidden;  // of all layers after the last step: [layers * directions, N, hidden]
};
// Shapes   x [T, N, in], or [T, in] for one sequence; initial states [layers * directions, N, hidden], zeros if
//          undefined. With batch_first, x and the output have N first.

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
struct RNN : Recurrent {
  RNN(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options = {}, Location where = Location::current());
  RecurrentResult forward(const Tensor& x, const Tensor& hidden = {}, Location where = Location::current()) const;
};

/// Source   Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014; cuDNN's variant.
struct GRU : Recurrent {
  GRU(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options = {}, Location where = Location::current());
  RecurrentResult forward(const Tensor& x, const Tensor& hidden = {}, Location where = Location::current()) const;
};

struct LSTMResult {
  Tensor output, hidden, cell;
};
/// Source   Hochreiter and Schmidhuber, "Long short-term memory", 1997, with forget gates.
struct LSTM : Recurrent {
  LSTM(std::int64_t in, std::int64_t hidden, const RecurrentOptions& options = {},
       Location where = Location::current());
  LSTMResult forward(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {},
                     Location where = Location::current()) const;
};

}  // namespace fermata::nn
