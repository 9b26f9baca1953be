// Programs of arrays: pointwise calls, products, linear algebra, positions, writes, other layouts, errors.
#include <fermata/convolution.h>
#include <fermata/subscript.h>

#include <string_view>
#include <vector>

#include "tests/programs/sources.h"

namespace fermata::programs {
namespace {

Tensor numbers(const IntegerList& sizes, std::uint64_t seed, DType dtype = DType::f32) {
  Generator from(seed);
  return astype(uniform(sizes, -1, 1, DType::f32, from), dtype);
}

}  // namespace

void pointwise_and_reductions(Results& results, const std::string&) {
  for (const std::int64_t rows : {3, 17}) {
    const Tensor x = numbers({rows, 40}, 11), y = numbers({40}, 12);
    results.add(tanh(x * y) + where(x > 0, x, exp(x)));
    results.add(sum(x * x, 1));
    results.add(max(x + y, 0));
    results.add(softmax(x, 1));
    results.add(cumsum(y));
    results.add(astype(numbers({rows}, 13, DType::bf16) * 3, DType::f32));
  }
}

void products(Results& results, const std::string&) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor a = numbers({24, 33}, 14, dtype), b = numbers({33, 20}, 15, dtype);
    results.add(gelu(matmul(a, b)));
    results.add(matmul(numbers({3, 7, 33}, 16, dtype), b));
    results.add(matmul(a, b.select(1, 0)));
  }
  results.add(matmul(numbers({200, 150}, 17), numbers({150, 180}, 18)));
  results.add(einsum("bij,bjk->bk", {numbers({4, 5, 6}, 19), numbers({4, 6, 7}, 20)}));
  results.add(matmul(astype(numbers({9, 16}, 21) * 50, DType::i8), astype(numbers({16, 8}, 22) * 50, DType::i8)));
}

void convolutions(Results& results, const std::string&) {
  const Tensor x = numbers({2, 3, 12, 12}, 23), weight = numbers({4, 3, 3, 3}, 24);
  results.add(relu(conv2d(x, weight, numbers({4}, 25), 1, 1)));
  const auto [by_x, by_weight] =
      grad<0, 1>([](const Tensor& a, const Tensor& w) { return sum(conv2d(a, w) * conv2d(a, w)); })(x, weight);
  results.add(by_x), results.add(by_weight);
}

void linear_algebra(Results& results, const std::string&) {
  const Tensor a = numbers({2, 18, 18}, 26) + eye(18) * 8, b = numbers({2, 18, 2}, 27);
  const Tensor spd = matmul(a, a.mT());
  results.add(linalg::solve(a, b));
  results.add(linalg::inv(a));
  results.add(linalg::det(a));
  results.add(linalg::cholesky(spd));
  results.add(linalg::eigvalsh(spd));
  results.add(linalg::svdvals(a));
  results.add(abs(linalg::qr(a).r));
  results.add(sum(linalg::lstsq(a, b).solution));
  results.add(grad([&](const Tensor& m) { return sum(linalg::solve(m, b)); })(a));
  results.add(abs(fft::fft(numbers({12}, 28))));
  results.add(fft::irfft(fft::rfft(numbers({3, 10}, 29)), 10));
}

void selections(Results& results, const std::string&) {
  const Tensor x = numbers({6, 9}, 30), order = argsort(x.select(1, 0));
  results.add(take(x, order));
  results.add(sort(x, 1));
  results.add(topk(x, 3).values);
  results.add(gather(x, argsort(x, 1), 1));
  results.add(index_add(zeros({4, 9}), tensor({0, 1, 1, 3, 0, 2}), x));
  results.add(grad([&](const Tensor& a) { return sum(take(a, order) * x); })(x));
  results.add(unique_values(astype(x * 2, DType::i32)));
  results.add(nonzero(x > 0.5)[0]);
  results.add(x[x > 0]);
  results.add(bincount(astype(abs(x).flatten() * 8, DType::i64)));
  results.add(searchsorted(sort(x.flatten()), tensor({-0.5f, 0.0f, 0.5f})));
}

