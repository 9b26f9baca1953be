// Weights in 8 and 4 bits against their definition, in both modes: values, gradients, batches, modules, files; errors
// as full text.
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/autograd.h"
#include "fermata/fermata.h"
#include "fermata/modules.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "ir/float16.h"
#include "runtime/stats.h"
#include "tests/error_message.h"
#include "tests/frontend/scratch_folder.h"

namespace fermata {
namespace {

using fermata::testing::message_without_place;
using Floats = std::vector<float>;

class QuantizedWeights : public ::testing::TestWithParam<Mode> {
 protected:
  ~QuantizedWeights() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, QuantizedWeights, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

constexpr WeightFormat kFormats[] = {{.bits = 8}, {.bits = 4, .group = 32}, {.bits = 4, .group = 64}};

Tensor random(std::uint64_t seed, const Shape& sizes, DType dtype = DType::f32) {
  Generator generator(seed);
  return normal(sizes, 0, 1, dtype, generator).sync();
}

/// The definition, on one row.
Floats stored(const Floats& row, const WeightFormat& format) {
  Floats values;
  const std::size_t group = format.bits == 8 ? row.size() : static_cast<std::size_t>(format.group);
  for (std::size_t begin = 0; begin < row.size(); begin += group) {
    const std::size_t end = std::min(row.size(), begin + group);
    float farthest = 0;
    for (std::size_t i = begin; i < end; ++i)
      if (std::abs(row[i]) > std::abs(farthest)) farthest = row[i];
    const float scale = format.bits == 8 ? std::abs(farthest) / 127 : to_float(to_bfloat16(farthest / -8));
    for (std::size_t i = begin; i < end; ++i) {
      const float code = scale == 0 ? 0 : std::nearbyint(row[i] / scale);
      values.push_back(scale * (format.bits == 8 ? std::clamp(code, -127.0f, 127.0f) : std::clamp(code, -8.0f, 7.0f)));
    }
  }
  return values;
}

TEST_P(QuantizedWeights, HoldTheValuesOfTheirDefinition) {
  for (const WeightFormat& format : kFormats)
    for (const Shape& sizes : {Shape{1, 1}, Shape{3, 7}, Shape{32, 64}, Shape{70, 130}, Shape{33, 32}}) {
      const Tensor w = random(1, sizes);
      Floats wanted;
      const Floats all = w.to_vector<float>();
      for (std::int64_t i = 0; i < sizes[0]; ++i) {
        const Floats row = stored(Floats(all.begin() + i * sizes[1], all.begin() + (i + 1) * sizes[1]), format);
        wanted.insert(wanted.end(), row.begin(), row.end());
      }
      const Tensor q = quantize_weight(w, format);
      EXPECT_TRUE(has_quantized_weights(q));
      EXPECT_EQ(q.dtype(), DType::f32);
      EXPECT_EQ(q.shape(), sizes);
      EXPECT_EQ(dequantize(q).to_vector<float>(), wanted) << format.bits << " " << to_string(sizes);
    }
  EXPECT_EQ(dequantize(quantize_weight(zeros({2, 40}), {.bits = 4})).to_vector<float>(), Floats(80, 0.0f));
  EXPECT_EQ(dequantize(quantize_weight(zeros({2, 40}))).to_vector<float>(), Floats(80, 0.0f));
  EXPECT_EQ(dequantize(quantize_weight(zeros({0, 4}))).shape(), (Shape{0, 4}));
  EXPECT_EQ(dequantize(quantize_weight(zeros({4, 0}), {.bits = 4})).shape(), (Shape{4, 0}));
}

TEST_P(QuantizedWeights, LinearIsTheProductWithThoseValues) {
  for (const WeightFormat& format : kFormats)
    for (const std::int64_t rows : {1, 2, 3, 4, 7, 70, 130})  // 130 are multiplied by floats
      for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>{5, 9}, {64, 256}, {77, 131}}) {
        const Tensor w = quantize_weight(random(2, {out, in}), format), x = random(3, {rows, in}), b = random(4, {out});
        const Tensor wanted = linear(x.astype(DType::f64), dequantize(w).astype(DType::f64), b.astype(DType::f64));
        const Tensor got = linear(x, w, b);
        EXPECT_EQ(got.dtype(), DType::f32);
        EXPECT_LT(max(abs(got.astype(DType::f64) - wanted)).item<double>(), 2e-5 * std::sqrt(static_cast<double>(in)))
            << format.bits << " " << rows << " " << out << " " << in;
      }
}

TEST_P(QuantizedWeights, RowsDoNotDependOnHowManyThereAre) {
  for (const WeightFormat& format : kFormats) {
    const Tensor w = quantize_weight(random(2, {50, 200}), format), x = random(3, {2, 5, 200});
    const Tensor all = linear(x, w);
    for (std::int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(linear(x[1][i], w).to_vector<float>(), all[1][i].to_vector<float>()) << format.bits;
    // Other strides, too.
    const Tensor turned = copy(x.transpose(0, 1)).transpose(0, 1);
    EXPECT_EQ(linear(turned, w).to_vector<float>(), all.to_vector<float>());
    EXPECT_EQ(linear(zeros({0, 200}), w).shape(), (Shape{0, 50}));
  }
}

TEST_P(QuantizedWeights, HalvesAreAddedUpInF32) {
  for (const WeightFormat& format : kFormats)
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Tensor w = quantize_weight(random(2, {40, 96}, dtype), format), x = random(3, {3, 96}, dtype);
      EXPECT_EQ(w.dtype(), dtype);
      const Tensor y = linear(x, w), f32 = linear(x.astype(DType::f32), w.astype(DType::f32));
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(f32.dtype(), DType::f32);
      EXPECT_EQ(y.to_vector<float>(), f32.astype(dtype).to_vector<float>());
      EXPECT_EQ(linear(x, w.astype(DType::f32)).dtype(), DType::f32);
      EXPECT_EQ(linear(x.astype(DType::f64), w).dtype(), DType::f64);
    }
}

TEST_P(QuantizedWeights, TakeGivesRows) {
  for (const WeightFormat& format : kFormats) {
    const Tensor w = quantize_weight(random(5, {70, 100}), format);
    const Tensor index = tensor(std::vector<std::int64_t>{0, 69, 31, 32, -1, 5}).reshape({2, 3});
    EXPECT_EQ(embedding(index, w).to_vector<float>(), take(dequantize(w), index, 0).to_vector<float>());
    EXPECT_EQ(embedding(index, w).shape(), (Shape{2, 3, 100}));
    EXPECT_EQ(embedding(index.astype(DType::u8).slice(0, 0, 1), w).to_vector<float>(),
              take(dequantize(w), index.slice(0, 0, 1), 0).to_vector<float>());
    EXPECT_EQ(embedding(zeros({0}, DType::i64), w).shape(), (Shape{0, 100}));
    EXPECT_THROW(embedding(tensor(std::vector<std::int64_t>{70}), w).sync(), IndexError);
    EXPECT_THROW(embedding(tensor(std::vector<std::int64_t>{-71}), w).sync(), IndexError);
  }
}

TEST_P(QuantizedWeights, GradientsReachWhatIsMultiplied) {
  for (const WeightFormat& format : kFormats) {
    const Tensor w = quantize_weight(random(6, {37, 70}), format), values = dequantize(w);
    const auto loss = [](const Tensor& x, const Tensor& weight) { return sum(square(linear(x, weight))); };
    for (const Shape& sizes : {Shape{70}, Shape{3, 70}, Shape{2, 3, 70}}) {
      Tensor x = random(7, sizes), y = x.detach();
      x.requires_grad(true), y.requires_grad(true);
      loss(x, w).backward();
      loss(y, values).backward();
      EXPECT_LT(max(abs(x.grad() - y.grad())).item<float>(), 2e-3f) << format.bits;
    }
    // Of second order.
    const auto slope = [&](const Tensor& x) {
      return sum(square(grad([&](const Tensor& v) { return loss(v, w); })(x)));
    };
    EXPECT_EQ(grad(slope)(random(8, {70})).shape(), (Shape{70}));
  }
}

TEST_P(QuantizedWeights, ABatchIsOneCall) {
  for (const WeightFormat& format : kFormats) {
    const Tensor w = quantize_weight(random(6, {37, 70}), format), x = random(7, {4, 3, 70});
    const auto loops = stats().vmap_loops;
    const Tensor all = vmap([&](const Tensor& one) { return linear(one, w); })(x);
    EXPECT_EQ(all.to_vector<float>(), linear(x, w).to_vector<float>());
    const Tensor slopes = vmap(grad([&](const Tensor& one) { return sum(linear(one, w)); }))(x);
    EXPECT_EQ(slopes.shape(), x.shape());
    // Of bytes, too, which only the op itself sees.
    std::vector<Tensor> bytes, wanted;
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Tensor own = quantize_weight(random(20 + i, {37, 70}), format);
      bytes.push_back(weight_payload(own)->bytes);
      wanted.push_back(linear(x[static_cast<std::int64_t>(i)], own));
    }
    const auto product = [](const Tensor& one, const Tensor& packed) {
      const Tensor operands[] = {one, packed};
      return general_call<Op::matmul_weights>({.columns = {37}}, operands, Location::current());
    };
    EXPECT_LT(max(abs(vmap(product)(x, stack(bytes)) - stack(wanted))).item<float>(), 1e-4f);
    EXPECT_EQ(stats().vmap_loops, loops);
  }
}

