// Trees as arguments and results: of compile, gradients, vmap, checkpoint, control flow, optimizers and traces, in both
// modes.
#include "fermata/tensor_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fermata/fermata.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return x.to_vector<float>(); }

enum class Activation { none, relu };

struct Layer {
  Tensor weight, bias;
};
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Tensor> norms;
  std::array<Tensor, 2> ends;
  std::optional<Tensor> scale;
  double rate = 1;
  Activation activation = Activation::none;
  std::string name;
};
class Named {
 public:
  Named() = default;
  Named(Tensor a, Tensor b) : first_(std::move(a)), second_(std::move(b)) {}
  FERMATA_TREE(first_, second_)
  const Tensor& first() const { return first_; }
  const Tensor& second() const { return second_; }

 private:
  Tensor first_, second_;
};
struct Sixteen {
  Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct WithOptions {
  Tensor x;
  std::optional<double> low, high;
  std::optional<Tensor> mask;
  Tensor y;
};
static_assert(detail::member_count<Layer>() == 2);
static_assert(detail::member_count<Model>() == 7);
static_assert(detail::member_count<Sixteen>() == 16);
static_assert(detail::member_count<WithOptions>() == 5);
static_assert(detail::is_plain_tree<Model>() && detail::is_plain_tree<Named>() && detail::is_plain_tree<WithOptions>());
static_assert(!detail::is_plain_tree<std::pair<Tensor, void*>>() && !detail::is_plain_tree<std::vector<const char*>>());

Model make_model() {
  return {.layers = {{tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}), tensor({0.5f, -0.5f})},
                     {tensor({{2.0f, 0.0f}, {0.0f, 2.0f}}), {}}},
          .norms = {{"a", tensor({1.0f, 2.0f})}, {"b", tensor({3.0f, 1.0f})}},
          .ends = {tensor({1.0f}), tensor({2.0f})},
          .scale = tensor({3.0f}),
          .rate = 2,
          .activation = Activation::relu,
          .name = "net"};
}
Tensor apply(const Model& m, Tensor x) {
  for (const Layer& l : m.layers) {
    x = matmul(x, l.weight);
    if (l.bias.defined()) x = x + l.bias;
    if (m.activation == Activation::relu) x = relu(x);
  }
  for (const auto& [name, norm] : m.norms) x = x * norm + static_cast<double>(name.size());
  x = x * m.ends[0] + m.ends[1];
  return (m.scale ? x * *m.scale : x) * m.rate;
}

class Trees : public ::testing::TestWithParam<Mode> {
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Trees, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Trees, AreVisitedInOrder) {
  const Model m = make_model();
  EXPECT_EQ(tensors_in(m).size(), 9u);
  EXPECT_EQ(defined_tensors_in(m).size(), 8u);
  EXPECT_EQ(floats(tensors_in(m)[4]), (Floats{1, 2}));
  int order = 0;
  Sixteen s;
  each_tensor(s, [&](Tensor& x) { x = full({}, order++); });
  EXPECT_EQ(s.a.item<int>(), 0);
  EXPECT_EQ(s.p.item<int>(), 15);
  const Named named(tensor({1.0f}), tensor({2.0f}));
  EXPECT_EQ(floats(with_tensors(named, {tensor({3.0f}), tensor({4.0f})}).second()), (Floats{4}));
}

TEST_P(Trees, AreArgumentsOfCompiledFunctions) {
  auto f = compile([](const Model& m, const std::vector<Tensor>& xs) { return apply(m, xs[0] + xs[1]); });
  Model m = make_model();
  const std::vector<Tensor> xs{tensor({1.0f, 2.0f}), tensor({0.5f, 0.25f})};
  std::size_t captures = 0;
  const auto check = [&](bool is_new) {
    captures += is_new && GetParam() == Mode::compiled ? 1 : 0;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(floats(f(m, xs)), floats(apply(m, xs[0] + xs[1])));
    EXPECT_EQ(f.captures(), captures);
  };
  check(true);
  m.layers[0].weight = m.layers[0].weight * 2;
  check(false);
  m.rate = 3, check(true);
  m.activation = Activation::none, check(true);
  m.scale.reset(), check(true);
  m.layers[1].bias = tensor({1.0f, 1.0f}), check(true);
  m.layers.pop_back(), check(true);
  m.norms.erase("b"), check(true);
  m.name = "another net with a longer name", check(true);
  m.name = "net", m.rate = 2, check(true);
}

