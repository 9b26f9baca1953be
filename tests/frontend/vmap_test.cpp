// vmap: arguments and results, nesting, random numbers, writes in place, what goes wrong, compile(fn), threads.
//
// Every op by vmap is in vmap_ops_test.cpp, gradients in vmap_grad_test.cpp.
#include <gtest/gtest.h>

#include <charconv>
#include <set>
#include <sstream>
#include <thread>

#include "dispatch/library.h"
#include "frontend/transforms/vmap/batched.h"
#include "tests/error_message.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using Row = std::vector<double>;

class Vmap : public InBothModes {
 protected:
  ~Vmap() override {
    EXPECT_EQ(vmap_frame, nullptr);
    EXPECT_FALSE(thread_keys.included.has(Functionality::batched));
    EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2}));
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Vmap, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Row row(const Tensor& x) { return x.to_vector<double>(); }

TEST_P(Vmap, ArgumentsAndResults) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}});
  const auto inner = vmap([](const Tensor& a) {
    EXPECT_EQ(a.shape(), (Shape{2}));
    EXPECT_EQ(a.rank(), 1u);
    EXPECT_EQ(a.element_count(), 2);
    return sum(a);
  });
  EXPECT_EQ(row(inner(x)), (Row{3, 7, 11}));
  EXPECT_EQ(row(vmap([](const Tensor& a) { return sum(a); }, 1)(x)), (Row{9, 12}));
  EXPECT_EQ(row(vmap([](const Tensor& a) { return sum(a); }, -1)(x)), (Row{9, 12}));
  // Another place for the batch in the result.
  const Tensor moved = vmap([](const Tensor& a) { return a * 2; }, 0, 1)(x);
  EXPECT_EQ(moved.shape(), (Shape{2, 3}));
  EXPECT_EQ(row(moved), (Row{2, 6, 10, 4, 8, 12}));
  // Several arguments, shared ones, and what is no tensor.
  const auto scaled =
      vmap([](const Tensor& a, const Tensor& w, double k) { return matmul(w, a) * k; }, {0, unbatched, unbatched});
  const Tensor w = tensor({{1.0, 0.0}, {1.0, 1.0}});
  EXPECT_EQ(row(scaled(x, w, 10.0)), (Row{10, 30, 30, 70, 50, 110}));
  // Tuples and vectors; an axis for each result.
  const auto both = vmap([](const Tensor& a) { return std::tuple(sum(a), a + 1); }, 0, {0, 1})(x);
  EXPECT_EQ(row(std::get<0>(both)), (Row{3, 7, 11}));
  EXPECT_EQ(std::get<1>(both).shape(), (Shape{2, 3}));
  const std::vector<Tensor> list = vmap(
      [](const std::vector<Tensor>& in) {
        return std::vector{in[0] + in[1], in[0] * in[1], in[1]};
      },
      0, {0, -1, 0})(std::vector{x, x});
  EXPECT_EQ(row(list[0]), (Row{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(list[1].shape(), (Shape{2, 3}));
  const auto pair =
      vmap([](const std::pair<Tensor, Tensor>& p) { return std::array{p.first - p.second}; })(std::pair(x, x));
  EXPECT_EQ(row(pair[0]), (Row{0, 0, 0, 0, 0, 0}));
  // A result that is the same for all is repeated, or handed through where that is asked for.
  EXPECT_EQ(vmap([&](const Tensor&) { return w; }, 0, 2)(x).shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(row(vmap([](const Tensor&) { return full({}, 4.0); })(x)), (Row{4, 4, 4}));
  EXPECT_EQ(vmap([&](const Tensor&) { return w * 2; }, 0, unbatched)(x).shape(), (Shape{2, 2}));
}

TEST_P(Vmap, ResultsAreOrdinaryTensors) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  Tensor same = vmap([](const Tensor& a) { return a; })(x);
  same += 1;
  EXPECT_EQ(row(x), (Row{1, 2, 3, 4}));
  EXPECT_EQ(row(same), (Row{2, 3, 4, 5}));
  Tensor repeated = vmap([](const Tensor&) { return full({}, 1.0); })(x);
  repeated += 1;
  EXPECT_EQ(row(repeated), (Row{2, 2}));
}

TEST_P(Vmap, Nests) {
  const Tensor a = random_f64({3, 4}, 0.5, 2, true, 1), b = random_f64({5, 4}, 0.5, 2, true, 2);
  const auto dots = vmap([&](const Tensor& x) { return vmap([&](const Tensor& y) { return sum(x * y); })(b); })(a);
  expect_close(dots, matmul(a, transpose(b)), 1e-12);
  // The other level first, axes everywhere, three deep.
  const Tensor c = random_f64({2, 3, 5, 4}, 0.5, 2, true, 3);
  const auto f = [](const Tensor& v, const Tensor& s) { return softmax(v * s) + exp(s); };
  const Tensor s = random_f64({4, 2, 3}, 0.5, 2, true, 4);
  const Tensor deep = vmap(vmap(vmap(f, {1, 0}, 1), {0, -1}), {0, 1})(c, s);
  EXPECT_EQ(deep.shape(), (Shape{2, 3, 5, 4}));
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t k = 0; k < 4; ++k)
        expect_close(select(deep[i][j], 1, k), f(select(c[i][j], 1, k), s[k][i][j]), 1e-12);
  // A tensor of the outer level inside the inner one, with fewer axes and more.
  const Tensor outer = vmap([&](const Tensor& x) {
    return vmap([&](const Tensor& y) { return matmul(expand_dims(x, 0), expand_dims(y, 1)) + x * y[0]; })(b);
  })(a);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j)
      expect_close(outer[i][j], sum(a[i] * b[j]) + reshape(a[i] * b[j][0], {1, 4}), 1e-12);
}

