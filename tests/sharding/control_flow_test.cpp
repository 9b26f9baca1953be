// Functions of control flow on sharded tensors, compared with one process, on every mesh.
#include <fermata/control_flow.h>
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ShardedFunctions : public ::testing::TestWithParam<std::tuple<test::MeshCase, bool>> {
 protected:
  /// fn(mesh) on all processes of the mesh, in compiled mode.
  static void on_mesh(const std::function<void(const Mesh&)>& fn) {
    const auto [mesh, are_cheap] = GetParam();
    distributed::simulate(mesh.processes(), [&, mesh = mesh, are_cheap = are_cheap](int) {
      const ModeGuard mode(Mode::compiled);
      std::optional<test::CheapTransfers> cheap;
      if (are_cheap) cheap.emplace();
      manual_seed(1);
      fn(Mesh({{"data", mesh.rows}, {"model", mesh.columns}}));
    });
  }
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  /// The same function of whole tensors and of sharded ones. What was gathered because it has no rule, and collectives.
  static PartitionCounts expect_same(const Mesh& mesh, const Function& f, const std::vector<Tensor>& whole,
                                     const std::vector<AxisSplits>& splits) {
    std::vector<Tensor> divided;
    for (std::size_t i = 0; i < whole.size(); ++i) divided.push_back(shard(whole[i], mesh, splits[i]).sync());
    const std::vector<Tensor> want = f(whole);
    sync(want);
    PartitionCounts before = partition_counts();
    const std::vector<Tensor> got = f(divided);
    sync(got);
    PartitionCounts after = partition_counts();
    after.collectives -= before.collectives, after.gathered_calls -= before.gathered_calls;
    after.partitions -= before.partitions, after.cached -= before.cached;
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(test::difference(want[i], got[i]), "") << "result " << i;
    return after;
  }
  /// And gradients with respect to all arguments.
  static Function with_gradients(const Function& f) {
    return [f](const std::vector<Tensor>& given) {
      std::vector<Tensor> leaves;
      for (const Tensor& t : given) leaves.push_back(t.detach().requires_grad(true));
      std::vector<Tensor> results = f(leaves);
      Tensor loss = full({}, 0.0);
      for (const Tensor& y : results) loss = loss + square(y).mean();
      loss.backward();
      std::vector<Tensor> all;
      for (const Tensor& y : results) all.push_back(y.detach());
      for (const Tensor& t : leaves)
        if (t.grad().defined()) all.push_back(t.grad());
      return all;
    };
  }

  static std::vector<Tensor> recurrence(const std::vector<Tensor>& v) {
    const Tensor w = v[2], u = v[3];
    auto [last, all] = scan(
        [w, u](const Tensor& h, const Tensor& x) {
          const Tensor next = tanh(matmul(h, w) + matmul(x, u));
          return std::pair(next, next * 2);
        },
        v[0], v[1]);
    return {last, all};
  }
  static std::vector<Tensor> of_recurrence() {
    return {randn({12, 24}).sync(), randn({5, 12, 6}).sync(), (randn({24, 24}) * 0.3).sync(),
            (randn({6, 24}) * 0.3).sync()};
  }
};

TEST_P(ShardedFunctions, ScanAlongABatchNeedsNothing) {
  on_mesh([](const Mesh& mesh) {
    const PartitionCounts counts = expect_same(mesh, recurrence, of_recurrence(), {{"data"}, {{}, "data"}, {}, {}});
    EXPECT_EQ(counts.gathered_calls, 0u);
    if (!std::get<bool>(GetParam())) { EXPECT_EQ(counts.collectives, 0u); }
  });
}

TEST_P(ShardedFunctions, ScanOfWhateverIsDivided) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole = of_recurrence();
    for (const std::vector<AxisSplits>& splits : std::vector<std::vector<AxisSplits>>{
             {{}, {{}, "data"}, {}, {}},                                       // the carry follows the sequence
             {{"data"}, {{}, {}, {}}, {}, {}},                                 // and the other way around
             {{"data", "model"}, {{}, "data"}, {{}, "model"}, {{}, "model"}},  // columns of the state
             {{}, {}, {"model"}, {"model"}},                                   // parts of what is contracted
             {{{}, "model"}, {{}, {}, {}}, {"data", "model"}, {}}}) {
      const PartitionCounts counts = expect_same(mesh, recurrence, whole, splits);
      EXPECT_EQ(counts.gathered_calls, 0u);
      expect_same(mesh, with_gradients(recurrence), whole, splits);
    }
  });
}