TEST_P(QuantizedWeights, AreCutBetweenBlocks) {
  for (const WeightFormat& format : kFormats) {
    const Tensor w = quantize_weight(random(6, {100, 70}), format), values = dequantize(w);
    EXPECT_EQ(dequantize(w.slice(0, 32, 96)).to_vector<float>(), values.slice(0, 32, 96).to_vector<float>());
    EXPECT_EQ(dequantize(w.slice(0, 64, 100)).to_vector<float>(), values.slice(0, 64, 100).to_vector<float>());
    EXPECT_EQ(dequantize(copy(w)).to_vector<float>(), values.to_vector<float>());
    EXPECT_THROW(w.slice(0, 1, 33), UnsupportedError);
    EXPECT_THROW(w.slice(1, 0, 32), UnsupportedError);
  }
}

struct Net {
  nn::Embedding table{50, 64};
  std::vector<nn::Linear> layers{nn::Linear(64, 96), nn::Linear(96, 64)};
  nn::MultiheadAttention attention{64, 4};
  nn::LayerNorm norm{64};
  Tensor forward(const Tensor& index) const {
    Tensor x = table(index);
    x = x + attention.forward(norm(x));
    return linear(norm(x + layers[1](gelu(layers[0](x)))), table.weight);
  }
};

TEST_P(QuantizedWeights, ModulesAreCalledAsBefore) {
  manual_seed(3);
  Net net;
  const Tensor index = tensor(std::vector<std::int64_t>{3, 49, 0, 7}).reshape({1, 4});
  const Tensor exact = net.forward(index);
  const std::int64_t count = nn::parameter_count(net);
  for (const WeightFormat& format : kFormats) {
    Net small = nn::clone(net);
    nn::quantize_weights(small, format);
    EXPECT_TRUE(has_quantized_weights(small.layers[1].weight) && has_quantized_weights(small.table.weight));
    EXPECT_FALSE(has_quantized_weights(small.norm.weight));
    EXPECT_EQ(nn::parameter_count(small), count);
    const Tensor y = small.forward(index);
    EXPECT_LT(sqrt(mean(square(y - exact)) / mean(square(exact))).item<float>(), format.bits == 8 ? 0.02f : 0.25f);
    // The network of the same values in floats.
    Net floats = nn::clone(small);
    each_tensor(floats, [](Tensor& x) {
      if (has_quantized_weights(x)) x = dequantize(x);
    });
    EXPECT_LT(max(abs(floats.forward(index) - y)).item<float>(), 1e-4f);
    auto compiled = compile([&](const Tensor& i) { return small.forward(i); });
    for (int run = 0; run < 3; ++run) EXPECT_LT(max(abs(compiled(index) - y)).item<float>(), 1e-4f);
    nn::freeze(small), nn::unfreeze(small);
    EXPECT_EQ(nn::trainable_parameters(small).size(), nn::parameters(small).size() - 5);
    nn::to(small, DType::bf16);
    EXPECT_EQ(small.layers[0].weight.dtype(), DType::bf16);
    EXPECT_TRUE(has_quantized_weights(small.layers[0].weight));
    EXPECT_EQ(small.forward(index).dtype(), DType::bf16);
  }
}

