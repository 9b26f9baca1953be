// Sharded tensors by themselves, and programs of them that train.
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Sharding : public ::testing::TestWithParam<Mode> {
 protected:
  /// fn(mesh, rank) on so many processes, in the mode of the test.
  static void on_mesh(int rows, int columns, const std::function<void(const Mesh&)>& fn) {
    distributed::simulate(rows * columns, [&](int) {
      const ModeGuard mode(GetParam());
      manual_seed(1);
      const Mesh mesh({{"data", rows}, {"model", columns}});
      fn(mesh);
    });
  }
};

TEST_P(Sharding, DividesAndGathers) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor whole = reshape(arange(32), {4, 8});
    const Tensor x = shard(whole, mesh, {"data", "model"}).sync();
    EXPECT_TRUE(is_sharded(x));
    EXPECT_EQ(sharding_of(x), "[data, model]");
    EXPECT_EQ(own_block(x).shape(), (Shape{2, 4}));
    EXPECT_EQ(own_block(x).to_vector<int>()[0], 16 * mesh.coordinate("data") + 4 * mesh.coordinate("model"));
    EXPECT_EQ(x.to_vector<int>(), whole.to_vector<int>());
    EXPECT_EQ(sharding_of(shard(x, mesh, {{}, {"data", "model"}})), "[-, data+model]");
    EXPECT_EQ(unshard(shard(x, mesh, {{}, {"data", "model"}})).to_vector<int>(), whole.to_vector<int>());
    EXPECT_EQ(sharding_of(shard(x, mesh, {"model", "data"})), "[model, data]");
    EXPECT_EQ(shard(x, mesh, {"model", "data"}).to_vector<int>(), whole.to_vector<int>());
    EXPECT_EQ(sharding_of(unshard(x)), "whole");
  });
}

TEST_P(Sharding, OpsKeepWhatCostsNothing) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor x = shard(randn({4, 8}), mesh, {"data"}), w = shard(randn({8, 6}), mesh, {{}, "model"});
    const PartitionCounts before = partition_counts();
    const Tensor y = tanh(matmul(x, w));
    EXPECT_EQ(sharding_of(y), "[data, model]");
    EXPECT_EQ(partition_counts().collectives, before.collectives);
    EXPECT_EQ(test::difference(tanh(matmul(unshard(x), unshard(w))), y), "");
  });
}

TEST_P(Sharding, ReductionsCombine) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 8});
    const Tensor x = shard(whole, mesh, {"data", "model"});
    EXPECT_EQ(test::difference(whole.sum(), x.sum()), "");
    EXPECT_EQ(test::difference(whole.max({1}), x.max({1})), "");
    EXPECT_EQ(test::difference(softmax(whole, 0), softmax(x, 0)), "");
    EXPECT_EQ(x.argmax().item<int>(), whole.argmax().item<int>());
    EXPECT_EQ((x > 10).any().item<bool>(), false);
  });
}

TEST_P(Sharding, ConstraintInAFunctionHasAGradient) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const auto loss = [&](const Tensor& w) {
      return square(shard(matmul(shard(ones({4, 3}), mesh, {"data"}), w), mesh, {"data"})).sum();
    };
    const Tensor w = randn({3, 2});
    EXPECT_EQ(test::difference(grad([&](const Tensor& v) {
                                 return square(matmul(ones({4, 3}), v)).sum();
                               })(w),
                               grad(loss)(w)),
              "");
  });
}

TEST_P(Sharding, UpdatesKeepTheSharding) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor x = shard(randn({8, 4}), mesh, {"data"});
    Tensor w = randn({4, 6}).sync(), v = shard(randn({4, 6}), mesh, {{}, "model"});
    for (int i = 0; i < 3; ++i) {
      const Tensor g = matmul(x.T(), matmul(x, w + v));
      w -= 0.01 * g, v -= 0.01 * g;
      sync({w, v});
      EXPECT_EQ(sharding_of(w), "whole");
      EXPECT_EQ(sharding_of(v), "[-, model]");
    }
  });
}