TEST_P(ShardedFunctions, SequencesDividedAlongTheScannedAxis) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 6}).sync(), randn({12, 12, 6}).sync()};
    const auto f = [](const std::vector<Tensor>& v) {
      auto [last, all] =
          scan([](const Tensor& h, const Tensor& x) { return std::pair(tanh(h + x), h * x); }, v[0], v[1]);
      return std::vector<Tensor>{last, all};
    };
    EXPECT_EQ(expect_same(mesh, f, whole, {{}, {"data"}}).gathered_calls, 0u);
    expect_same(mesh, with_gradients(f), whole, {{}, {"data", {}, "model"}});
    expect_same(mesh, with_gradients(f), whole, {{"data"}, {"model", "data"}});
  });
}

TEST_P(ShardedFunctions, CondAgreesOnResults) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 12}).sync(), randn({12, 12}).sync()};
    for (const double limit : {-1e9, 1e9}) {
      const auto f = [limit](const std::vector<Tensor>& v) {
        return cond(
            v[0].sum() > limit,
            [](const Tensor& a, const Tensor& b) {
              return std::vector<Tensor>{a * 2, matmul(a, b)};
            },
            [](const Tensor& a, const Tensor& b) {
              return std::vector<Tensor>{b - 1, matmul(b, a) + 1};
            },
            v[0], v[1]);
      };
      for (const std::vector<AxisSplits>& splits : std::vector<std::vector<AxisSplits>>{
               {{"data"}, {"data"}}, {{"data"}, {{}, "model"}}, {{"data", "model"}, {}}}) {
        EXPECT_EQ(expect_same(mesh, f, whole, splits).gathered_calls, 0u);
        expect_same(mesh, with_gradients(f), whole, splits);
      }
    }
    const auto one = [](const std::vector<Tensor>& v) {
      return std::vector<Tensor>{cond(
          v[0].sum() > v[1].sum(), [](const Tensor& t) { return t * 2; }, [](const Tensor& t) { return t - 1; }, v[0])};
    };
    expect_same(mesh, with_gradients(one), whole, {{"data"}, {{}, "model"}});
  });
}

TEST_P(ShardedFunctions, WhileLoopTestsWhatAllProcessesHave) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{(rand({12, 6}) + 0.5).sync(), (rand({6}) + 1).sync()};
    const auto f = [](const std::vector<Tensor>& v) {
      const Tensor x = v[0], scale = v[1];
      auto [steps, root] = while_loop([x](const Tensor&, const Tensor& r) { return max(abs(r * r - x)) > 1e-4; },
                                      [x, scale](const Tensor& n, const Tensor& r) {
                                        return std::tuple(n + 1, (r + x / r) * 0.5 * (scale / scale));
                                      },
                                      std::tuple(full({}, 0), ones_like(x)));
      return std::vector<Tensor>{steps, root};
    };
    for (const std::vector<AxisSplits>& splits :
         std::vector<std::vector<AxisSplits>>{{{"data"}, {}}, {{"data", "model"}, {}}, {{}, {"model"}}})
      EXPECT_EQ(expect_same(mesh, f, whole, splits).gathered_calls, 0u);
  });
}