struct Outcome {
  Tensor loss;
  std::map<std::string, Tensor> parts;
  int count = 0;
  std::optional<Tensor> rest, none;
  Tensor empty;
};

TEST_P(Trees, AreResultsOfCompiledFunctions) {
  auto f = compile([](const Tensor& x) {
    return Outcome{sum(x), {{"doubled", x * 2}, {"same", x}}, 7, x - 1, {}, {}};
  });
  auto nested = compile([](const Tensor& x) { return std::vector{std::pair(x, 1.5), std::pair(x + 1, 2.5)}; });
  auto number = compile([](const Tensor& x) { return static_cast<double>(x.size(0)); });
  auto layers = compile([](const std::vector<Layer>& of) {
    std::vector<Layer> out;
    for (const Layer& l : of) out.push_back({l.weight + 1, l.bias});
    return out;
  });
  for (float value = 1; value < 5; ++value) {
    const Tensor x = tensor({value, 2.0f});
    const Outcome out = f(x);
    EXPECT_EQ(out.loss.item<float>(), value + 2);
    EXPECT_EQ(floats(out.parts.at("doubled")), (Floats{2 * value, 4}));
    EXPECT_EQ(floats(out.parts.at("same")), (Floats{value, 2}));
    EXPECT_EQ(out.count, 7);
    EXPECT_EQ(floats(*out.rest), (Floats{value - 1, 1}));
    EXPECT_FALSE(out.none.has_value());
    EXPECT_FALSE(out.empty.defined());
    const auto pairs = nested(x);
    ASSERT_EQ(pairs.size(), 2u);
    EXPECT_EQ(pairs[1].second, 2.5);
    EXPECT_EQ(floats(pairs[1].first), (Floats{value + 1, 3}));
    EXPECT_EQ(number(x), 2);
    const auto more = layers(std::vector<Layer>{{x, {}}, {x, x}});
    EXPECT_EQ(floats(more[1].weight), (Floats{value + 1, 3}));
    EXPECT_FALSE(more[0].bias.defined());
  }
}