TEST_P(Sharding, WritesKeepThePlace) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    Tensor w = zeros({4, 6}).sync();
    w.requires_grad(true);
    shard_(w, mesh, {"data"});
    const Tensor from_file = randn({4, 6}).sync();
    {
      const NoGradGuard no_grad;
      w.assign(from_file);
    }
    EXPECT_EQ(sharding_of(w), "[data, -]");
    EXPECT_EQ(test::difference(from_file, w), "");
    const Tensor x = randn({3, 4}).sync();
    square(matmul(x, w)).sum().backward();
    EXPECT_EQ(test::difference(2 * matmul(x.T(), matmul(x, from_file)), w.grad()), "");
  });
}

/// A write through a view of a tensor that is placed leaves it where it is, also one of a compiled function.
TEST_P(Sharding, WritesThroughViewsKeepThePlace) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    for (const bool is_compiled : {false, true}) {
      const Tensor whole = reshape(arange(24, DType::f32), {4, 6}).sync(), row = full({6}, 50.0f).sync();
      const Tensor w = shard(whole, mesh, {"data"});
      const auto write = [w](const Tensor& r) {
        w[1].assign(r);
        w.slice(1, 2, 4).assign(full({4, 2}, -1.0f));
        return w + 0;
      };
      const auto compiled = compile(write);
      for (int i = 0; i < 3; ++i) (is_compiled ? compiled(row) : write(row)).sync();
      EXPECT_EQ(sharding_of(w), "[data, -]") << is_compiled;
      std::vector<float> want = whole.to_vector<float>();
      for (int i = 0; i < 24; ++i)
        if (i % 6 == 2 || i % 6 == 3)
          want[static_cast<std::size_t>(i)] = -1;
        else if (i / 6 == 1)
          want[static_cast<std::size_t>(i)] = 50;
      EXPECT_EQ(w.to_vector<float>(), want);
    }
  });
}

TEST_P(Sharding, BatchedAndInControlFlow) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 6}), x = shard(whole, mesh, {"data"});
    EXPECT_EQ(test::difference(vmap([](const Tensor& row) { return softmax(row) * 2; })(whole),
                               vmap([](const Tensor& row) { return softmax(row) * 2; })(x)),
              "");
    const auto f = [](const Tensor& t) {
      return cond(
          t.sum() > 0, [](const Tensor& u) { return u * 2; }, [](const Tensor& u) { return u - 1; }, t);
    };
    EXPECT_EQ(test::difference(f(whole), f(x)), "");
  });
}

TEST_P(Sharding, CompiledFunctionsTakeThem) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 6}), x = shard(whole, mesh, {"data"}), w = shard(randn({6, 2}), mesh, {});
    const auto f = compile([&](const Tensor& t) { return tanh(matmul(t, w)).sum(); });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(test::difference(tanh(matmul(whole, unshard(w))).sum(), f(x)), "");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(test::difference(tanh(matmul(whole, unshard(w))).sum(), f(whole)), "");
  });
}