TEST_P(Vmap, RandomNumbersAreIndependent) {
  manual_seed(5);
  const Tensor x = zeros({4, 3});
  const std::uint64_t before = default_generator().offset();
  const Tensor drawn = vmap([](const Tensor& a) { return a + rand({3}); })(x);
  EXPECT_EQ(default_generator().offset() - before, 12u);
  const Row values = row(drawn);
  EXPECT_EQ((std::set<double>(values.begin(), values.end())).size(), 12u);
  manual_seed(5);  // as one call would draw them
  EXPECT_EQ(row(rand({4, 3})), values);
  // Next calls draw other numbers, also nested, and when the argument takes no part.
  const Row more = row(vmap(vmap([](const Tensor&) { return randn({}); }))(x));
  EXPECT_EQ((std::set<double>(more.begin(), more.end())).size(), 12u);
  const Row coins = row(vmap([](const Tensor& p) { return bernoulli(p); })(full({64, 2}, 0.5)));
  EXPECT_NE(coins, Row(128, coins[0]));
  const Tensor orders = vmap([](const Tensor&) { return permutation(50); })(x);
  EXPECT_EQ(orders.shape(), (Shape{4, 50}));
  EXPECT_NE(row(orders[0]), row(orders[1]));
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(sum(orders[i]).item<int>(), 49 * 25);
  EXPECT_EQ(vmap(vmap([](const Tensor&) { return permutation(2); }))(zeros({3, 0})).shape(), (Shape{3, 0, 2}));
}

TEST_P(Vmap, WritesInPlace) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  const auto f = [](const Tensor& a) {
    Tensor y = a * 1;
    y += a;
    y *= 2;
    const Tensor alias = y;
    y[0] += 100;  // through a view
    slice(y, 0, 1, 2).assign(a[0]);
    EXPECT_EQ(alias.version(), y.version());
    return alias;
  };
  EXPECT_EQ(row(vmap(f)(x)), (Row{104, 1, 112, 3}));
  EXPECT_EQ(row(x), (Row{1, 2, 3, 4}));
  // A view sees what is written to its base, later writes and a second view included.
  const auto views = [](const Tensor& a) {
    Tensor y = copy(a);
    const Tensor first = y[0], reversed = flip(y);
    y.assign(a * 10);
    first.assign(7);
    return std::tuple(first, reversed, y);
  };
  const auto [first, reversed, y] = vmap(views)(x);
  EXPECT_EQ(row(first), (Row{7, 7}));
  EXPECT_EQ(row(reversed), (Row{20, 7, 40, 7}));
  EXPECT_EQ(row(y), (Row{7, 20, 7, 40}));
  // An argument is a value of the function's own; a tensor like a batched one is batched.
  const auto filled = [](const Tensor& a) {
    Tensor z = zeros_like(a);
    z[1] += a[0];
    Tensor b = a;
    b.assign(0);
    return z + b;
  };
  EXPECT_EQ(row(vmap(filled)(x)), (Row{0, 1, 0, 3}));
  EXPECT_EQ(row(x), (Row{1, 2, 3, 4}));
  // An ordinary tensor can be written with what is not batched.
  Tensor count = zeros({}, DType::i64);
  vmap([&](const Tensor& a) {
    count += 1;
    return a;
  })(x);
  EXPECT_EQ(count.item<int>(), 1);
}