void writes_in_place(Results& results, const std::string&) {
  Tensor x = numbers({5, 6}, 31).sync();
  const Tensor before = x.copy();
  Tensor row = x[2], columns = x.slice(1, 1, 5, 2);
  row *= 3;
  columns += tensor({1.0f, 2.0f});
  x[0].assign(x[4]);
  x.masked_fill(x > 1, 0);
  results.add(x), results.add(row), results.add(columns), results.add(before);
  float* const data = x.data<float>();
  data[0] = 7;
  x += 1;
  results.add(x);
  Tensor total = zeros({6});
  for (int i = 0; i < 40; ++i) total += x[i % 5] * 0.5;
  results.add(total);
}

/// Every way to make a view, views that are read between writes, and gradients through them.
void views_and_writes(Results& results, const std::string&) {
  const Tensor x = numbers({4, 6}, 36).sync();
  std::vector<Tensor> views{x.slice(0, 1, 3), x.select(1, 2),       x.T(),         x.reshape({2, 12}),
                            x.flip({1}),      x.expand_dims({1}),   x.diagonal(),  x.unsqueeze(0).squeeze(),
                            x.flatten(),      x.moveaxis({0}, {1}), x.split(2)[1], x.index({Slice(0, 4, 2), 1})};
  for (std::size_t i = 0; i < views.size(); ++i) {
    Tensor row = x[static_cast<std::int64_t>(i % 4)];
    row += sum(views[i]) * 0.125;
    results.add(views[i]);
  }
  results.add(x), results.add(x.broadcast_to({2, 4, 6})), results.add(unfold(x, 1, 3, 2));
  results.add(grad([](const Tensor& a) {
    Tensor b = a * 2;
    b[1].assign(b[0] * b[2]);
    b.slice(1, 0, 2) *= b.slice(1, 2, 4);
    return sum(b * b);
  })(x));
}

void layouts(Results& results, const std::string&) {
  const Tensor x = numbers({6, 8}, 32), kept = where(abs(x) > 0.5, x, 0);
  const Tensor coo = to_sparse_coo(kept), csr = to_sparse_csr(kept);
  results.add(matmul(csr, numbers({8, 3}, 33)));
  results.add(to_dense(coo * 2));
  const Tensor q = quantize(x, 0.02, 0);
  results.add(dequantize(q));
  results.add(dequantize(quantized_matmul(q, quantize(numbers({8, 4}, 34), 0.02, 0), 0.1)));
  results.add(abs(complex(x, x * 2)));
}

void few_calls(Results& results, const std::string&) {
  Tensor x = ones({4, 6}) * 3;
  const Tensor deep = ones({1, 1, 1, 1, 1, 2, 3}) + 1;  // of a rank that takes memory
  results.add(x.T().slice(0, 1, 3) + deep.reshape(2, 3).slice(1, 0, 1));
  x[1] += x[0];
  results.add(sum(where(x > 3, x, deep.flatten()), 1));
}

void errors(Results& results, const std::string&) {
  const Tensor x = numbers({4, 5}, 35), y = exp(x);
  const auto code_of = [](auto&& f) -> double {
    try {
      f();
    } catch (const OutOfMemoryError&) { throw; } catch (const Error& error) {
      return error.code();
    }
    return 0;
  };
  results.add(code_of([&] { return matmul(x, x); }));
  results.add(code_of([&] { return x + ones({3}); }));
  results.add(code_of([&] { return reshape(x, {7}); }));
  results.add(code_of([&] { return x.item<float>(); }));
  results.add(code_of([&] { return linalg::solve(zeros({3, 3}), ones({3})).sync(); }));
  results.add(code_of([&] { return load_npy("/nowhere/x.npy"); }));
  results.add(code_of([&] { return compile([](const Tensor& a) { return a * a.item<float>(); })(sum(x)); }));
  results.add(y);
}

}  // namespace fermata::programs