class QuantizedWeightsFiles : public test::InScratchFolder {};

TEST_F(QuantizedWeightsFiles, KeepTheBytes) {
  manual_seed(4);
  for (const WeightFormat& format : kFormats) {
    Net net;
    nn::quantize_weights(net, format);
    const Tensor index = tensor(std::vector<std::int64_t>{3, 49, 0, 7}).reshape({1, 4});
    const std::vector<float> wanted = net.forward(index).to_vector<float>();
    const std::string path = "net.safetensors";
    save_safetensors(path, nn::state_dict(net), {{"made by", "a test"}});
    const std::string index_path = save_safetensors_sharded("parts", nn::state_dict(net), 4000);
    for (const std::string& file : {path, index_path}) {
      Net other;  // of floats
      nn::load_state_dict(other, load_safetensors(file));
      EXPECT_TRUE(has_quantized_weights(other.layers[0].weight));
      EXPECT_EQ(other.forward(index).to_vector<float>(), wanted);
      nn::load_state_dict(other, nn::state_dict(net));  // over quantized ones
      EXPECT_EQ(other.forward(index).to_vector<float>(), wanted);
      Net floats;
      nn::load_state_dict(other, nn::state_dict(floats));
      EXPECT_FALSE(has_quantized_weights(other.layers[0].weight));
      EXPECT_EQ(other.forward(index).to_vector<float>(), floats.forward(index).to_vector<float>());
    }
    EXPECT_EQ(SafetensorsFile(path).metadata().at("made by"), "a test");
  }
  const Tensor bytes = zeros({1, 64}, DType::u8);
  save_safetensors("bad.safetensors", {{"w", bytes}}, {{"fermata.weights:w", "f32 5 7 0"}});
  EXPECT_THROW(load_safetensors("bad.safetensors"), FileError);
}