TEST_P(Vmap, PrintingAndLookingInside) {
  vmap([](const Tensor& a) {
    std::ostringstream out;
    out << a;
    EXPECT_EQ(out.str(), "tensor(f32[3], batched)");
    EXPECT_NE(dump_ir(exp(a)).find("exp"), dump_ir(exp(a)).size());
    EXPECT_EQ(a.sync().shape(), (Shape{3}));
    EXPECT_EQ(a.astype(DType::f64).dtype(), DType::f64);
    return a;
  })(ones({2, 3}));
}

TEST_P(Vmap, ErrorsOfAxes) {
  const Tensor x = ones({3, 2}), y = ones({4});
  const auto f = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_EQ(message<ShapeError>([&] { vmap(f)(x, y); }),
            "FM1742 ShapeError: vmap: batch sizes differ (3 and 4)\n"
            "  argument 0 f32[3, 2]   axis 0 is 3\n"
            "  argument 1 f32[4]      axis 0 is 4\n"
            "  at         HERE");
  EXPECT_EQ(message<ValueError>([&] { vmap(f, {0})(x, y); }),
            "FM1741 ValueError: vmap: 1 axes for 2 arguments\n"
            "  at   HERE\n"
            "  hint pass one axis each, or a single one for all");
  EXPECT_EQ(message<ValueError>([&] { vmap(f, unbatched)(x, y); }),
            "FM1743 ValueError: vmap: no argument is batched\n"
            "  at   HERE\n"
            "  hint set the batch axis of at least one argument");
  EXPECT_EQ(message<IndexError>([&] {
              vmap(f, {0, 1})(x, y);
            }),
            "FM1201 IndexError: vmap: axis 1 is out of range for 1 axis\n"
            "  x    f32[4]\n"
            "  at   HERE\n"
            "  hint axes go from -1 to 0");
  EXPECT_EQ(message<ValueError>([&] {
              vmap(f, 0, {0, 0})(x, x);
            }),
            "FM1741 ValueError: vmap: 2 axes for 1 result\n"
            "  at   HERE\n"
            "  hint pass one axis each, or a single one for all");
  EXPECT_EQ(message<ValueError>([&] { vmap(f, 0, unbatched)(x, x); }),
            "FM1746 ValueError: vmap: the result is batched\n"
            "  y    f32[2]   out axis is `unbatched`\n"
            "  at   HERE\n"
            "  hint give it an axis");
  EXPECT_EQ(message<IndexError>([&] { vmap(f, 0, 2)(x, x); }),
            "FM1201 IndexError: vmap: axis 2 is out of range for 2 axes\n"
            "  x    f32[3, 2]\n"
            "  at   HERE\n"
            "  hint axes go from -2 to 1");
  EXPECT_EQ(message<ValueError>([&] { vmap(f)(x, Tensor()); }),
            "FM1306 ValueError: vmap: an operand is an undefined tensor\n"
            "  at   HERE");
}

TEST_P(Vmap, ErrorsInsideSpeakOfWhatTheFunctionSees) {
  const Tensor x = ones({3, 2}), m = ones({3, 2, 5});
  EXPECT_EQ(message<ShapeError>([&] { vmap([](const Tensor& a) { return a + ones({4}); })(x); }),
            "FM1001 ShapeError: add: shapes do not broadcast (2 and 4)\n"
            "  lhs  f32[2]   axis 0 is 2\n"
            "  rhs  f32[4]   axis 0 is 4\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { vmap([](const Tensor& a) { return matmul(a, a); })(m); }),
            "FM1004 ShapeError: matmul: contracted sizes differ (5 and 2)\n"
            "  lhs  f32[2, 5]   axis 1 is 5\n"
            "  rhs  f32[2, 5]   axis 0 is 2\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { vmap([](const Tensor& a) { return bitwise_and(a, a); })(x); }),
            "FM1101 DTypeError: bitwise_and: not defined for f32\n"
            "  lhs  f32[2]\n"
            "  rhs  f32[2]\n"
            "  at   HERE");
  EXPECT_EQ(message<IndexError>([&] { vmap([](const Tensor& a) { return sum(a, 1); })(x); }),
            "FM1201 IndexError: sum: axis 1 is out of range for 1 axis\n"
            "  x    f32[2]\n"
            "  at   HERE\n"
            "  hint axes go from -1 to 0");
}