TEST_P(Sharding, CompiledFunctionsReplay) {
  if (GetParam() == Mode::eager) return;
  on_mesh(2, 1, [](const Mesh& mesh) {
    int runs = 0;
    Tensor w = shard(randn({6, 2}), mesh, {});
    const auto f = compile([&](const Tensor& t) {
      ++runs;
      return std::pair(tanh(matmul(t, w)) * 2, matmul(t, w).sum({0}));
    });
    const auto check = [&](const Tensor& whole, const Tensor& x, const std::string& rows) {
      const auto [a, b] = f(x);
      EXPECT_EQ(sharding_of(a), rows);
      EXPECT_EQ(test::difference(tanh(matmul(whole, unshard(w))) * 2, a), "");
      EXPECT_EQ(test::difference(matmul(whole, unshard(w)).sum({0}), b), "");
    };
    const Tensor one = randn({4, 6}).sync(), other = randn({4, 6}).sync();
    for (int i = 0; i < 3; ++i) check(one, shard(one, mesh, {"data"}).sync(), "[data, -]");
    const int recorded = runs;
    check(other, shard(other, mesh, {"data"}).sync(), "[data, -]");
    check(other, shard(other, mesh, {"data"}), "[data, -]");  // pending
    EXPECT_EQ(runs, recorded);
    // What is sharded in another way is another program; so is what is not divided.
    for (int i = 0; i < 3; ++i) {
      check(one, shard(one, mesh, {{}, "data"}).sync(), sharding_of(f(shard(one, mesh, {{}, "data"})).first));
      check(one, one, sharding_of(f(one).first));
    }
    // Tensors that it mentions may change, also how they are sharded.
    const Tensor x = shard(one, mesh, {"data"}).sync();
    for (int i = 0; i < 3; ++i) {
      w -= 0.1 * w;
      check(one, x, "[data, -]");
    }
    shard_(w, mesh, {"data"});
    for (int i = 0; i < 3; ++i) check(one, x, sharding_of(f(x).first));
    const int before = runs;
    check(other, shard(other, mesh, {"data"}), sharding_of(f(x).first));
    EXPECT_EQ(runs, before);
  });
}

TEST_P(Sharding, CompiledFunctionsDrawAsOneProcess) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 6}).sync(), x = shard(whole, mesh, {"data"}).sync();
    const auto noisy = [](const Tensor& t) { return t * rand({4, 6}) + randn({6}); };
    const auto f = compile(noisy), g = compile(noisy);
    manual_seed(9);
    std::vector<Tensor> want;
    for (int i = 0; i < 4; ++i) want.push_back(g(whole).sync());
    manual_seed(9);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(test::difference(want[static_cast<std::size_t>(i)], f(x)), "") << i;
  });
}

TEST_P(Sharding, CompiledFunctionsOfBlocksRunEachTime) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 6}).sync();
    const auto square_blocks =
        shard_map([](auto& v) { return std::vector<Tensor>{v[0] * v[0]}; }, mesh, {{"data"}}, {{"data"}});
    const auto f = compile([&](const Tensor& t) { return square_blocks({t})[0] + 1; });
    Tensor w = shard(whole, mesh, {"data"}).sync();
    const auto g = compile([&](const Tensor& t) { return own_block(w).sum() + t; });
    for (int i = 1; i < 4; ++i) {
      const Tensor scaled = (whole * i).sync();
      EXPECT_EQ(test::difference(scaled * scaled + 1, f(scaled)), "");
      EXPECT_EQ(test::difference(scaled * scaled + 1, f(shard(scaled, mesh, {"data"}))), "");
      w = shard(scaled, mesh, {"data"}).sync();
      const std::int64_t begin = 2 * mesh.coordinate("data");
      EXPECT_EQ(test::difference(scaled.slice(0, begin, begin + 2).sum() + 1, g(full({}, 1.0))), "");
    }
  });
}

TEST_P(Sharding, ShardMap) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor whole = randn({4, 6});
    const auto f = shard_map(
        [&](const std::vector<Tensor>& blocks) {
          EXPECT_EQ(blocks[0].shape(), (Shape{2, 6}));
          return std::vector<Tensor>{
              blocks[0] * 2,
              distributed::all_reduce(blocks[0].sum({0}), distributed::Reduction::sum, mesh.group("data"))};
        },
        mesh, {{"data"}}, {{"data"}, {}});
    const std::vector<Tensor> results = f({whole});
    EXPECT_EQ(test::difference(whole * 2, results[0]), "");
    EXPECT_EQ(test::difference(whole.sum({0}), results[1]), "");
  });
}

