// See decoder.h.
#include "decoder.h"

#include <fermata/safetensors.h>

#include <cmath>
#include <filesystem>
#include <numbers>

namespace gpt {
namespace fm = fermata;

namespace {

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (fm::has_quantized_weights(weight)) return fm::linear(x, weight, bias);
  const Tensor y = fm::matmul(x, weight);
  return bias.defined() ? y + bias : y;
}

/// GPT-2's: tanh instead of the error function.
Tensor gelu_by_tanh(const Tensor& x) {
  const double scale = std::sqrt(2 / std::numbers::pi);
  return 0.5 * x * (1.0 + fm::tanh(scale * (x + 0.044715 * x * x * x)));
}

}  // namespace

/// Tensors of a checkpoint, in f32.
class Decoder::Weights {
 public:
  explicit Weights(const std::string& folder)
      : file_(std::filesystem::exists(folder + "/model.safetensors") ? folder + "/model.safetensors"
                                                                     : folder + "/model.safetensors.index.json") {}
  bool has(const std::string& name) const { return file_.contains(name); }
  Tensor get(const std::string& name) const {
    Tensor t = file_.tensor(name).to(fm::DType::f32);
    return t.sync();
  }
  /// Of a layer that keeps its matrix as [out, in].
  Tensor transposed(const std::string& name) const { return get(name).transpose().contiguous().sync(); }

 private:
  fm::SafetensorsFile file_;
};

Decoder::Decoder(const Config& config, const std::string& folder) : config_(config) {
  const Weights weights(folder);
  if (config.family == Config::Family::gpt2)
    read_gpt2(weights);
  else
    read_llama(weights);
}

void Decoder::read_gpt2(const Weights& weights) {
  const std::string root = weights.has("transformer.wte.weight") ? "transformer." : "";
  embedding_ = head_ = weights.get(root + "wte.weight"), positions_ = weights.get(root + "wpe.weight");
  last_ = {weights.get(root + "ln_f.weight"), weights.get(root + "ln_f.bias")};
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const std::string at = root + "h." + std::to_string(i) + ".";
    const auto pair = [&](const std::string& name) {
      return Projection{weights.get(at + name + ".weight"), weights.get(at + name + ".bias")};
    };
    const auto norm = [&](const std::string& name) {
      return Norm{weights.get(at + name + ".weight"), weights.get(at + name + ".bias")};
    };
    const Projection all = pair("attn.c_attn");
    const auto part = [&](std::int64_t k) {
      const std::int64_t begin = k * config_.width, end = begin + config_.width;
      return Projection{all.weight.slice(1, begin, end).contiguous().sync(),
                        all.bias.slice(0, begin, end).copy().sync()};
    };
    layers_.push_back({norm("ln_1"),
                       norm("ln_2"),
                       part(0),
                       part(1),
                       part(2),
                       pair("attn.c_proj"),
                       {},
                       pair("mlp.c_fc"),
                       pair("mlp.c_proj")});
  }
}

void Decoder::read_llama(const Weights& weights) {
  embedding_ = weights.get("model.embed_tokens.weight");
  head_ = weights.has("lm_head.weight") ? weights.get("lm_head.weight") : embedding_;
  last_ = {weights.get("model.norm.weight"), {}};
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const auto matrix = [&](const std::string& name) {
      return Projection{weights.transposed(at + name + ".weight"), {}};
    };
    layers_.push_back({{weights.get(at + "input_layernorm.weight"), {}},
                       {weights.get(at + "post_attention_layernorm.weight"), {}},
                       matrix("self_attn.q_proj"),
                       matrix("self_attn.k_proj"),
                       matrix("self_attn.v_proj"),
                       matrix("self_attn.o_proj"),
                       matrix("mlp.gate_proj"),
                       matrix("mlp.up_proj"),
                       matrix("mlp.down_proj")});
  }
}

void Decoder::quantize(const fm::WeightFormat& format) {
  const auto small = [&](Projection& p) {
    if (p.weight.defined()) p.weight = fm::quantize_weight(p.weight.transpose(), format);
  };
  for (Layer& layer : layers_) {
    small(layer.query), small(layer.key), small(layer.value), small(layer.output);
    small(layer.gate), small(layer.widening), small(layer.narrowing);
  }
  head_ = fm::quantize_weight(head_, format);
}

