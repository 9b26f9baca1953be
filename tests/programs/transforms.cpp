// Programs of compiled functions, control flow, vmap and derivatives.
#include <tuple>

#include "tests/programs/sources.h"

namespace fermata::programs {
namespace {

Tensor numbers(const IntegerList& sizes, std::uint64_t seed) {
  Generator from(seed);
  return uniform(sizes, 0.5, 1.5, DType::f32, from);
}

/// x after a rotation that is applied again and again, and where it has been.
std::pair<Tensor, Tensor> walk_of(const Tensor& x, const Tensor& turn, const Tensor& pushes) {
  return scan(
      [turn](const Tensor& at, const Tensor& push) {
        const Tensor next = tanh(matmul(turn, at) + push);
        return std::pair(next, sum(next * next));
      },
      x, pushes);
}

}  // namespace

void compiled_function(Results& results, const std::string&) {
  Setting scale = 2;
  const Tensor weight = numbers({8, 8}, 1);
  Tensor calls = zeros({});
  auto f = compile([&](const Tensor& x, double shift) {
    calls += 1;
    return std::pair(softmax(matmul(x, weight) * scale, 1), sum(exp(-x) + shift, 0));
  });
  for (const std::int64_t rows : {4, 4, 6, 4, 4}) {
    const auto [first, second] = f(numbers({rows, 8}, 2), static_cast<double>(rows % 3));
    results.add(first), results.add(second);
    scale = scale + 1;
  }
  results.add(calls);
}

void control_flow(Results& results, const std::string&) {
  const Tensor x = numbers({4}, 3), turn = numbers({4, 4}, 4) - 1, pushes = numbers({6, 4}, 5);
  const auto loss = [pushes](const Tensor& start, const Tensor& by) {
    const auto [last, sums] = walk_of(start, by, pushes);
    return sum(last) + sum(sums);
  };
  const auto [by_x, by_turn] = grad<0, 1>(loss)(x, turn);
  results.add(by_x), results.add(by_turn);
  results.add(fori_loop(
      0, 7, [](const Tensor& i, const Tensor& a) { return a * 0.5 + astype(i, DType::f32); }, x));
  for (const float sign : {1.0f, -1.0f})
    results.add(grad([sign](const Tensor& a) {
      return sum(cond(
          sum(a * sign) > 0, [](const Tensor& b) { return sin(b) * b; }, [](const Tensor& b) { return b * b * b; }, a));
    })(x));
}

void control_flow_in_compiled_function(Results& results, const std::string&) {
  const Tensor turn = numbers({4, 4}, 4) - 1, pushes = numbers({6, 4}, 5);
  auto f = compile([=](const Tensor& x) {
    const auto [last, sums] = walk_of(x, turn, pushes);
    const Tensor limited = cond(
        sum(sums) > 3, [](const Tensor& a) { return a / 2; }, [](const Tensor& a) { return a * 2; }, last);
    const auto [steps, halved] = while_loop([](const Tensor&, const Tensor& a) { return max(abs(a)) > 0.01; },
                                            [](const Tensor& n, const Tensor& a) { return std::tuple(n + 1, a / 2); },
                                            std::tuple(zeros({}, DType::i64), limited));
    return std::tuple(limited, steps, halved);
  });
  for (int run = 0; run < 3; ++run) {
    const auto [limited, steps, halved] = f(numbers({4}, static_cast<std::uint64_t>(6 + run)));
    results.add(limited), results.add(steps), results.add(halved);
  }
}

/// Loops in branches in loops, their gradients, and both in a compiled function that meets other sizes.
void nested_control_flow(Results& results, const std::string&) {
  const Tensor pushes = numbers({5, 3}, 61);
  const auto step = [](const Tensor& at, const Tensor& push) {
    const Tensor moved = cond(
        sum(at) > 3,
        [](const Tensor& a, const Tensor& by) {
          return fori_loop(
              0, 3, [by](const Tensor&, const Tensor& b) { return tanh(b + by); }, a);
        },
        [](const Tensor& a, const Tensor& by) { return a * by + 1; }, at, push);
    return std::pair(moved, sum(moved * moved));
  };
  const auto loss = [&](const Tensor& start, const Tensor& by) {
    const auto [last, sums] = scan(step, start, by);
    return sum(last) + sum(sums);
  };
  const auto [by_x, by_pushes] = grad<0, 1>(loss)(numbers({3}, 62), pushes);
  results.add(by_x), results.add(by_pushes);
  auto f = compile([&](const Tensor& x, const Tensor& by) { return grad<0, 1>(loss)(x, by); });
  for (const std::int64_t columns : {3, 4, 3}) {
    const auto [first, second] = f(numbers({columns}, 63), numbers({5, columns}, 64));
    results.add(first), results.add(second);
  }
}

void while_loops(Results& results, const std::string&) {
  const auto [n, x] = while_loop([](const Tensor& i, const Tensor&) { return i < 9; },
                                 [](const Tensor& i, const Tensor& a) { return std::tuple(i + 1, cos(a) + a / 2); },
                                 std::tuple(zeros({}, DType::i64), numbers({5}, 7)));
  results.add(n), results.add(x);
  const auto halvings = vmap([](const Tensor& start) {
    return std::get<1>(while_loop([](const Tensor& a, const Tensor&) { return a > 1; },
                                  [](const Tensor& a, const Tensor& count) { return std::tuple(a / 2, count + 1); },
                                  std::tuple(start, zeros({}, DType::i64))));
  });
  results.add(halvings(arange(1, 9, 1, DType::f32)));
}

void vmap_of_gradients(Results& results, const std::string&) {
  const Tensor weight = numbers({6, 3}, 8), x = numbers({5, 6}, 9), labels = arange(5) % 3;
  const auto loss = [](const Tensor& w, const Tensor& example, const Tensor& label) {
    return cross_entropy(expand_dims(matmul(example, w), {0}), expand_dims(label, {0}));
  };
  results.add(vmap(grad(loss), {unbatched, 0, 0})(weight, x, labels));
  results.add(
      grad([&](const Tensor& w) { return sum(vmap([&](const Tensor& a) { return tanh(matmul(a, w)); })(x)); })(weight));
}

void higher_derivatives(Results& results, const std::string&) {
  const Tensor x = numbers({4}, 10);
  const auto f = [](const Tensor& a) { return sum(sin(a) * a + prod(a)); };
  results.add(hessian(f)(x));
  results.add(hvp(f, x, ones({4})));
  results.add(jacfwd([](const Tensor& a) { return cumsum(a * a); })(x));
  results.add(std::get<1>(jvp(f, x, ones({4}))));
}

}  // namespace fermata::programs