TEST_P(Sharding, GradientsGoThroughShardMap) {
  on_mesh(2, 2, [](const Mesh& mesh) {
    const Tensor x = randn({4, 6}).sync(), w = randn({6, 8}).sync(), scale = randn({8}).sync();
    const auto whole = [](const Tensor& a, const Tensor& b, const Tensor& c) {
      const Tensor y = tanh(matmul(a, b)) * c;
      return (y * y).sum() + y.sum({0}).max();
    };
    // Rows along "data", columns of the weight along "model": the contraction needs nothing, the sums do.
    const auto mapped = shard_map(
        [&](const std::vector<Tensor>& v) {
          const Tensor y = tanh(matmul(v[0], v[1])) * v[2];
          const Tensor columns = distributed::all_reduce(y.sum({0}), distributed::Reduction::sum, mesh.group("data"));
          return std::vector<Tensor>{y, columns};
        },
        mesh, {{"data"}, {{}, "model"}, {"model"}}, {{"data", "model"}, {"model"}});
    const auto loss = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      const std::vector<Tensor> r = mapped({a, b, c});
      return (r[0] * r[0]).sum() + r[1].max();
    };
    std::vector<std::vector<Tensor>> found;
    for (const bool is_mapped : {false, true}) {
      const std::vector<Tensor> leaves{copy(x).requires_grad(true), copy(w).requires_grad(true),
                                       copy(scale).requires_grad(true)};
      const Tensor value = is_mapped ? loss(leaves[0], leaves[1], leaves[2]) : whole(leaves[0], leaves[1], leaves[2]);
      value.backward();
      found.push_back({value, leaves[0].grad(), leaves[1].grad(), leaves[2].grad()});
    }
    for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_EQ(test::difference(found[0][i], found[1][i]), "") << i;
    // Equal blocks of all processes: a gradient is counted once.
    const Tensor leaf = copy(scale).requires_grad(true);
    shard_map([](const std::vector<Tensor>& v) { return std::vector<Tensor>{v[0] * v[0]}; }, mesh, {{}},
              {{}})({leaf})[0]
        .sum()
        .backward();
    EXPECT_EQ(test::difference(2 * scale, leaf.grad()), "");
    // And blocks by hand.
    const Tensor rows = copy(x).requires_grad(true);
    const Tensor block = own_block(shard(rows, mesh, {"data"}));
    (from_blocks(exp(block), mesh, {"data"}) * x).sum().backward();
    EXPECT_EQ(test::difference(exp(x) * x, rows.grad()), "");
  });
}

TEST_P(Sharding, BlocksExchangeHalosAndHaveGradients) {
  on_mesh(3, 1, [](const Mesh& mesh) {
    const auto group = mesh.group("data");
    const auto step = [](const Tensor& x, const Tensor& above, const Tensor& below, const Tensor& rate) {
      const Tensor wide = concat({above, x, below}, 0);
      const std::int64_t n = x.size(0);
      return x + rate * (wide.slice(0, 0, n) + wide.slice(0, 2, n + 2) - 2 * x);
    };
    const auto mapped = shard_map(
        [&](const std::vector<Tensor>& v) {
          Tensor x = v[0];
          for (int i = 0; i < 3; ++i) {  // both exchanges of a step are pending together
            const std::int64_t n = x.size(0);
            x = step(x, distributed::shift(x.slice(0, n - 1), 1, true, group),
                     distributed::shift(x.slice(0, 0, 1), -1, true, group), v[1]);
          }
          return std::vector<Tensor>{x};
        },
        mesh, {{"data"}, {}}, {{"data"}});
    const Tensor start = randn({6, 4}).sync();
    std::vector<std::vector<Tensor>> found;
    for (const bool is_mapped : {false, true}) {
      const Tensor x = copy(start).requires_grad(true), rate = full({}, 0.1).requires_grad(true);
      Tensor y = x;
      if (is_mapped)
        y = mapped({x, rate})[0];
      else
        for (int i = 0; i < 3; ++i) y = step(y, y.slice(0, 5), y.slice(0, 0, 1), rate);
      (y * y).sum().backward();
      found.push_back({y, x.grad(), rate.grad()});
    }
    for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_EQ(test::difference(found[0][i], found[1][i]), "") << i;
  });
}

