// See models.h.
#include "bench/models.h"

#include <cmath>
#include <memory>
#include <optional>

namespace bench {
namespace {

namespace fm = fermata;
using fm::Tensor;

/// Makes weights one after another, or hands out those that are there, in the same order.
class Weights {
 public:
  Tensor normal(const fm::Shape& sizes, double deviation) {
    fm::Generator generator(made.size() + 1);
    made.push_back(fm::normal(sizes, 0, deviation, fm::DType::f32, generator).sync());
    return made.back();
  }
  Tensor constant(const fm::Shape& sizes, double value) {
    made.push_back(fm::full(sizes, value, fm::DType::f32).sync());
    return made.back();
  }
  Tensors made;
};
class Reader {
 public:
  explicit Reader(std::span<const Tensor> given) : given_(given) {}
  Tensor next() { return given_[at_++]; }

 private:
  std::span<const Tensor> given_;
  std::size_t at_ = 0;
};

// GPT-2 small.
constexpr std::int64_t kVocabulary = 50257, kWidth = 768, kHeads = 12, kLayers = 12, kContext = 1024, kTokens = 128,
                       kPosition = 512;

struct Gpt {
  struct Layer {
    Tensor norm1, bias1, project, project_bias, output, output_bias, norm2, bias2, widen, widen_bias, narrow,
        narrow_bias;
  };

  explicit Gpt(std::span<const Tensor> weights) {
    Reader r(weights);
    tokens = r.next(), positions = r.next();
    for (std::int64_t i = 0; i < kLayers; ++i) {
      Layer l;
      for (Tensor* t : {&l.norm1, &l.bias1, &l.project, &l.project_bias, &l.output, &l.output_bias, &l.norm2, &l.bias2,
                        &l.widen, &l.widen_bias, &l.narrow, &l.narrow_bias})
        *t = r.next();
      layers.push_back(l);
    }
    norm = r.next(), bias = r.next();
  }

  static void make_weights(Weights& w) {
    w.normal({kVocabulary, kWidth}, 0.02), w.normal({kContext, kWidth}, 0.01);
    for (std::int64_t i = 0; i < kLayers; ++i) {
      w.constant({kWidth}, 1), w.constant({kWidth}, 0);
      w.normal({3 * kWidth, kWidth}, 0.02), w.constant({3 * kWidth}, 0);
      w.normal({kWidth, kWidth}, 0.02), w.constant({kWidth}, 0);
      w.constant({kWidth}, 1), w.constant({kWidth}, 0);
      w.normal({4 * kWidth, kWidth}, 0.02), w.constant({4 * kWidth}, 0);
      w.normal({kWidth, 4 * kWidth}, 0.02), w.constant({kWidth}, 0);
    }
    w.constant({kWidth}, 1), w.constant({kWidth}, 0);
  }

  /// q, k and v, each [heads, tokens, width of a head].
  static std::array<Tensor, 3> heads(const Tensor& x, const Layer& l) {
    const std::int64_t length = x.size(0);
    const Tensor all = fm::linear(fm::layer_norm(x, l.norm1, l.bias1), l.project, l.project_bias);
    const Tensor parts = fm::permute(all.reshape({length, 3, kHeads, kWidth / kHeads}), {1, 2, 0, 3});
    return {parts[0], parts[1], parts[2]};
  }
  static Tensor after_attention(const Tensor& x, const Tensor& seen, const Layer& l) {
    const Tensor joined = fm::permute(seen, {1, 0, 2}).reshape({x.size(0), kWidth});
    const Tensor y = x + fm::linear(joined, l.output, l.output_bias);
    const Tensor wide = fm::gelu(fm::linear(fm::layer_norm(y, l.norm2, l.bias2), l.widen, l.widen_bias));
    return y + fm::linear(wide, l.narrow, l.narrow_bias);
  }
  Tensor logits(const Tensor& x) const { return fm::linear(fm::layer_norm(x, norm, bias), tokens); }

  Tensor loss(const Tensor& given, const Tensor& wanted) const {
    Tensor x = fm::embedding(given, tokens) + positions.slice(0, 0, given.size(0));
    for (const Layer& l : layers) {
      const auto [q, k, v] = heads(x, l);
      x = after_attention(x, fm::scaled_dot_product_attention(q, k, v, {.is_causal = true}), l);
    }
    return fm::cross_entropy(logits(x), wanted);
  }