TEST_P(ShardedFunctions, ForiLoopAndFunctionsInFunctions) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 12}).sync(), (randn({12, 12}) * 0.2).sync()};
    const auto power = [](const std::vector<Tensor>& v) {
      const Tensor m = v[1];
      return std::vector<Tensor>{fori_loop(
          0, 4, [m](const Tensor& i, const Tensor& p) { return matmul(p, m) + i; }, v[0])};
    };
    const auto nested = [](const std::vector<Tensor>& v) {
      const Tensor m = v[1];
      auto [last, all] = scan(
          [m](const Tensor& h, const Tensor& x) {
            const Tensor inner = fori_loop(
                0, 2, [m](const Tensor&, const Tensor& p) { return tanh(matmul(p, m)); }, h);
            const Tensor next = cond(
                x.sum() > 0, [](const Tensor& a, const Tensor& b) { return a + b; },
                [](const Tensor& a, const Tensor& b) { return a * b; }, inner, x);
            return std::pair(next, next.sum({0}));
          },
          v[0], v[0]);
      return std::vector<Tensor>{last, all};
    };
    for (const std::vector<AxisSplits>& splits : std::vector<std::vector<AxisSplits>>{
             {{"data"}, {}}, {{{}, "model"}, {"model"}}, {{"data", "model"}, {"data"}}}) {
      EXPECT_EQ(expect_same(mesh, power, whole, splits).gathered_calls, 0u);
      expect_same(mesh, with_gradients(power), whole, splits);
      EXPECT_EQ(expect_same(mesh, nested, whole, splits).gathered_calls, 0u);
      expect_same(mesh, with_gradients(nested), whole, splits);
    }
  });
}

TEST_P(ShardedFunctions, NumbersOfFunctionsAreThoseOfTheCallAtHand) {
  on_mesh([](const Mesh& mesh) {
    const Tensor whole = randn({12, 4}).sync(), x = shard(whole, mesh, {"data"}).sync();
    for (const double factor : {2.0, 3.0, 5.0}) {
      const auto f = [factor](const Tensor& t) {
        return fori_loop(
            0, 3, [factor](const Tensor&, const Tensor& p) { return p * factor + factor; }, t);
      };
      EXPECT_EQ(test::difference(f(whole), f(x)), "") << factor;
    }
    // And of other functions.
    const auto choose = [](const Tensor& t, bool adds) {
      return cond(
          t.sum() > -1e9, [adds](const Tensor& a) { return adds ? a + 1 : a * 7; }, [](const Tensor& a) { return a; },
          t);
    };
    for (const bool adds : {true, false}) EXPECT_EQ(test::difference(choose(whole, adds), choose(x, adds)), "");
  });
}

TEST_P(ShardedFunctions, ConstraintsAndDrawsInside) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 12}).sync(), randn({4, 12, 12}).sync()};
    const auto f = [&mesh](const std::vector<Tensor>& v) {
      manual_seed(5);
      auto [last, all] = scan(
          [mesh](const Tensor& h, const Tensor& x) {
            const Tensor next = shard(tanh(h + x) * rand({12, 12}), mesh, {{}, "model"});
            return std::pair(next, next.sum());
          },
          v[0], v[1]);
      return std::vector<Tensor>{last, all};
    };
    expect_same(mesh, f, whole, {{"data"}, {{}, "data"}});
    expect_same(mesh, with_gradients(f), whole, {{"data"}, {{}, "data"}});
  });
}

TEST_P(ShardedFunctions, BatchedAndForward) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 6}).sync(), (randn({6, 6}) * 0.3).sync()};
    const auto f = [](const std::vector<Tensor>& v) {
      const Tensor m = v[1];
      const auto row = [m](const Tensor& x) {
        return fori_loop(
            0, 3, [m](const Tensor&, const Tensor& p) { return tanh(matmul(p, m)); }, x);
      };
      const auto masked = [m](const Tensor& x) {
        auto [n, y] = while_loop([](const Tensor& i, const Tensor& p) { return logical_and(i<5, max(abs(p))> 0.1); },
                                 [m](const Tensor& i, const Tensor& p) { return std::tuple(i + 1, matmul(p, m)); },
                                 std::tuple(full({}, 0), x));
        return y;
      };
      return std::vector<Tensor>{vmap(row)(v[0]), vmap(masked)(v[0])};
    };
    EXPECT_EQ(expect_same(mesh, f, whole, {{"data"}, {}}).gathered_calls, 0u);
    expect_same(mesh, f, whole, {{"data", "model"}, {{}, "model"}});
  });
}