// ---- Training

struct Mlp {
  Tensor w1, b1, w2, b2;
  Tensor forward(const Tensor& x) const { return matmul(gelu(matmul(x, w1) + b1), w2) + b2; }
};
Mlp make_mlp() {
  manual_seed(3);
  Mlp m{randn({6, 16}) * 0.4, zeros({16}), randn({16, 4}) * 0.3, zeros({4})};
  for (Tensor* t : {&m.w1, &m.b1, &m.w2, &m.b2}) t->sync(), t->requires_grad(true);
  return m;
}

/// The losses of a few steps; `divide` places what it likes.
template <class Divide> std::vector<double> train(Divide&& divide) {
  Mlp model = make_mlp();
  optim::Adam adam(std::vector<Tensor>{model.w1, model.b1, model.w2, model.b2}, {.learning_rate = 0.02});
  Tensor x = randn({12, 6}).sync(), labels = randint(0, 4, {12}).sync();
  divide(model, x, labels, adam);
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    const Tensor loss = cross_entropy(model.forward(x), labels);
    adam.zero_grad();
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}
std::vector<double> train_alone() {
  return train([](Mlp&, Tensor&, Tensor&, optim::Adam&) {});
}
void expect_close(const std::vector<double>& want, const std::vector<double>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6 * std::max(1.0, std::abs(want[i])));
}

TEST_P(Sharding, DataParallelTraining) {
  std::vector<double> want;
  {
    const ModeGuard mode(GetParam());
    want = train_alone();
  }
  for (const int n : {2, 3}) {
    on_mesh(n, 1, [&](const Mesh& mesh) {
      expect_close(want, train([&](Mlp&, Tensor& x, Tensor& labels, optim::Adam&) {
                     x = shard(x, mesh, {"data"}), labels = shard(labels, mesh, {"data"});
                   }));
      EXPECT_EQ(partition_counts().gathered_calls, 0u);
    });
  }
}

TEST_P(Sharding, TensorParallelTraining) {
  std::vector<double> want;
  {
    const ModeGuard mode(GetParam());
    want = train_alone();
  }
  on_mesh(2, 2, [&](const Mesh& mesh) {
    Mlp kept;
    expect_close(want, train([&](Mlp& m, Tensor& x, Tensor& labels, optim::Adam&) {
                   x = shard(x, mesh, {"data"}), labels = shard(labels, mesh, {"data"});
                   shard_(m.w1, mesh, {{}, "model"}), shard_(m.b1, mesh, {"model"}), shard_(m.w2, mesh, {"model"});
                   kept = m;
                 }));
    EXPECT_EQ(sharding_of(kept.w1), "[-, model]");
    EXPECT_EQ(sharding_of(kept.b1), "[model]");
    EXPECT_EQ(sharding_of(kept.w2), "[model, -]");
  });
}

TEST_P(Sharding, CompiledTrainingSteps) {
  const auto train_compiled = [](auto&& divide, int& runs) {
    Mlp model = make_mlp();
    optim::Adam adam(std::vector<Tensor>{model.w1, model.b1, model.w2, model.b2}, {.learning_rate = 0.02});
    Tensor x = randn({12, 6}).sync(), labels = randint(0, 4, {12}).sync();
    divide(model, x, labels);
    const auto step = compile([&](const Tensor& inputs, const Tensor& targets) {
      ++runs;
      const Tensor loss = cross_entropy(model.forward(inputs), targets);
      adam.zero_grad();
      loss.backward();
      adam.step();
      return loss.detach();
    });
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(step(x, labels).template item<double>());
    return losses;
  };
  std::vector<double> want;
  int alone = 0;
  {
    const ModeGuard mode(GetParam());
    want = train_compiled([](Mlp&, Tensor&, Tensor&) {}, alone);
  }
  on_mesh(2, 2, [&](const Mesh& mesh) {
    int runs = 0;
    expect_close(want, train_compiled(
                           [&](Mlp&, Tensor& x, Tensor& labels) {
                             x = shard(x, mesh, {"data"}), labels = shard(labels, mesh, {"data"});
                           },
                           runs));
    EXPECT_EQ(runs, alone);
    runs = 0;
    expect_close(want,
                 train_compiled(
                     [&](Mlp& m, Tensor& x, Tensor& labels) {
                       x = shard(x, mesh, {"data"}), labels = shard(labels, mesh, {"data"});
                       shard_(m.w1, mesh, {{}, "model"}), shard_(m.b1, mesh, {"model"}), shard_(m.w2, mesh, {"model"});
                     },
                     runs));
    EXPECT_LE(runs, alone + 2);  // the state of the optimizer follows the gradients
  });
}