void Decoder::divide(const fm::Mesh& mesh, const std::string& axis) {
  const auto by_columns = [&](const Projection& p) {
    if (!p.weight.defined()) return;
    fm::shard_(p.weight, mesh, {{}, axis});
    if (p.bias.defined()) fm::shard_(p.bias, mesh, {axis});
  };
  const auto by_rows = [&](const Projection& p) { fm::shard_(p.weight, mesh, {axis}); };
  const bool has_whole_heads = config_.key_heads % mesh.size(axis) == 0;
  for (const Layer& layer : layers_) {
    by_columns(layer.gate), by_columns(layer.widening), by_rows(layer.narrowing);
    if (!has_whole_heads) continue;
    by_columns(layer.query), by_columns(layer.key), by_columns(layer.value), by_rows(layer.output);
  }
  if (has_whole_heads) divides_cache_ = [mesh, axis](const Tensor& heads) { fm::shard_(heads, mesh, {{}, axis}); };
}

Cache Decoder::make_cache(std::int64_t capacity) const {
  Cache cache{{}, fm::zeros({}, fm::DType::i64)};
  const auto room = [&] {
    const Tensor heads = fm::zeros({1, config_.key_heads, capacity, config_.head_width});
    divides_cache_(heads);
    return heads;
  };
  for (std::int64_t i = 0; i < config_.layers; ++i) cache.layers.push_back({room(), room()});
  return cache;
}

Tensor Decoder::normalized(const Tensor& x, const Norm& norm) const {
  if (config_.family == Config::Family::llama) return fm::rms_norm(x, norm.weight, config_.eps);
  return fm::layer_norm(x, norm.weight, norm.bias, config_.eps);
}

/// Rotary embeddings (Su et al., 2021) of [1, heads, L, width], where the halves of a head are pairs.
Tensor Decoder::rotated(const Tensor& x, const Tensor& positions) const {
  if (config_.family != Config::Family::llama) return x;
  const std::int64_t half = config_.head_width / 2;
  const Tensor rates =
      fm::exp(fm::arange(half, fm::DType::f32) * (-std::log(config_.rope_theta) / static_cast<double>(half)));
  const Tensor angles = positions.to(fm::DType::f32).unsqueeze(-1) * rates;  // [L, half]
  const Tensor cosine = fm::cos(angles), sine = fm::sin(angles);
  const Tensor first = x.slice(-1, 0, half), second = x.slice(-1, half, config_.head_width);
  return fm::concat({first * cosine - second * sine, second * cosine + first * sine}, -1);
}

Tensor Decoder::attention(const Tensor& x, const Layer& layer, const Cache::Layer& cache,
                          const Tensor& positions) const {
  const std::int64_t length = x.size(0);
  const auto heads = [&](const Projection& p, std::int64_t count) {
    return project(x, p.weight, p.bias).reshape({1, length, count, config_.head_width}).permute({0, 2, 1, 3});
  };
  Tensor keys = cache.keys, values = cache.values;  // the same tensors
  keys.assign(fm::index_copy(keys, positions, rotated(heads(layer.key, config_.key_heads), positions), 2));
  values.assign(fm::index_copy(values, positions, heads(layer.value, config_.key_heads), 2));
  const Tensor seen = fm::iota({keys.size(2)}, 0) <= positions.unsqueeze(-1);  // [L, capacity]
  const Tensor y = fm::scaled_dot_product_attention(rotated(heads(layer.query, config_.heads), positions), keys, values,
                                                    {.mask = seen, .enable_gqa = true});
  const Tensor joined = y.permute({0, 2, 1, 3}).reshape({length, config_.heads * config_.head_width});
  return project(joined, layer.output.weight, layer.output.bias);
}

Tensor Decoder::inner(const Tensor& x, const Layer& layer) const {
  const Tensor wide = project(x, layer.widening.weight, layer.widening.bias);
  const Tensor made = layer.gate.weight.defined() ? fm::silu(project(x, layer.gate.weight, layer.gate.bias)) * wide
                                                  : gelu_by_tanh(wide);
  return project(made, layer.narrowing.weight, layer.narrowing.bias);
}

Tensor Decoder::forward(const Tensor& tokens, const Cache& cache) const {
  const Tensor positions = cache.length + fm::iota({tokens.size(0)}, 0);
  Tensor x = fm::take(embedding_, tokens);
  if (positions_.defined()) x = x + fm::take(positions_, positions);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    x = x + attention(normalized(x, layer.before_attention), layer, cache.layers[i], positions);
    x = x + inner(normalized(x, layer.before_inner), layer);
  }
  Tensor length = cache.length;
  length.assign(length + tokens.size(0));
  const Tensor last = normalized(x.slice(0, tokens.size(0) - 1), last_);
  const Tensor logits =
      fm::has_quantized_weights(head_) ? fm::linear(last, head_) : fm::matmul(last, head_.transpose());
  return logits.reshape({config_.vocabulary});
}

}  // namespace gpt