TEST_P(ShardedFunctions, ResultsThatAreReadLater) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole = of_recurrence();
    std::vector<Tensor> divided;
    const std::vector<AxisSplits> splits{{"data"}, {{}, "data"}, {}, {{}, "model"}};
    for (std::size_t i = 0; i < whole.size(); ++i) divided.push_back(shard(whole[i], mesh, splits[i]).sync());
    const std::vector<Tensor> want = recurrence(whole), got = recurrence(divided);
    EXPECT_EQ(test::difference(want[0].sum(), got[0].sum()), "");  // while the other result is pending
    EXPECT_EQ(test::difference(want[1], got[1]), "");
    EXPECT_EQ(test::difference(want[0], got[0]), "");
    const auto loss = [](const std::vector<Tensor>& v) {
      const std::vector<Tensor> leaves{v[0], v[1], v[2].detach().requires_grad(true), v[3]};
      const Tensor y = square(recurrence(leaves)[1]).mean();
      const double value = y.item<double>();  // before the backward pass
      y.backward();
      return std::vector<Tensor>{full({}, value), leaves[2].grad()};
    };
    const std::vector<Tensor> a = loss(whole), b = loss(divided);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(test::difference(a[i], b[i]), "");
  });
}

TEST_P(ShardedFunctions, WithCallsOfTheirOwnWorkOnWholeOperands) {
  on_mesh([](const Mesh& mesh) {
    const Tensor whole = randn({12, 4}).sync(), x = shard(whole, mesh, {"data"}).sync();
    const auto f = [](const Tensor& t) {
      return fori_loop(
          0, 3, [](const Tensor&, const Tensor& p) { return distributed::all_reduce(p, distributed::Reduction::max); },
          t);
    };
    const std::uint64_t before = partition_counts().gathered_calls;
    EXPECT_EQ(test::difference(f(whole), f(x)), "");
    EXPECT_EQ(partition_counts().gathered_calls, before + 1);
  });
}

TEST_P(ShardedFunctions, ExplainShowsThem) {
  on_mesh([](const Mesh& mesh) {
    const test::CheapTransfers cheap;
    const std::vector<Tensor> whole = of_recurrence();
    const Tensor h = shard(whole[0], mesh, {"data", "model"}), x = shard(whole[1], mesh, {{}, "data"}),
                 w = shard(whole[2], mesh, {{}, "model"}), u = shard(whole[3], mesh, {{}, "model"});
    const std::string text = explain(recurrence({h, x, w, u})[1].sum());
    EXPECT_THAT(text, HasSubstr(" (scan)\n"));
    EXPECT_THAT(text, Not(HasSubstr("gathered:")));
    if (mesh.size("model") > 1) { EXPECT_THAT(text.substr(text.find(" (scan)\n")), HasSubstr(" along model")); }
  });
}

/// Gradients of the weights of a step are added up on each process, and combined after the loop.
TEST_P(ShardedFunctions, GradientsOfWeightsAreCombinedOnce) {
  on_mesh([](const Mesh& mesh) {
    for (const std::int64_t length : {4, 8}) {
      const std::vector<Tensor> whole{randn({96, 64}).sync(), randn({length, 96, 12}).sync(),
                                      (randn({64, 64}) * 0.1).sync(), (randn({12, 64}) * 0.3).sync()};
      const auto gradients = [](const std::vector<Tensor>& v) {
        const std::vector<Tensor> leaves{v[0], v[1], v[2].detach().requires_grad(true),
                                         v[3].detach().requires_grad(true)};
        square(recurrence(leaves)[0]).sum().backward();
        return std::vector<Tensor>{leaves[2].grad(), leaves[3].grad()};
      };
      const PartitionCounts counts = expect_same(mesh, gradients, whole, {{"data"}, {{}, "data"}, {}, {}});
      EXPECT_EQ(counts.gathered_calls, 0u);
      if (mesh.size("model") > 1 || std::get<bool>(GetParam())) continue;
      EXPECT_EQ(counts.collectives, 1u) << length << " steps";
      std::vector<Tensor> divided = whole;
      divided[0] = shard(whole[0], mesh, {"data"}).sync(), divided[1] = shard(whole[1], mesh, {{}, "data"}).sync();
      EXPECT_THAT(explain(gradients(divided)), HasSubstr("the sum of what each process has added up in a loop"));
    }
  });
}