TEST_P(Sharding, ShardedOptimizerState) {
  std::vector<double> want;
  {
    const ModeGuard mode(GetParam());
    want = train_alone();
  }
  on_mesh(2, 1, [&](const Mesh& mesh) {
    std::vector<Tensor> states;
    Mlp kept;
    expect_close(want, train([&](Mlp& m, Tensor& x, Tensor& labels, optim::Adam& adam) {
                   x = shard(x, mesh, {"data"}), labels = shard(labels, mesh, {"data"});
                   for (const Tensor& p : {m.w1, m.b1, m.w2, m.b2}) shard_(p, mesh, {});
                   for (const Tensor& t : adam.state())
                     if (t.rank() > 0 && t.size(0) % 2 == 0) shard_(t, mesh, {"data"}), states.push_back(t);
                   kept = m;
                 }));
    EXPECT_EQ(states.size(), 8u);
    for (const Tensor& t : states) EXPECT_THAT(sharding_of(t), HasSubstr("data"));
    EXPECT_EQ(sharding_of(kept.w1), "[-, -]");
  });
}

// ---- explain

TEST_P(Sharding, ExplainShowsShardingsAndCollectives) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    if (mode() == Mode::eager) return;
    const Tensor x = shard(ones({4, 8}), mesh, {"data"});
    const Tensor y = (x * 2).sum({0});
    const std::string text = explain(y);
    EXPECT_THAT(text, HasSubstr("partitioned over the mesh data 2, model 1\n"));
    EXPECT_THAT(text, HasSubstr("[data, -]"));
    EXPECT_THAT(text, HasSubstr("all_reduce     along data"));
    EXPECT_THAT(text, HasSubstr("sum of the partial results of sum"));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Sharding, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

// ---- Errors

template <class E, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) { return error.what(); }
  return "no error";
}

TEST(ShardingErrors, SayWhatDoesNotFit) {
  distributed::simulate(2, [](int) {
    EXPECT_THAT(message_of<ValueError>([] {
                  Mesh({{"data", 3}});
                }),
                HasSubstr("FM7101 ValueError: Mesh: the product of its sizes is 3, but there are 2"));
    EXPECT_THAT(message_of<ValueError>([] {
                  Mesh({{"data", 2}, {"data", 1}});
                }),
                HasSubstr("FM7101 ValueError: Mesh: duplicate axis name data"));
    const Mesh mesh({{"data", 2}, {"model", 1}});
    const Tensor x = ones({4, 3});
    EXPECT_THAT(message_of<ValueError>([&] { shard(x, mesh, {"rows"}); }),
                HasSubstr("FM7102 ValueError: the mesh has no axis rows"));
    EXPECT_THAT(message_of<ValueError>([&] {
                  shard(x, mesh, {"data", "data"});
                }),
                HasSubstr("FM7103 ValueError: shard: data is named twice"));
    EXPECT_THAT(message_of<ValueError>([&] {
                  shard(x, mesh, {{"model", "data"}});
                }),
                HasSubstr("FM7103 ValueError: shard: data is not in the order of the mesh"));
    EXPECT_THAT(message_of<ValueError>([&] {
                  shard(x, mesh, {{}, {}, "data"});
                }),
                HasSubstr("FM7104 ValueError: shard: 3 splits for 2 axes"));
    const Mesh other({{"data", 2}});
    const Tensor a = shard(x, mesh, {"data"}), b = shard(x, other, {"data"});
    EXPECT_THAT(message_of<ValueError>([&] { (a + b).sync(); }),
                HasSubstr("FM7108 ValueError: one computation uses tensors of two meshes"));
    EXPECT_THAT(message_of<ValueError>([&] {
                  shard_map([](auto& v) { return v; }, mesh, {{}}, {{}})({x, x});
                }),
                HasSubstr("FM7107 ValueError: shard_map: 2 arguments for 1 shardings"));
    EXPECT_EQ((a + 1).sum().item<double>(), 24);  // and all goes on
  });
}