TEST_P(Vmap, ErrorsOfReadingAndWriting) {
  const Tensor x = ones({3, 2});
  EXPECT_EQ(message<UnsupportedError>([&] { vmap([](const Tensor& a) { return a * sum(a).item<float>(); })(x); }),
            "FM2005 UnsupportedError: item: a tensor inside vmap has no elements to read\n"
            "  x    f32[]\n"
            "  at   HERE\n"
            "  hint return it from the function and read it outside");
  EXPECT_EQ(message<UnsupportedError>([&] { vmap([](const Tensor& a) { return a * a.data<float>()[0]; })(x); }),
            "FM2005 UnsupportedError: data: a tensor inside vmap has no elements to read\n"
            "  x    f32[2]\n"
            "  at   HERE\n"
            "  hint return it from the function and read it outside");
  Tensor total = zeros({2});
  EXPECT_EQ(message<ValueError>([&] { vmap([&](const Tensor& a) { return total += a; })(x); }),
            "FM1745 ValueError: an in-place write of batched values to a tensor that is not batched\n"
            "  x      f32[2]\n"
            "  values f32[2]   batched\n"
            "  at     HERE\n"
            "  hint   zeros_like() of a batched tensor returns a batched one");
  EXPECT_EQ(row(total), (Row{0, 0}));
  // Also into a tensor of an outer level, and through a view.
  const Tensor y = ones({3, 4, 2});
  EXPECT_THROW(vmap([](const Tensor& a) {
                 Tensor sums = zeros_like(a[0]);
                 return vmap([&](const Tensor& b) { return sums += b; })(a);
               })(y),
               ValueError);
  EXPECT_THROW(vmap([&](const Tensor& a) { return total[0].assign(a[0]); })(x), ValueError);
  EXPECT_EQ(row(total), (Row{0, 0}));
}

TEST_P(Vmap, TensorsDoNotOutliveTheirLevel) {
  const Tensor x = ones({3, 2});
  Tensor stored;
  vmap([&](const Tensor& a) { return stored = a * 2; })(x);
  EXPECT_EQ(message<UserError>([&] { stored + 1; }),
            "FM1744 UserError: a tensor from inside vmap is used after the vmap ended\n"
            "  at   HERE\n"
            "  hint return it from the function instead of storing it");
  // Inside another vmap of the same depth it is as foreign.
  EXPECT_THROW(vmap([&](const Tensor& a) { return a + stored; })(x), UserError);
  EXPECT_THROW(vmap([&](const Tensor&) { return stored; })(x), UserError);
  EXPECT_THROW(stored.item<float>(), Error);
  EXPECT_THROW(sum(stored), UserError);
  EXPECT_EQ(stored.shape(), (Shape{2}));
}

TEST_P(Vmap, ExceptionsLeaveTheLevels) {
  const Tensor x = ones({3, 2});
  const VmapFrame* outer = nullptr;
  const auto fails = [&](const Tensor& a) {
    outer = vmap_frame;
    try {
      vmap([](const Tensor& b) -> Tensor { throw std::runtime_error("inside " + to_string(b.shape())); })(a);
    } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "inside []"); }
    EXPECT_EQ(vmap_frame, outer);
    EXPECT_THROW(a + ones({7}), ShapeError);
    EXPECT_EQ(vmap_frame, outer);
    return a + 1;
  };
  EXPECT_EQ(row(vmap(fails)(x)), Row(6, 2));
  EXPECT_NE(outer, nullptr);
}

TEST_P(Vmap, OutOfRangePositionsAreErrorsForEachElement) {
  // With one list of rows for the whole batch, row 2 of element 0 would be row 0 of element 1.
  const Tensor x = ones({3, 2}), bad = tensor({0, 2, 1});
  for (const std::int64_t wrong : {2, -3, 5}) {
    const Tensor at = tensor({std::int64_t{0}, wrong, std::int64_t{1}});
    EXPECT_THROW(vmap([](const Tensor& a, const Tensor& i) { return take(a, i); })(x, at).sync(), IndexError);
    EXPECT_THROW(vmap([](const Tensor& a, const Tensor& i) { return index_add(a, i, full({}, 1.0f)); })(x, at).sync(),
                 IndexError);
  }
}