TEST_P(QuantizedWeights, ParametersWithoutModules) {
  const std::vector<Tensor> parameters{random(1, {8, 40}), random(2, {8}), Tensor(), zeros({4, 4}, DType::i32)};
  const std::vector<Tensor> small = quantize_weights(parameters, {.bits = 4});
  EXPECT_TRUE(has_quantized_weights(small[0]));
  EXPECT_FALSE(small[2].defined() || has_quantized_weights(small[1]) || has_quantized_weights(small[3]));
  EXPECT_EQ(quantize_weights(small)[0].impl(), small[0].impl());
}

TEST_P(QuantizedWeights, PrintsHowTheyAreStored) {
  EXPECT_EQ(to_string(quantize_weight(tensor(Floats{127, -127, 1, 0}).reshape({2, 2}))),
            "tensor([[ 127., -127.],\n        [   1.,    0.]], f32, 8 bits)");
}

TEST_P(QuantizedWeights, ErrorsSayWhatIsWrong) {
  const Tensor w = ones({4, 40});
  EXPECT_EQ(message_without_place<ValueError>([&] { quantize_weight(w, {.bits = 5}); }),
            "FM1350 ValueError: quantize_weight: weights must have 8 or 4 bits, not 5\n  x    f32[4, 40]");
  EXPECT_EQ(
      message_without_place<ValueError>([&] { quantize_weight(w, {.bits = 4, .group = 16}); }),
      "FM1350 ValueError: quantize_weight: groups of 4-bit weights must have 32 or 64 elements, not 16\n  x    f32[4, "
      "40]");
  EXPECT_EQ(message_without_place<ValueError>([&] { quantize_weight(w / 0.0f); }),
            "FM1350 ValueError: quantize_weight: weights must be finite\n  x    f32[4, 40]");
  EXPECT_EQ(message_without_place<ShapeError>([&] { quantize_weight(ones({4})); }),
            "FM1015 ShapeError: quantize_weight: a matrix must have two axes\n  x    f32[4]");
  EXPECT_EQ(message_without_place<DTypeError>([&] {
              quantize_weight(ones({4, 4}, DType::f64));
            }),
            "FM1150 DTypeError: quantize_weight: weights must be f16, bf16 or f32, not f64\n  x    f64[4, 4]");
  const Tensor q = quantize_weight(w);
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { q.slice(0, 1, 3); }),
            "FM2140 UnsupportedError: slice: quantized weights can be sliced only between blocks of 32 rows\n"
            "  x    f32[4, 40]\n  hint dequantize() returns floats");
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { q + 1; }),
            "FM2001 UnsupportedError: add: no kernel for Quantized/CPU\n"
            "  x    f32[4, 40]\n  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { q.to_vector<float>(); }),
            "FM2005 UnsupportedError: to_vector: a tensor of quantized weights has no elements to read\n"
            "  x    f32[4, 40]\n  hint dequantize() returns its values");
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { q.mT(); }),
            "FM2140 UnsupportedError: permute: quantized weights cannot be permuted\n"
            "  x    f32[4, 40]\n  hint linear(x, w) multiplies by the transpose of w");
  EXPECT_THROW(q.reshape({40, 4}), UnsupportedError);
  EXPECT_THROW(linear(ones({3, 41}), q), ShapeError);
  EXPECT_THROW(matmul(ones({3, 4}), q), UnsupportedError);
  EXPECT_THROW(linear(q, ones({7, 40})), UnsupportedError);
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { linear(q, q); }),
            "FM2141 UnsupportedError: linear: x and weight are both quantized\n"
            "  lhs  f32[4, 40]\n  rhs  f32[4, 40]\n  hint dequantize() one of them");
}

}  // namespace
}  // namespace fermata
