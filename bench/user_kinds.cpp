// Programs as users of NumPy write them (bench/kinds.h): groups, windows, images of bytes, small matrices, whole
// numbers, masks, loops over parameters, gradients.
#include <string>
#include <tuple>
#include <utility>

#include "bench/kinds.h"

namespace bench {
namespace {

namespace fm = fermata;
using fm::DType;
using fm::Tensor;

Tensor normal(std::uint64_t seed, const fm::Shape& sizes, DType dtype = DType::f32) {
  fm::Generator generator(seed);
  return fm::normal(sizes, 0, 1, DType::f32, generator).astype(dtype).sync();
}
Tensor integers(std::uint64_t seed, std::int64_t start, std::int64_t end, const fm::Shape& sizes,
                DType dtype = DType::i64) {
  fm::Generator generator(seed);
  return fm::randint(start, end, sizes, DType::i64, generator).astype(dtype).sync();
}

using Inputs = std::function<Tensors()>;
using One = Tensor (*)(const Tensors&);
Case with(std::string name, Inputs inputs, One program) {
  return {std::move(name), std::move(inputs),
          [program] { return Program([program](const Tensors& in) { return Tensors{program(in)}; }); }};
}
Case of(std::string name, std::vector<fm::Shape> shapes, One program) {
  return with(
      std::move(name),
      [shapes = std::move(shapes)] {
        Tensors all;
        for (const fm::Shape& shape : shapes) all.push_back(normal(all.size() + 1, shape));
        return all;
      },
      program);
}
Case of_integers(std::string name, std::int64_t start, std::int64_t end, const fm::Shape& sizes, DType dtype,
                 One program) {
  return with(
      std::move(name), [=] { return Tensors{integers(1, start, end, sizes, dtype)}; }, program);
}

/// The mean of each group, by sorting.
Tensor group_means(const Tensors& in) {
  const Tensor order = fm::argsort(in[0]);
  const Tensor keys = fm::take(in[0], order), values = fm::take(in[1], order);
  return fm::segment_sum(values, keys, 2500) / fm::maximum(fm::segment_sum(fm::ones_like(values), keys, 2500), 1);
}
Tensor embedding_gradient(const Tensors& in) {
  return fm::grad([&](const Tensor& table) { return fm::sum(fm::tanh(fm::embedding(in[1], table))); })(in[0]);
}
Tensor cross_entropy_gradient(const Tensors& in) {
  return fm::grad([&](const Tensor& x) { return fm::cross_entropy(x, in[1]); })(in[0]);
}
Tensor masked_attention(const Tensors& in) {
  const Tensor scores = fm::where(in[3] > 60, fm::matmul(in[0], in[1].mT()) * 0.15, -1e9);
  return fm::matmul(fm::softmax(scores, -1), in[2]);
}
/// 30 steps of 70 numbers for 40 sequences.
Tensor gated_steps(const Tensors& in) {
  const Tensor w = in[1] * 0.1, u = in[2] * 0.1;
  Tensor h = fm::zeros({40, 70});
  for (int t = 0; t < 30; ++t) {
    const Tensor x = fm::matmul(in[0].select(0, t), w), y = fm::matmul(h, u);
    const auto part = [](const Tensor& all, std::int64_t i) { return all.slice(1, 70 * i, 70 * i + 70); };
    const Tensor r = fm::sigmoid(part(x, 0) + part(y, 0)), z = fm::sigmoid(part(x, 1) + part(y, 1));
    h = (1 - z) * fm::tanh(part(x, 2) + r * part(y, 2)) + z * h;
  }
  return h;
}
Tensor roll_laplacian(const Tensors& in) {
  const Tensor& x = in[0];
  return fm::roll(x, 1, 0) + fm::roll(x, -1, 0) + fm::roll(x, 1, 1) + fm::roll(x, -1, 1) - x * 4;
}
Tensor pad_concat(const Tensors& in) {
  return fm::concat({fm::pad(in[0], {0, 0, 3, 2}), fm::pad(in[1], {0, 0, 1, 4}), in[0] * 2}, 0);
}
/// Two channels of samples, bounded.
Tensor mix_shifts(const Tensors& in) {
  const Tensor sum = (in[0] >> 1) + (in[1] >> 2);
  return fm::minimum(fm::maximum(sum, -9000), 9000);
}
Tensor hash_i64(const Tensors& in) {
  Tensor x = in[0] * 2654435761LL;
  x = x ^ (x >> 15);
  x = x * 97 + 12345;
  return (x ^ (x >> 9)) % 1000;
}
Tensor count_masks(const Tensors& in) {
  const Tensor mask = ((in[0] > 0) & (in[1] < 0.5)) | !(in[0] + in[1] < 1);
  return fm::sum(mask.astype(DType::i64));
}
Tensor masked_mean(const Tensors& in) {
  const Tensor mask = in[0] > 0.3;
  return fm::sum(fm::where(mask, in[0], 0), 1) / fm::sum(mask.astype(DType::f32), 1);
}
Tensor rescale_i8(const Tensors& in) {
  const Tensor x = (in[0].astype(DType::f32) - 3) * 0.7 + 0.5;
  return fm::clip(fm::round(x), -128, 127).astype(DType::i8);
}
/// Images of bytes, in integers.
Tensor blend_u8(const Tensors& in) {
  const Tensor x = in[0].astype(DType::i32);
  return fm::floor_divide(x[0] * 77 + x[1] * 178, 255).astype(DType::u8);
}
Tensor smooth_u8(const Tensors& in) {
  const Tensor x = in[0].astype(DType::i32);
  const std::int64_t end = x.shape()[1];
  return ((fm::slice(x, 1, 0, end - 2) + fm::slice(x, 1, 1, end - 1) * 2 + fm::slice(x, 1, 2, end)) >> 2)
      .astype(DType::u8);
}
/// Brightness of pixels whose channels lie beside each other.
Tensor gray_u8(const Tensors& in) {
  const Tensor x = in[0].astype(DType::i32);
  const auto channel = [&](std::int64_t i) { return fm::select(x, 2, i); };
  return ((channel(0) * 77 + channel(1) * 150 + channel(2) * 29) >> 8).astype(DType::u8);
}
Tensor lengths(const Tensors& in) {
  const auto squared = [&](std::int64_t i) { return fm::square(fm::select(in[0], 1, i)); };
  return fm::sqrt(squared(0) + squared(1) + squared(2));
}
/// Four steps of the game of life in bytes, on a torus.
Tensor life(const Tensors& in) {
  Tensor x = in[0] & 1;
  for (int step = 0; step < 4; ++step) {
    Tensor count;
    for (int i = -1; i <= 1; ++i)
      for (int j = -1; j <= 1; ++j) {
        if (i == 0 && j == 0) continue;
        const Tensor moved = fm::roll(fm::roll(x, i, 0), j, 1);
        count = count.defined() ? count + moved : moved;
      }
    x = ((count == 3) | ((count == 2) & (x == 1))).astype(DType::u8);
  }
  return x;
}
/// Shortest paths by way of the first 60 nodes.
Tensor shortest_paths(const Tensors& in) {
  Tensor x = fm::abs(in[0]);
  for (std::int64_t k = 0; k < 60; ++k) x = fm::minimum(x, fm::slice(x, 1, k, k + 1) + fm::slice(x, 0, k, k + 1));
  return x;
}
/// Hue, saturation and value of pixels.
Tensor hsv(const Tensors& in) {
  const Tensor red = fm::select(in[0], 1, 0), green = fm::select(in[0], 1, 1), blue = fm::select(in[0], 1, 2);
  const Tensor most = fm::maximum(fm::maximum(red, green), blue);
  const Tensor range = most - fm::minimum(fm::minimum(red, green), blue) + 1e-6;
  const Tensor hue = fm::where(most == red, (green - blue) / range,
                               fm::where(most == green, 2 + (blue - red) / range, 4 + (red - green) / range));
  return fm::stack({hue / 6, range / (most + 1e-6), most}, 1);
}
/// Rotary embedding of neighboring pairs.
Tensor rotary(const Tensors& in) {
  const auto each_second = [&](std::int64_t first) { return fm::slice(in[0], 3, first, fm::kNone, 2); };
  const Tensor x = each_second(0), y = each_second(1), re = fm::expand_dims(in[1], 1), im = fm::expand_dims(in[2], 1);
  return fm::reshape(fm::stack({x * re - y * im, y * re + x * im}, -1), {4, 400, 12, 64});
}
/// z^2 + c as complex numbers.
Tensor julia(const Tensors& in) {
  const Tensor c = fm::complex(in[0] * 0.1, in[1] * 0.1);
  Tensor z = c;
  for (int i = 0; i < 12; ++i) z = z * z * 0.5 + c;
  return fm::abs(z);
}
Tensor phase_shift(const Tensors& in) {
  const Tensor z = fm::fft::fft(in[0]);
  return fm::real(fm::fft::ifft(z * fm::exp(fm::complex(0, in[1]))));
}
Tensor quadratic_forms(const Tensors& in) { return fm::einsum("bi,bij,bj->b", {in[0], in[1], in[0]}); }
Tensor sum_of_outer(const Tensors& in) { return fm::sum(fm::expand_dims(in[0], 2) * fm::expand_dims(in[0], 1), 0); }
Tensor covariances(const Tensors& in) {
  const Tensor x = in[0] - fm::mean(in[0], 1, true);
  return fm::matmul(x.mT(), x) / 59;
}
Tensor wave(const Tensors& in) {
  const Tensor now = fm::copy(in[0]), before = fm::copy(in[0]);
  const auto part = [](const Tensor& x, std::int64_t a, std::int64_t b, std::int64_t c) {
    const auto stop = [](std::int64_t start) { return start == 2 ? fm::kNone : start - 2; };
    return x.slice(0, a, stop(a)).slice(1, b, stop(b)).slice(2, c, stop(c));
  };
  for (int i = 0; i < 6; ++i) {
    const Tensor &x = i % 2 ? before : now, &y = i % 2 ? now : before;
    const Tensor around =
        part(x, 0, 1, 1) + part(x, 2, 1, 1) + part(x, 1, 0, 1) + part(x, 1, 2, 1) + part(x, 1, 1, 0) + part(x, 1, 1, 2);
    part(y, 1, 1, 1).assign(part(x, 1, 1, 1) * 2 - part(y, 1, 1, 1) + (around - part(x, 1, 1, 1) * 6) * 0.1);
  }
  return now;
}
Tensor ragged(const Tensors& in) {
  Tensors parts;
  std::int64_t start = 0;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t length = 17 + (i * 37) % 83;
    parts.push_back(fm::max(fm::softmax(in[0].slice(0, start, start + length), 0) * 3, 0));
    start += length;
  }
  return fm::stack(parts);
}
Tensor mean_of_views(const Tensors& in) {
  return fm::mean(in[0].slice(1, 0, fm::kNone, 2).slice(2, 1, fm::kNone, 3), {0, 2}) +
         fm::sum(fm::flip(in[0], {1}), {0, 2}).slice(0, 0, 100);
}
Tensor histogram_2d(const Tensors& in) {
  const auto bin = [](const Tensor& x) { return fm::clip(fm::floor(x * 8 + 24), 0, 47).astype(DType::i64); };
  return fm::bincount(bin(in[0]) * 48 + bin(in[1]), {}, 48 * 48);
}
Tensor bilinear(const Tensors& in) {
  const Tensor y = fm::clip(in[1] * 150 + 300, 0, 597.5), x = fm::clip(in[2] * 150 + 300, 0, 697.5);
  const Tensor fy = fm::floor(y), fx = fm::floor(x), wy = y - fy, wx = x - fx;
  const Tensor at = fy.astype(DType::i64) * 700 + fx.astype(DType::i64), flat = fm::reshape(in[0], {-1});
  const auto pixel = [&](std::int64_t off) { return fm::take(flat, at + off); };
  return pixel(0) * (1 - wy) * (1 - wx) + pixel(1) * (1 - wy) * wx + pixel(700) * wy * (1 - wx) + pixel(701) * wy * wx;
}
Tensor scatter_max(const Tensors& in) {
  return fm::scatter_reduce(fm::full({7000}, -9.0), in[0], in[1], 0, fm::ScatterReduction::amax);
}
Tensor image_to_planes(const Tensors& in) {
  return fm::copy(fm::permute((in[0].astype(DType::f32) / 255 - 0.45) / 0.22, {0, 3, 1, 2}));
}
Tensor mlp_gradient(const Tensors& in) {
  const auto loss = [&](const Tensor& w, const Tensor& u) {
    return fm::mean(fm::square(fm::matmul(fm::tanh(fm::matmul(in[0], w * 0.1)), u * 0.1) - in[1]));
  };
  return fm::grad(loss)(in[2], in[3]);
}
Tensor horner_f64(const Tensors& in) {
  Tensor y = in[0] * 0.01 + 0.3;
  for (int i = 0; i < 8; ++i) y = y * in[0] + 0.1 * i;
  return fm::sum(fm::exp(y * 1e-3), 1);
}
Tensor batch_statistics(const Tensors& in) {
  const Tensor mean = fm::mean(in[0], {0, 2, 3}, true), var = fm::mean(fm::square(in[0] - mean), {0, 2, 3}, true);
  return fm::relu((in[0] - mean) / fm::sqrt(var + 1e-5));
}
Tensor window_max(const Tensors& in) {
  Tensor y = in[0].slice(1, 0, 4996);
  for (int i = 1; i < 5; ++i) y = fm::maximum(y, in[0].slice(1, i, 4996 + i));
  return y;
}
Tensor windows(const Tensor& x, std::int64_t side) { return fm::unfold(fm::unfold(x, 0, side, 1), 1, side, 1); }
Tensor dilate(const Tensors& in) { return fm::max(windows(in[0], 3), {2, 3}); }
Tensor local_contrast(const Tensors& in) {
  const Tensor w = windows(in[0], 5);
  return fm::stddev(w, {2, 3}, 0) / (fm::abs(fm::mean(w, {2, 3})) + 1);
}
Tensor kmeans(const Tensors& in) {
  const Tensor apart = fm::expand_dims(in[0], 1) - in[1];
  const Tensor nearest = fm::argmin(fm::sum(fm::square(apart), -1), -1);
  return fm::segment_sum(in[0], nearest, 30) /
         fm::expand_dims(fm::maximum(fm::segment_sum(fm::ones(in[0].size(0)), nearest, 30), 1), 1);
}
Tensor forward_algorithm(const Tensors& in) {
  Tensor at = in[0].select(0, 0);
  for (int t = 1; t < 60; ++t) at = fm::logsumexp(fm::expand_dims(at, 1) + in[1], 0) + in[0].select(0, t);
  return fm::logsumexp(at);
}
/// The loudness that a compressor of sound follows.
Tensor follow_scan(const Tensors& in) {
  const auto step = [](const Tensor& level, const Tensor& x) {
    const Tensor kept = fm::where(x > level, 0.6, 0.95), next = kept * level + (1 - kept) * x;
    return std::pair(next, next);
  };
  return fm::scan(step, fm::zeros({40}), fm::abs(in[0])).second;
}
/// Predators and prey by the method of Heun.
Tensor prey_scan(const Tensors& in) {
  const auto change = [](const Tensor& a, const Tensor& b) { return std::pair(a * (1 - b), b * (a - 1.5)); };
  const auto step = [change](const std::tuple<Tensor, Tensor>& state, const Tensor& dt) {
    const auto& [a, b] = state;
    const auto [da, db] = change(a, b);
    const auto [ea, eb] = change(a + dt * da, b + dt * db);
    const Tensor next = a + dt / 2 * (da + ea);
    return std::pair(std::tuple(next, b + dt / 2 * (db + eb)), next);
  };
  return fm::scan(step, std::tuple(fm::exp(in[0] * 0.1), fm::exp(in[1] * 0.1)), fm::full({800}, 0.01)).second;
}
Tensor recurrent_scan(const Tensors& in) {
  const Tensor u = in[1] * 0.1;
  const auto step = [u](const Tensor& h, const Tensor& x) {
    const Tensor next = fm::tanh(x + fm::matmul(h, u));
    return std::pair(next, next);
  };
  return fm::scan(step, fm::zeros({9, 64}), in[0]).second;
}
Tensor unpack_bits(const Tensors& in) { return (fm::expand_dims(in[0], 1) >> fm::arange(8).astype(DType::u8)) & 1; }
/// Adam over parameters of many sizes.
Case small_parameters() {
  return {"adam_120_parameters",
          [] {
            Tensors all;
            for (std::int64_t i = 0; i < 240; ++i)
              all.push_back(normal(static_cast<std::uint64_t>(1 + i), {10 + (i % 120) * 13 % 47, 5 + (i % 120) % 29}));
            return all;
          },
          [] {
            return Program([steps = 0, state = Tensors()](const Tensors& in) mutable {
              if (state.empty())
                for (std::size_t i = 0; i < 120; ++i)
                  state.insert(state.end(), {fm::copy(in[i]), fm::zeros_like(in[i]), fm::zeros_like(in[i])});
              ++steps;
              const double rate = 1e-3 / (1 - std::pow(0.9, steps)), scale = 1 / (1 - std::pow(0.999, steps));
              for (std::size_t i = 0; i < 120; ++i) {
                Tensor &value = state[3 * i], &mean = state[3 * i + 1], &square = state[3 * i + 2];
                const Tensor& gradient = in[120 + i];
                mean = mean * 0.9 + gradient * 0.1, square = square * 0.999 + fm::square(gradient) * 0.001;
                value = value - mean * rate / (fm::sqrt(square * scale) + 1e-8);
              }
              fm::sync(state);
              return Tensors{};
            });
          }};
}

}  // namespace