  /// One token after kPosition others, whose keys and values are in the caches; its own are written there.
  Tensor next_logits(const Tensor& token, std::span<const Tensor> caches) const {
    Tensor x = fm::embedding(token, tokens) + positions.slice(0, kPosition, kPosition + 1);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto [q, k, v] = heads(x, layers[i]);
      const Tensor &keys = caches[2 * i], &values = caches[2 * i + 1];
      keys.slice(1, kPosition, kPosition + 1).assign(k), values.slice(1, kPosition, kPosition + 1).assign(v);
      const Tensor seen =
          fm::scaled_dot_product_attention(q, keys.slice(1, 0, kPosition + 1), values.slice(1, 0, kPosition + 1));
      x = after_attention(x, seen, layers[i]);
    }
    return logits(x);
  }

  Tensor tokens, positions, norm, bias;
  std::vector<Layer> layers;
};

/// A training step: the loss of 128 tokens, its gradients, and AdamW.
Case gpt2_training() {
  return {"gpt2_small_training_128",
          [] {
            Weights w;
            fm::Generator generator(1000);
            w.made = {fm::randint(0, kVocabulary, {kTokens}, fm::DType::i64, generator).sync(),
                      fm::randint(0, kVocabulary, {kTokens}, fm::DType::i64, generator).sync()};
            Gpt::make_weights(w);
            return w.made;
          },
          [] {
            struct State {
              explicit State(Tensors weights) : model(weights), adam(std::move(weights), {.learning_rate = 1e-4}) {}
              Gpt model;
              fm::optim::AdamW adam;
            };
            return Program([state = std::shared_ptr<State>()](const Tensors& in) mutable {
              if (state == nullptr) {
                Tensors parameters(in.begin() + 2, in.end());
                for (Tensor& p : parameters) p.requires_grad(true);
                state = std::make_shared<State>(std::move(parameters));
              }
              state->adam.zero_grad();
              const Tensor loss = state->model.loss(in[0], in[1]);
              loss.backward();
              state->adam.step();
              return Tensors{loss};
            });
          }};
}

/// With a format, of weights in fewer bits: matrices, but for the positions, of which one row is read.
Case gpt2_decoding(std::string name, std::optional<fm::WeightFormat> format = {}) {
  return {std::move(name),
          [] {
            Weights w;
            w.made.push_back(fm::full({1}, 17, fm::DType::i64).sync());
            for (std::int64_t i = 0; i < 2 * kLayers; ++i) w.normal({kHeads, kContext, kWidth / kHeads}, 1);
            Gpt::make_weights(w);
            return w.made;
          },
          [format] {
            return Program([format, model = std::optional<Gpt>()](const Tensors& in) mutable {
              if (!model) {
                Tensors weights(in.begin() + 1 + 2 * kLayers, in.end());
                const Tensor positions = weights[1];
                if (format) weights = fm::quantize_weights(weights, *format);
                weights[1] = positions;
                model.emplace(weights);
              }
              return Tensors{model->next_logits(in[0], std::span(in).subspan(1, 2 * kLayers))};
            });
          }};
}

void make_convolution(Weights& w, std::int64_t from, std::int64_t to, std::int64_t size) {
  w.normal({to, from, size, size}, std::sqrt(2.0 / static_cast<double>(from * size * size)));
  w.constant({to}, 0.9), w.constant({to}, 0.1), w.constant({to}, 0.05),
      w.constant({to}, 1.1);  // scale, shift, mean, variance
}
Tensor convolve(Reader& r, const Tensor& x, std::int64_t stride, std::int64_t padding, std::int64_t groups = 1) {
  const Tensor y = fm::conv2d(x, r.next(), {}, stride, padding, 1, groups);
  const Tensor scale = r.next(), shift = r.next(), mean = r.next(), variance = r.next();
  return fm::batch_norm(y, mean, variance, scale, shift);
}

/// A network for images: `weights` makes its weights, `run` computes the scores of 1000 classes.
struct ImageNetwork {
  void (*weights)(Weights& w);
  Tensor (*run)(const Tensor& images, Reader& r);
};

/// The blocks of ResNet-50: how many of each width, and the stride of the first.
struct Stage {
  std::int64_t blocks, width, stride;
};
constexpr Stage kStages[] = {{3, 64, 1}, {4, 128, 2}, {6, 256, 2}, {3, 512, 2}};

Tensor classify(const Tensor& x, Reader& r) {
  const Tensor weight = r.next();
  return fm::linear(fm::mean(x, {2, 3}), weight, r.next());
}
constexpr ImageNetwork kResnet50{[](Weights& w) {
                                   make_convolution(w, 3, 64, 7);
                                   std::int64_t from = 64;
                                   for (const Stage& s : kStages)
                                     for (std::int64_t i = 0; i < s.blocks; ++i) {
                                       make_convolution(w, from, s.width, 1), make_convolution(w, s.width, s.width, 3);
                                       make_convolution(w, s.width, 4 * s.width, 1);
                                       if (i == 0) make_convolution(w, from, 4 * s.width, 1);
                                       from = 4 * s.width;
                                     }
                                   w.normal({1000, from}, 0.02), w.constant({1000}, 0);
                                 },
                                 [](const Tensor& images, Reader& r) {
                                   Tensor x = fm::max_pool2d(fm::relu(convolve(r, images, 2, 3)), 3, 2, 1);
                                   for (const Stage& s : kStages)
                                     for (std::int64_t i = 0; i < s.blocks; ++i) {
                                       const std::int64_t stride = i == 0 ? s.stride : 1;
                                       Tensor y = fm::relu(convolve(r, x, 1, 0));
                                       y = fm::relu(convolve(r, y, stride, 1));
                                       y = convolve(r, y, 1, 0);
                                       x = fm::relu(y + (i == 0 ? convolve(r, x, stride, 0) : x));
                                     }
                                   return classify(x, r);
                                 }};

/// The blocks of MobileNetV2: by how much they widen, how many of how many channels, and the stride of the first.
struct Inverted {
  std::int64_t widening, channels, blocks, stride;
};
constexpr Inverted kInverted[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
constexpr std::int64_t kFirstChannels = 32, kLastChannels = 1280;

Tensor relu6(const Tensor& x) { return fm::clip(x, 0, 6); }

constexpr ImageNetwork kMobilenetV2{[](Weights& w) {
                                      make_convolution(w, 3, kFirstChannels, 3);
                                      std::int64_t from = kFirstChannels;
                                      for (const Inverted& s : kInverted)
                                        for (std::int64_t i = 0; i < s.blocks; ++i) {
                                          const std::int64_t wide = from * s.widening;
                                          if (s.widening != 1) make_convolution(w, from, wide, 1);
                                          make_convolution(w, 1, wide, 3), make_convolution(w, wide, s.channels, 1);
                                          from = s.channels;
                                        }
                                      make_convolution(w, from, kLastChannels, 1);
                                      w.normal({1000, kLastChannels}, 0.02), w.constant({1000}, 0);
                                    },
                                    [](const Tensor& images, Reader& r) {
                                      Tensor x = relu6(convolve(r, images, 2, 1));
                                      for (const Inverted& s : kInverted)
                                        for (std::int64_t i = 0; i < s.blocks; ++i) {
                                          const std::int64_t stride = i == 0 ? s.stride : 1;
                                          Tensor y = s.widening == 1 ? x : relu6(convolve(r, x, 1, 0));
                                          y = relu6(convolve(r, y, stride, 1, y.size(1)));
                                          y = convolve(r, y, 1, 0);
                                          x = stride == 1 && x.size(1) == s.channels ? x + y : y;
                                        }
                                      return classify(relu6(convolve(r, x, 1, 0)), r);
                                    }};

/// Inference; with autocast convolutions and products are of bf16.
Case images(std::string name, const ImageNetwork& network, std::int64_t count, bool autocast = false) {
  return {std::move(name),
          [&network, count] {
            Weights w;
            w.normal({count, 3, 224, 224}, 1);
            network.weights(w);
            return w.made;
          },
          [&network, autocast] {
            return Program([&network, autocast](const Tensors& in) {
              const fm::AutocastGuard region(autocast);
              Reader r{std::span(in).subspan(1)};
              return Tensors{fm::astype(network.run(in[0], r), fm::DType::f32)};
            });
          }};
}

}  // namespace

const std::vector<Case>& models() {
  static const std::vector<Case> table{gpt2_training(),
                                       gpt2_decoding("gpt2_small_decoding_512"),
                                       gpt2_decoding("gpt2_small_decoding_512_int8", fm::WeightFormat{.bits = 8}),
                                       gpt2_decoding("gpt2_small_decoding_512_int4", fm::WeightFormat{.bits = 4}),
                                       images("resnet50_inference", kResnet50, 1),
                                       images("resnet50_inference_16", kResnet50, 16),
                                       images("resnet50_inference_bf16", kResnet50, 1, true),
                                       images("resnet50_inference_16_bf16", kResnet50, 16, true),
                                       images("mobilenet_v2_inference", kMobilenetV2, 1),
                                       images("mobilenet_v2_inference_16", kMobilenetV2, 16),
                                       images("mobilenet_v2_inference_bf16", kMobilenetV2, 1, true)};
  return table;
}

}  // namespace bench