/// Whatever else steps do with what they carry: it stays what one process would carry.
TEST_P(ShardedFunctions, SumsOfSteps) {
  on_mesh([](const Mesh& mesh) {
    const std::vector<Tensor> whole{randn({12, 12}).sync(), randn({4, 12, 12}).sync(), randn({12}).sync(),
                                    (randn({12, 12}) * 0.3).sync()};
    const std::vector<Function> functions{
        [](const std::vector<Tensor>& v) {  // several terms, some of which are no parts, and a start that counts once
          using Carry = std::vector<Tensor>;
          auto [last, all] = scan(
              [w = v[3], bias = v[2]](const Carry& c, const Tensor& x) {
                const Tensor y = tanh(matmul(c[2], w) + x);
                return std::pair(Carry{c[0] - y.sum({0}) * 2 + bias,
                                       c[1] * 0.5 + matmul(transpose(x), y) + matmul(transpose(c[2]), x), y},
                                 y);
              },
              Carry{v[2], v[3], v[0]}, v[1]);
          return std::vector<Tensor>{last[0], last[1], last[2], all};
        },
        [](const std::vector<Tensor>& v) {  // read by a later step, and given as it is after each step
          auto [total, all] = scan(
              [](const Tensor& t, const Tensor& x) {
                const Tensor next = t + x.sum({0});
                return std::pair(next, next * 2);
              },
              v[2], v[1]);
          return std::vector<Tensor>{total, all};
        },
        [](const std::vector<Tensor>& v) {
          return std::vector<Tensor>{fori_loop(
              0, 3, [x = v[0]](const Tensor& i, const Tensor& t) { return t + (x * (i + 1)).sum({0}); }, v[2])};
        },
        [](const std::vector<Tensor>& v) {  // a condition that reads the sum, and one that does not
          auto [n, t] = while_loop(
              [](const Tensor& i, const Tensor& sum) { return logical_and(all(abs(sum) < 1e6), i < 4); },
              [x = v[0]](const Tensor& i, const Tensor& sum) { return std::tuple(i + 1, sum + (x * x).sum({0})); },
              std::tuple(full({}, 0), v[2]));
          auto [k, u] = while_loop(
              [](const Tensor& i, const Tensor&) { return i < 4; },
              [x = v[0]](const Tensor& i, const Tensor& sum) { return std::tuple(i + 1, sum + (x * x).sum({0})); },
              std::tuple(full({}, 0), v[2]));
          return std::vector<Tensor>{n, t, k, u};
        }};
    for (const std::vector<AxisSplits>& splits :
         std::vector<std::vector<AxisSplits>>{{{"data"}, {{}, "data"}, {}, {}},
                                              {{"data", "model"}, {{}, "data", "model"}, {}, {"model"}},
                                              {{}, {{}, {"model"}}, {"data"}, {{}, "data"}},
                                              {{}, {}, {"model"}, {{}, {}}}})
      for (const Function& f : functions) EXPECT_EQ(expect_same(mesh, f, whole, splits).gathered_calls, 0u);
    expect_same(mesh, with_gradients(functions[0]), whole, {{"data"}, {{}, "data"}, {}, {}});
  });
}

/// The value of a loop that is read later still has parts.
TEST_P(ShardedFunctions, SumsOfStepsThatAreReadLater) {
  on_mesh([](const Mesh& mesh) {
    const test::CheapTransfers cheap;
    const Tensor whole = randn({3, 12, 6}).sync(), x = shard(whole, mesh, {{}, "data"}).sync();
    const auto sums = [](const Tensor& over) {
      using Carry = std::vector<Tensor>;
      return scan(
          [](const Carry& c, const Tensor& row) {
            return std::pair(Carry{c[0] + row.sum({0}), c[1] + square(row).sum({0})}, row.sum());
          },
          Carry{zeros({6}), ones({6})}, over);
    };
    const auto want = sums(whole), got = sums(x);
    EXPECT_EQ(test::difference(want.first[0].sum(), got.first[0].sum()), "");  // while the others are pending
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(test::difference(want.first[i], got.first[i]), "") << i;
    EXPECT_EQ(test::difference(want.second, got.second), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardedFunctions,
                         ::testing::Combine(::testing::ValuesIn(test::kMeshes), ::testing::Bool()),
                         [](const auto& mesh) {
                           const test::MeshCase at = std::get<0>(mesh.param);
                           return std::to_string(at.rows) + "x" + std::to_string(at.columns) +
                                  (std::get<1>(mesh.param) ? "_cheap" : "");
                         });

}  // namespace
}  // namespace fermata