std::vector<Case> user_kinds() {
  return {
      with(
          "group_means_400K",
          [] {
            return Tensors{integers(1, 0, 2500, {400'000}), normal(2, {400'000})};
          },
          &group_means),
      of_integers("one_hot_70Kx45", 0, 45, {70'000}, DType::i64,
                  [](const Tensors& in) { return fm::one_hot(in[0], 45).astype(DType::f32); }),
      with(
          "embedding_gradient_20Kx48",
          [] {
            return Tensors{normal(1, {8000, 48}), integers(2, 0, 8000, {20'000})};
          },
          &embedding_gradient),
      with(
          "cross_entropy_gradient_3000x900",
          [] {
            return Tensors{normal(1, {3000, 900}), integers(2, 0, 900, {3000})};
          },
          &cross_entropy_gradient),
      with(
          "masked_attention_10x300x44",
          [] {
            return Tensors{normal(1, {10, 300, 44}), normal(2, {10, 300, 44}), normal(3, {10, 300, 44}),
                           integers(4, 0, 256, {300, 300}, DType::u8)};
          },
          &masked_attention),
      of("gated_30_steps", {{30, 40, 50}, {50, 210}, {70, 210}}, &gated_steps),
      of("roll_laplacian_900x1100", {{900, 1100}}, &roll_laplacian),
      of("pad_concat_900x1300", {{900, 1300}, {700, 1300}}, &pad_concat),
      of("flip_scale_100x130x150", {{100, 130, 150}}, [](const Tensors& in) { return fm::flip(in[0], {2}) * 2 + 1; }),
      of("turned_scale_150x130x100", {{150, 130, 100}},
         [](const Tensors& in) {
           return fm::permute(in[0], {2, 1, 0}) * 2 + 1;
         }),
      of("reversed_sums_2000x1500", {{2000, 1500}},
         [](const Tensors& in) { return fm::copy(fm::flip(fm::cumulative_sum(fm::flip(in[0], {1}), 1), {1})); }),
      of("tile_70x31x17", {{70, 31, 17}},
         [](const Tensors& in) {
           return fm::tile(in[0], {3, 4, 5});
         }),
      of("repeat_3000x170", {{3000, 170}}, [](const Tensors& in) { return fm::repeat(in[0], 3, 1); }),
      with(
          "mix_i16_5M",
          [] {
            return Tensors{integers(1, -20000, 20000, {5'000'000}, DType::i16),
                           integers(2, -20000, 20000, {5'000'000}, DType::i16)};
          },
          &mix_shifts),
      of_integers("hash_i64_2M", 0, 1'000'000, {2'000'000}, DType::i64, &hash_i64),
      of("count_masks_5M", {{5'000'000}, {5'000'000}}, &count_masks),
      of("masked_mean_3000x1100", {{3000, 1100}}, &masked_mean),
      of_integers("rescale_i8_7M", -128, 128, {7'000'000}, DType::i8, &rescale_i8),
      of_integers("blend_u8_2x1300x1700", 0, 256, {2, 1300, 1700}, DType::u8, &blend_u8),
      of_integers("smooth_u8_1300x1700", 0, 256, {1300, 1700}, DType::u8, &smooth_u8),
      of_integers("gray_u8_900x1100x4", 0, 256, {900, 1100, 4}, DType::u8, &gray_u8),
      of("lengths_600Kx3", {{600'000, 3}}, &lengths),
      of("angles_130Kx10", {{130'000}, {10}},
         [](const Tensors& in) { return fm::sin(fm::expand_dims(in[0], 1) * in[1]); }),
      of_integers("limit_u8_800Kx5", 0, 256, {800'000, 5}, DType::u8,
                  [](const Tensors& in) { return fm::minimum(in[0], fm::slice(in[0], 1, 0, 1)); }),
      of_integers("life_1500x1500", 0, 256, {1500, 1500}, DType::u8, &life),
      of("shortest_paths_240", {{240, 240}}, &shortest_paths),
      of("hsv_700Kx3", {{700'000, 3}}, &hsv),
      of("rotary_4x400x12x64", {{4, 400, 12, 64}, {400, 32}, {400, 32}}, &rotary),
      of_integers("turned_i16_2048", -20000, 20000, {2048, 2048}, DType::i16,
                  [](const Tensors& in) { return fm::copy(in[0].mT()); }),
      of("reversed_axes_8x128x1024", {{8, 128, 1024}},
         [](const Tensors& in) {
           return fm::copy(fm::permute(in[0], {2, 1, 0}));
         }),
      of("columns_over_norm_1024x1024", {{1024, 1024}},
         [](const Tensors& in) { return in[0] / fm::sqrt(fm::sum(fm::square(in[0]), 0, true)); }),
      of("quarter_turn_2048x2048", {{2048, 2048}},
         [](const Tensors& in) { return fm::copy(fm::flip(in[0].mT(), {0})); }),
      of("sum_transposed_1024x1024", {{1024, 1024}}, [](const Tensors& in) { return fm::sum(in[0].mT()); }),
      of_integers("transposed_max_i16_1024", -9000, 9000, {1024, 1024}, DType::i16,
                  [](const Tensors& in) { return fm::max(in[0].mT(), 1); }),
      of_integers("stretched_u8_1500x1500", 0, 200, {1500, 1500}, DType::u8,
                  [](const Tensors& in) {
                    return fm::broadcast_to(fm::slice(in[0], 1, 0, 1), {1500, 1500}) + 7;
                  }),
      of("max_middle_256x256x64", {{256, 256, 64}}, [](const Tensors& in) { return fm::max(in[0], 1); }),
      of("every_third_20000x330", {{20'000, 330}},
         [](const Tensors& in) { return fm::sum(in[0].slice(1, 1, fm::kNone, 3), 1); }),
      of("flipped_rows_20000x330", {{20'000, 330}}, [](const Tensors& in) { return fm::sum(fm::flip(in[0], {1}), 1); }),
      of("even_columns_2000x2000", {{2000, 2000}},
         [](const Tensors& in) { return fm::copy(in[0].slice(1, 0, fm::kNone, 2)); }),
      of("row_sums_40Kx100", {{40'000, 100}}, [](const Tensors& in) { return fm::sum(in[0], 1); }),
      of("transposed_sums_1100x1300", {{1100, 1300}}, [](const Tensors& in) { return fm::sum(in[0].mT(), 1); }),
      of("plane_sums_5000x21x21", {{5000, 21, 21}}, [](const Tensors& in) { return fm::sum(in[0].mT(), 2); }),
      of("column_squares_10Kx100", {{10'000, 100}}, [](const Tensors& in) { return fm::sum(in[0] * in[0], 0); }),
      of("standardize_features_100Kx10", {{100'000, 10}},
         [](const Tensors& in) { return (in[0] - fm::mean(in[0], 0)) / fm::stddev(in[0], 0); }),
      of("standardize_vector_1M", {{1'000'000}},
         [](const Tensors& in) { return (in[0] - fm::mean(in[0])) / fm::stddev(in[0]); }),
      of_integers("byte_sums_2000x1700", 0, 256, {2000, 1700}, DType::u8,
                  [](const Tensors& in) { return fm::sum(in[0], 1); }),
      of("enlarge_1024x1024", {{1024, 1024}},
         [](const Tensors& in) { return fm::repeat(fm::repeat(in[0], 2, 0), 2, 1); }),
      with(
          "segment_sums_65536x32",
          [] {
            return Tensors{integers(1, 0, 64, {65536}, DType::i64), normal(2, {65536, 32})};
          },
          [](const Tensors& in) {
            return fm::index_add(fm::zeros({64, 32}), in[0], in[1]);
          }),
      with(
          "tone_curve_6M",
          [] {
            return Tensors{integers(1, 0, 256, {256}, DType::u8), integers(2, 0, 256, {3000, 2000}, DType::u8)};
          },
          [](const Tensors& in) { return fm::take(in[0], in[1]); }),
      with(
          "palette_900K",
          [] {
            return Tensors{normal(1, {256, 3}), integers(2, 0, 256, {900, 1000}, DType::u8)};
          },
          [](const Tensors& in) { return fm::take(in[0], in[1]); }),
      of("julia_300K", {{300'000}, {300'000}}, &julia),
      of("phase_shift_80x1009", {{80, 1009}, {80, 1009}}, &phase_shift),
      of("fft2_odd_8x135x147", {{8, 135, 147}},
         [](const Tensors& in) {
           return fm::abs(fm::fft::fftn(in[0], {}, {1, 2}));
         }),
      of("rfft_300K", {{300'000}}, [](const Tensors& in) { return fm::abs(fm::fft::rfft(in[0])); }),
      of("solve_40Kx3x3", {{40'000, 3, 3}, {40'000, 3, 1}},
         [](const Tensors& in) { return fm::linalg::solve(in[0] + fm::eye(3) * 5, in[1]); }),
      of("inv_9Kx7x7", {{9'000, 7, 7}}, [](const Tensors& in) { return fm::linalg::inv(in[0] + fm::eye(7) * 9); }),
      of("eigenvalues_9Kx5x5", {{9'000, 5, 5}},
         [](const Tensors& in) { return fm::linalg::eigvalsh(in[0] + in[0].mT()); }),
      of("log_determinants_900x24x24", {{900, 24, 24}},
         [](const Tensors& in) {
           const Tensor factor = fm::linalg::cholesky(fm::matmul(in[0], in[0].mT()) + fm::eye(24) * 24);
           return fm::sum(fm::log(factor.diagonal()), -1);
         }),
      of("short_softmax_31Kx32", {{31'000, 32}}, [](const Tensors& in) { return fm::softmax(in[0], -1); }),
      of("waves_2M", {{2'000'000}}, [](const Tensors& in) { return fm::sin(in[0] * 40) * 2 + fm::cos(in[0]); }),
      with(
          "waves_f64_700K", [] { return Tensors{normal(1, {700'000}, DType::f64)}; },
          [](const Tensors& in) { return fm::sin(in[0] * 40) * 2 + fm::cos(in[0]); }),
      with(
          "scattered_i64_900K",
          [] { return Tensors{integers(1, -(std::int64_t{1} << 62), std::int64_t{1} << 62, {900'000})}; },
          [](const Tensors& in) { return in[0] * 6364136223846793005 % 1009; }),
      of("places_above_2M", {{2'000'000}}, [](const Tensors& in) { return fm::flatnonzero(in[0] > 1); }),
      of("quadratic_forms_50Kx7", {{50'000, 7}, {50'000, 7, 7}}, &quadratic_forms),
      of("matvec_6000x30x30", {{6000, 30, 30}, {6000, 30}},
         [](const Tensors& in) {
           return fm::einsum("bij,bj->bi", {in[0], in[1]});
         }),
      of("small_products_20Kx6x5", {{20'000, 6, 5}, {20'000, 5, 9}},
         [](const Tensors& in) { return fm::matmul(in[0], in[1]); }),
      of("sum_of_outer_60Kx11", {{60'000, 11}}, &sum_of_outer),
      of("covariances_700x60x9", {{700, 60, 9}}, &covariances),
      of("wave_6_steps_60x70x80", {{60, 70, 80}}, &wave),
      of("ragged_40_parts", {{2400, 24}}, &ragged),
      of("mean_of_views_90x200x330", {{90, 200, 330}}, &mean_of_views),
      of("histogram_2d_2M", {{2'000'000}, {2'000'000}}, &histogram_2d),
      of("bilinear_500K", {{600, 700}, {500'000}, {500'000}}, &bilinear),
      with(
          "scatter_max_600K",
          [] {
            return Tensors{integers(1, 0, 7000, {600'000}), normal(2, {600'000})};
          },
          &scatter_max),
      of_integers("image_to_planes_20x170x190", 0, 256, {20, 170, 190, 3}, DType::u8, &image_to_planes),
      of("permute_40x130x37x3", {{40, 130, 37, 3}},
         [](const Tensors& in) {
           return fm::copy(fm::permute(in[0], {2, 0, 3, 1}));
         }),
      of("mlp_gradient_90x200x300", {{90, 200}, {90, 50}, {200, 300}, {300, 50}}, &mlp_gradient),
      with(
          "horner_f64_900x1100",
          [] {
            return Tensors{normal(1, {900, 1100}, DType::f64)};
          },
          &horner_f64),
      of("batch_statistics_32x40x27x27", {{32, 40, 27, 27}}, &batch_statistics),
      of("window_max_300x5000", {{300, 5000}}, &window_max),
      of("dilate_700x900", {{700, 900}}, &dilate),
      of("local_contrast_500x700", {{500, 700}}, &local_contrast),
      of("kmeans_20Kx30x9", {{20'000, 9}, {30, 9}}, &kmeans),
      of("forward_algorithm_60x50", {{60, 50}, {50, 50}}, &forward_algorithm),
      of("follow_scan_3000x40", {{3000, 40}}, &follow_scan),
      of("prey_scan_800x350", {{350}, {350}}, &prey_scan),
      of("recurrent_scan_200x9x64", {{200, 9, 64}, {64, 64}}, &recurrent_scan),
      of_integers("unpack_bits_900K", 0, 256, {900'000}, DType::u8, &unpack_bits),
      of_integers("sort_i16_3M", -30000, 30000, {3'000'000}, DType::i16,
                  [](const Tensors& in) { return fm::sort(in[0]); }),
      of_integers("sort_u8_900x5000", 0, 256, {900, 5000}, DType::u8,
                  [](const Tensors& in) { return fm::sort(in[0]); }),
      with(
          "sort_f64_700K", [] { return Tensors{normal(1, {700'000}, DType::f64)}; },
          [](const Tensors& in) { return fm::sort(in[0]); }),
      of_integers("argsort_i64_500K", 0, 90'000, {500'000}, DType::i64,
                  [](const Tensors& in) { return fm::argsort(in[0]); }),
      of("sort_triples_160Kx3", {{160'000, 3}}, [](const Tensors& in) { return fm::sort(in[0]); }),
      of("argsort_rows_70Kx7", {{70'000, 7}}, [](const Tensors& in) { return fm::argsort(in[0]); }),
      of("median_30Kx61", {{30'000, 61}}, [](const Tensors& in) { return fm::median(in[0], 1); }),
      of("top_33_2000x515", {{2000, 515}}, [](const Tensors& in) { return fm::topk(in[0], 33).indices; }),
      of("unit_vectors_300Kx3", {{300'000, 3}},
         [](const Tensors& in) { return in[0] / fm::sqrt(fm::sum(in[0] * in[0], 1, true)); }),
      of("crop_colors_12x230x240x3", {{12, 230, 240, 3}, {3}},
         [](const Tensors& in) { return (in[0].slice(1, 10, -10).slice(2, 10, -10) - in[1]) * 0.5; }),
      with(
          "flip_where_16x170x160x3",
          [] {
            return Tensors{integers(1, 0, 256, {16, 170, 160, 3}, DType::u8),
                           integers(2, 0, 2, {16, 1, 1, 1}, DType::u8)};
          },
          [](const Tensors& in) { return fm::where(in[1] > 0, fm::flip(in[0], {2}), in[0]); }),
      of_integers("byte_row_sums_50Kx32", 0, 256, {50'000, 32}, DType::u8,
                  [](const Tensors& in) { return fm::sum(in[0], 1); }),
      of("topk_indices_4000x700", {{4000, 700}}, [](const Tensors& in) { return fm::topk(in[0], 5).indices; }),
      of("searchsorted_600K", {{3000}, {600'000}},
         [](const Tensors& in) { return fm::searchsorted(fm::sort(in[0]), in[1]); }),
      of("cumprod_500x4000", {{500, 4000}}, [](const Tensors& in) { return fm::cumulative_prod(in[0] * 0.01 + 1, 1); }),
      of("cumsum_columns_70Kx30", {{70'000, 30}}, [](const Tensors& in) { return fm::cumulative_sum(in[0], 1); }),
      of_integers("cumsum_i32_900x6000", 0, 9, {900, 6000}, DType::i32,
                  [](const Tensors& in) { return fm::cumulative_sum(in[0], 1); }),
      of("depthwise_5x5_6x64x41x41", {{6, 64, 41, 41}, {64, 1, 5, 5}},
         [](const Tensors& in) { return fm::conv2d(in[0], in[1], {}, 1, 2, 1, 64); }),
      of("blur_3x900x1100", {{3, 1, 900, 1100}, {1, 1, 7, 1}},
         [](const Tensors& in) {
           return fm::conv2d(in[0], in[1], {}, 1, {3, 0});
         }),
      of("conv1d_16x40x2000", {{16, 40, 2000}, {40, 40, 5}},
         [](const Tensors& in) { return fm::conv1d(in[0], in[1], {}, 1, 2); }),
      with(
          "take_columns_3000x700",
          [] {
            return Tensors{normal(1, {3000, 700}), integers(2, 0, 700, {500})};
          },
          [](const Tensors& in) { return fm::take(in[0], in[1], 1); }),
      with(
          "take_along_300Kx5",
          [] {
            return Tensors{normal(1, {300'000, 5}), integers(2, 0, 5, {300'000, 5})};
          },
          [](const Tensors& in) { return fm::take_along_axis(in[0], in[1], 1); }),
      of("distances_1100x900x5", {{1100, 5}, {900, 5}},
         [](const Tensors& in) { return fm::sqrt(fm::sum(fm::square(fm::expand_dims(in[0], 1) - in[1]), -1)); }),
      of("max_middle_60x3000x7", {{60, 3000, 7}}, [](const Tensors& in) { return fm::max(in[0], 1); }),
      of("uniform_4M", {}, [](const Tensors&) { return fm::sum((fm::uniform({4'000'000}) < 2).astype(DType::f32)); }),
      of("normal_3M", {}, [](const Tensors&) { return fm::sum((fm::normal({3'000'000}) < 50).astype(DType::f32)); }),
      with(
          "half_gelu_5M", [] { return Tensors{normal(1, {5'000'000}, DType::f16)}; },
          [](const Tensors& in) { return in[0] * fm::sigmoid(in[0] * 1.7) + 0.1; }),
      small_parameters(),
  };
}

}  // namespace bench