TEST(ShardingErrors, OfProcessesThatRunDifferentPrograms) {
  EXPECT_THAT(message_of<CollectiveError>(
                  [] { distributed::simulate(2, [](int rank) { distributed::all_reduce(ones({3 + rank})).sync(); }); }),
              AnyOf(StartsWith("FM7111 CollectiveError: all_reduce: another rank calls all_reduce of 4 elements, this "
                               "one of 3\n  at   sharding/sharding_test.cpp:"),
                    StartsWith("FM7111 CollectiveError: all_reduce: another rank calls all_reduce of 3 elements, this "
                               "one of 4\n  at   sharding/sharding_test.cpp:")));
  EXPECT_THAT(message_of<CollectiveError>([] {
                distributed::simulate(2, [](int rank) {
                  if (rank == 0) distributed::all_reduce(ones({3})).sync();
                });
              }),
              StartsWith("FM7110 CollectiveError: rank 1 has exited while others wait for it\n"
                         "  at   sharding/sharding_test.cpp:"));
}

TEST(ShardingErrors, OfAMeshThatIsNoMore) {
  const ModeGuard compiled(Mode::compiled);
  Tensor y;
  {
    const Mesh mesh({{"data", 1}});
    const Tensor x = shard(ones({4}), mesh, {"data"});
    y = shard(x + 1, mesh, {"data"}) * 2;
  }
  EXPECT_EQ(message_of<UserError>([&] { y.sync(); }),
            "FM7106 UserError: a constraint refers to a mesh that no longer exists\n"
            "  hint keep the mesh alive as long as the calls recorded with it");
}

TEST(ShardingErrors, OfBlocksInFunctionsThatAreCaptured) {
  const ModeGuard compiled(Mode::compiled);
  const Mesh mesh({{"data", 1}});
  const Tensor x = shard(ones({4}), mesh, {"data"}).sync();
  EXPECT_THAT(message_of<UnsupportedError>([&] {
                fori_loop(
                    0, 2, [&](const Tensor&, const Tensor& t) { return t + own_block(x); }, ones({4}))
                    .sync();
              }),
              StartsWith("FM7112 UnsupportedError: own_block: blocks do not exist while a function is captured\n"
                         "  at   sharding/sharding_test.cpp:"));
}

TEST(ShardingErrors, OfOneProcessEndTheOthers) {
  EXPECT_THAT(message_of<ValueError>([] {
                distributed::simulate(3, [](int rank) {
                  const Mesh mesh({{"data", 3}});
                  if (rank == 1) throw ValueError(1300, "FM1300 of this one");
                  shard(ones({3}), mesh, {"data"}).sum().item<double>();
                });
              }),
              HasSubstr("of this one"));
}

TEST(ShardingErrors, AWorldOfOneRunsTheSameProgram) {
  const Mesh mesh({{"data", 1}});
  const Tensor x = shard(ones({4, 3}), mesh, {"data"});
  EXPECT_EQ((x * 2).sum().item<double>(), 24);
}

}  // namespace
}  // namespace fermata