TEST_P(Vmap, CompiledFunctions) {
  Tensor hidden = full({2}, 10.0f);
  auto f = compile([&](const Tensor& batch) { return vmap([&](const Tensor& a) { return a * 2 + hidden; })(batch); });
  const Tensor x = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}});
  EXPECT_EQ(row(f(x)), (Row{12, 14, 16, 18}));
  hidden.assign(20);
  EXPECT_EQ(row(f(x + 1)), (Row{24, 26, 28, 30}));
  // A hidden input may itself be what is batched.
  Tensor rows = tensor({1.0f, 2.0f});
  auto g = compile([&](const Tensor& b) { return vmap([&](const Tensor& a) { return a + b; })(rows); });
  EXPECT_EQ(row(g(x[0])), (Row{2, 3, 3, 4}));
  rows += 10;
  EXPECT_EQ(row(g(x[0])), (Row{12, 13, 13, 14}));
  // Draws of a replay go on where the last ones ended.
  auto draws = compile([](const Tensor& b) { return vmap([](const Tensor& a) { return a * 0 + rand({}); })(b); });
  manual_seed(3);
  Row drawn = row(draws(x[0])), again = row(draws(x[1]));
  EXPECT_NE(drawn, again);
  manual_seed(3);
  EXPECT_EQ(row(rand({2})), drawn);
  EXPECT_EQ(row(rand({2})), again);
  // Inside vmap a compiled function is part of what is batched.
  auto inner = compile([](const Tensor& a) { return sum(a * a); });
  EXPECT_EQ(row(vmap([&](const Tensor& a) { return inner(a) + inner(a + 1); })(x)), (Row{18, 66}));
  EXPECT_EQ(inner(x).item<float>(), 30);
}

TEST_P(Vmap, OperatorsFromOutsideRunInALoop) {
  Library m(Library::Kind::definition, "vmap_test");
  m.def("total(Tensor x, Tensor w) -> (Tensor, Tensor)");
  Library cpu(Library::Kind::implementation, "vmap_test", "CPU");
  cpu.impl("total", [](const Tensor& x, const Tensor& w) {
    EXPECT_FALSE(is_batched(x));
    return std::tuple(sum(x) * w, x + 1);
  });
  m.def("clear(Tensor(a!) x) -> Tensor(a!)");
  m.def("thrice(Tensor x) -> Tensor", [](const Tensor& x) { return x * 3; });
  m.pointwise<DTypeRule::floating>("cube", [](auto x) { return x * x * x; });
  const auto total =
      OperatorHandle::find("vmap_test::total").typed<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&)>();
  const auto cube = OperatorHandle::find("vmap_test::cube").typed<Tensor(const Operand&)>();
  const auto thrice = OperatorHandle::find("vmap_test::thrice").typed<Tensor(const Tensor&)>();
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}), w = tensor({1.0, 10.0});
  std::uint64_t loops = stats().vmap_loops;
  const auto [sums, more] = vmap([&](const Tensor& a, const Tensor& b) { return total(a, b); }, {0, unbatched})(x, w);
  EXPECT_EQ(row(sums), (Row{3, 30, 7, 70, 11, 110}));
  EXPECT_EQ(row(more), (Row{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(stats().vmap_loops, loops + 1);
  // Made of others, or of a formula: one call on the batch.
  EXPECT_EQ(row(vmap([&](const Tensor& a) { return thrice(cube(a)); })(x)), (Row{3, 24, 81, 192, 375, 648}));
  EXPECT_EQ(stats().vmap_loops, loops + 1);
  const Location line = Location::current();
  const auto of_none = vmap([&](const Tensor& a) { return std::get<0>(total(a, w, line)); });
  EXPECT_EQ(message<UnsupportedError>(
                [&] {
                  of_none(zeros({0, 2}));
                },
                line),
            "FM2741 UnsupportedError: vmap_test::total: vmap of a custom operator over an empty batch\n"
            "  at   HERE\n"
            "  hint its result type is known only by running it");
  const auto writes = vmap([&](const Tensor& a) {
    Stack stack{Value(a)};
    OperatorHandle::find("vmap_test::clear").call_boxed(stack, line);
    return a;
  });
  EXPECT_EQ(message<UnsupportedError>([&] { writes(x); }, line),
            "FM2742 UnsupportedError: vmap_test::clear: writes an argument in place inside vmap\n"
            "  at   HERE\n"
            "  hint use an operator that returns the new value");
}

TEST_P(Vmap, ThreadsHaveLevelsOfTheirOwn) {
  const Tensor x = random_f64({8, 16}, 0.5, 2, true, 1);
  x.sync();
  const Row expected = row(sum(exp(x), 1));
  std::vector<Row> found(4);
  {
    std::vector<std::jthread> threads;
    for (Row& result : found)
      threads.emplace_back([&result, &x, mode = GetParam()] {
        const ModeGuard guard(mode);
        for (int i = 0; i < 50; ++i) result = row(vmap([](const Tensor& a) { return sum(exp(a)); })(x));
      });
    vmap([&](const Tensor& a) {
      std::jthread([&] {
        const ModeGuard guard(GetParam());
        EXPECT_EQ(vmap_frame, nullptr);
        EXPECT_THROW(a + 1, UserError);
      });
      return a;
    })(x);
  }
  for (const Row& result : found)
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(result[i], expected[i], 1e-12);
}

}  // namespace
}  // namespace fermata