TEST_P(Trees, NumbersOfResultsAreChecked) {
  int calls = 0;
  auto f = compile([&](const Tensor& x) { return std::pair(x + 1, ++calls); });
  f(ones({2}));
  if (GetParam() == Mode::eager) return;
  EXPECT_EQ(
      testing::message_without_place<UserError>([&] { f(ones({2})); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: the other values in "
      "its result differ\n  hint it depends on a value that is not an argument; pass it as an argument, a tensor or "
      "an fm::Setting");
}

TEST_P(Trees, AreDifferentiated) {
  const Model m = make_model();
  const Tensor x = tensor({1.0f, 2.0f});
  const auto loss = [&](const Model& at) { return sum(apply(at, x)); };
  const Model g = grad(loss)(m);
  EXPECT_EQ(g.layers.size(), 2u);
  EXPECT_FALSE(g.layers[1].bias.defined());
  EXPECT_EQ(floats(g.layers[0].bias), floats(grad([&](const Tensor& bias) {
              Model with = m;
              with.layers[0].bias = bias;
              return loss(with);
            })(m.layers[0].bias)));
  EXPECT_EQ(floats(g.norms.at("b")), floats(pullback(loss, m).second(ones({})).norms.at("b")));
  const auto [value, slope] = jvp(loss, m, g);
  float dot = 0;
  for (const Tensor& t : defined_tensors_in(g)) dot += sum(t * t).item<float>();
  EXPECT_FLOAT_EQ(slope.item<float>(), dot);
  struct Loss {
    Tensor value;
    Named details;
  };
  const auto [out, gradient] = value_and_grad([](const Named& n) {
    return Loss{sum(n.first() * n.second()), n};
  })(Named(x, x * 2));
  EXPECT_EQ(out.value.item<float>(), 10);
  EXPECT_EQ(floats(out.details.second()), (Floats{2, 4}));
  EXPECT_EQ(floats(gradient.first()), (Floats{2, 4}));
}

TEST_P(Trees, MayCountWhereTheyAreDifferentiated) {
  struct Counted {
    Tensor weight, steps;
    std::vector<Tensor> index;
  };
  const Counted m{tensor({1.0f, 2.0f, 3.0f}), arange(1), {tensor({0, 2})}};
  const auto loss = [](const Counted& at) { return sum(square(take(at.weight, at.index[0]))) + at.steps[0]; };
  const auto [value, gradient] = value_and_grad(loss)(m);
  EXPECT_EQ(value.item<float>(), 10);
  EXPECT_EQ(floats(gradient.weight), (Floats{2, 0, 6}));
  EXPECT_FALSE(gradient.steps.defined());
  EXPECT_FALSE(gradient.index[0].defined());
  EXPECT_EQ(floats(compile(grad(loss))(m).weight), (Floats{2, 0, 6}));
  EXPECT_THROW(grad([](const Tensor& x) { return sum(x); })(arange(3)), GradientError);  // all that there is
}

TEST_P(Trees, AreBatched) {
  struct Pair {
    Tensor sum;
    std::vector<Tensor> parts;
  };
  const Layer batch{tensor({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}}), {}};
  const auto f = [](const Layer& l, const std::map<std::string, Tensor>& shared) {
    return Pair{sum(l.weight), {l.weight * shared.at("by"), l.weight}};
  };
  const Pair out =
      vmap(f, {0, unbatched}, {0, -1})(batch, std::map<std::string, Tensor>{{"by", tensor({10.0f, 100.0f})}});
  EXPECT_EQ(floats(out.sum), (Floats{3, 7, 11}));
  EXPECT_EQ(out.parts[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(floats(out.parts[0]), (Floats{10, 30, 50, 200, 400, 600}));
  const auto per_sample = vmap(grad([](const Layer& l) { return sum(square(l.weight)); }))(batch);
  EXPECT_EQ(floats(per_sample.weight), (Floats{2, 4, 6, 8, 10, 12}));
}

TEST_P(Trees, AreCheckpointedAndLoopedOver) {
  const Model m = make_model();
  const Tensor x = tensor({1.0f, 2.0f});
  const auto block = [](const Model& at, const Tensor& v) { return Outcome{sum(apply(at, v)), {}, 1, v * 2, {}, {}}; };
  const auto slope = [&](const auto& f) { return grad([&](const Model& at) { return f(at, x).loss; })(m); };
  EXPECT_EQ(floats(slope(checkpoint(block)).layers[0].weight), floats(slope(block).layers[0].weight));
  EXPECT_EQ(floats(*checkpoint(block)(m, x).rest), (Floats{2, 4}));
  const Layer looped = fori_loop(
      0, 3,
      [](const Tensor&, const Layer& l) {
        return Layer{l.weight * 2, l.bias + l.weight};
      },
      Layer{x, x});
  EXPECT_EQ(floats(looped.weight), (Floats{8, 16}));
  EXPECT_EQ(floats(looped.bias), (Floats{8, 16}));
}

TEST_P(Trees, AreTrainedAndTraced) {
  Model m = make_model();
  const Tensor x = tensor({1.0f, 2.0f});
  const float before = sum(apply(m, x)).item<float>();
  optim::SGD sgd(m, {.learning_rate = 0.001});
  EXPECT_EQ(sgd.parameters().size(), 8u);
  optim::AdamW adam(m.layers[0]);
  Layer only = m.layers[0];
  adam.step(grad([&](const Layer& l) { return sum(matmul(x, l.weight) + l.bias); })(only));
  const Model g = grad([&](const Model& at) { return sum(apply(at, x)); })(m);
  sgd.step(defined_tensors_in(g));
  EXPECT_LT(sum(apply(m, x)).item<float>(), before);
  const Trace t = trace(
      [](const Layer& l, const Tensor& v) {
        return std::map<int, Tensor>{{1, v * l.weight}, {2, v + l.bias}};
      },
      Layer{x * 1, x * 2}, x);
  EXPECT_EQ(t.results.size(), 2u);
}

}  // namespace
}  // namespace fermata
