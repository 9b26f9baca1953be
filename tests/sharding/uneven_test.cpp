// Axes that a mesh does not divide evenly: the last blocks are shorter, or empty.
#include <fermata/control_flow.h>
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <fermata/modules.h>
#include <fermata/safetensors.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "ir/sharding.h"
#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

class Uneven : public ::testing::TestWithParam<Mode> {
 protected:
  static void on_mesh(int rows, int columns, const std::function<void(const Mesh&)>& fn) {
    distributed::simulate(rows * columns, [&](int) {
      const ModeGuard mode(GetParam());
      manual_seed(1);
      fn(Mesh({{"data", rows}, {"model", columns}}));
    });
  }
  static void on_meshes(const std::function<void(const Mesh&)>& fn) {
    for (const test::MeshCase at : {test::MeshCase{2, 1}, {3, 1}, {4, 1}, {2, 2}, {3, 2}})
      on_mesh(at.rows, at.columns, fn);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Uneven, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

std::vector<std::int64_t> counts_of(std::int64_t size, std::int64_t parts) {
  const MeshAxes mesh{{"data"}, {parts}};
  std::vector<std::int64_t> counts;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const OwnPart part = own_part(size, 1, mesh, {i});
    EXPECT_EQ(part.begin, end);
    counts.push_back(part.count), end += part.count;
  }
  EXPECT_EQ(end, size);
  return counts;
}

TEST(UnevenBlocks, AreTheCeilingAndWhatIsLeft) {
  EXPECT_EQ(counts_of(10, 4), (std::vector<std::int64_t>{3, 3, 3, 1}));
  EXPECT_EQ(counts_of(3, 4), (std::vector<std::int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(counts_of(5, 4), (std::vector<std::int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(counts_of(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
}

TEST(UnevenBlocks, OfSeveralMeshAxesDivideInTurn) {
  for (const std::int64_t rows : {1, 2, 3, 4})
    for (const std::int64_t columns : {1, 2, 3})
      for (std::int64_t size = 0; size < 30; ++size) {
        const MeshAxes mesh{{"data", "model"}, {rows, columns}};
        std::int64_t end = 0, most = 0;
        for (std::int64_t rank = 0; rank < mesh.processes(); ++rank) {
          const auto at = mesh.coordinates(rank);
          const OwnPart outer = own_part(size, 1, mesh, at), part = own_part(size, 3, mesh, at);
          EXPECT_EQ(part.begin, end);
          EXPECT_GE(part.begin, outer.begin);
          EXPECT_LE(part.begin + part.count, outer.begin + outer.count);
          end += part.count, most = std::max(most, part.count);
          EXPECT_EQ(part.most, (size + rows * columns - 1) / (rows * columns));
        }
        EXPECT_EQ(end, size);
        EXPECT_EQ(most, own_part(size, 3, mesh, {0, 0}).most);
      }
}

TEST_P(Uneven, TensorsAreDividedAndGathered) {
  on_mesh(4, 1, [](const Mesh& mesh) {
    const Tensor whole = reshape(arange(30), {10, 3}).sync();
    const Tensor x = shard(whole, mesh, {"data"});
    EXPECT_EQ(sharding_of(x), "[data, -]");
    EXPECT_EQ(own_block(x).shape(), (Shape{mesh.rank() < 3 ? 3 : 1, 3}));
    EXPECT_EQ(own_block(x).to_vector<int>()[0], 9 * mesh.rank());
    EXPECT_EQ(x.to_vector<int>(), whole.to_vector<int>());
    EXPECT_EQ(unshard(x).to_vector<int>(), whole.to_vector<int>());
    const Tensor y = shard(whole, mesh, {{}, "data"});
    EXPECT_EQ(own_block(y).shape(), (Shape{10, mesh.rank() < 3 ? 1 : 0}));
    EXPECT_EQ(y.to_vector<int>(), whole.to_vector<int>());
    const Tensor moved = shard(x, mesh, {{}, "data"});
    EXPECT_EQ(sharding_of(moved), "[-, data]");
    EXPECT_EQ(moved.to_vector<int>(), whole.to_vector<int>());
    EXPECT_EQ(x[9].to_vector<int>(), whole[9].to_vector<int>());
    EXPECT_EQ(whole[9][2].item<int>(), x[9][2].item<int>());
  });
  on_mesh(3, 2, [](const Mesh& mesh) {
    const Tensor whole = reshape(arange(35), {7, 5}).sync();
    const std::vector<AxisSplits> all{{"data", "model"},
                                      {"model", "data"},
                                      {{{"data", "model"}}},
                                      {{}, {{"data", "model"}}},
                                      {"data"},
                                      {{}, "model"},
                                      {}};
    for (const AxisSplits& from : all)
      for (const AxisSplits& to : all)
        EXPECT_EQ(shard(shard(whole, mesh, from), mesh, to).to_vector<int>(), whole.to_vector<int>());
  });
}

/// Parts of processes without elements change nothing, whatever the dtype.
TEST_P(Uneven, ReductionsOfWhatIsThere) {
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                              DType::i32, DType::i8,  DType::u8,  DType::i64};
  for (const test::MeshCase at : {test::MeshCase{4, 1}, {2, 2}, {3, 2}})
    on_mesh(at.rows, at.columns, [&](const Mesh& mesh) {
      const test::CheapTransfers cheap;
      std::int64_t n = 1;  // with each type another size
      for (const DType dtype : kTypes) {
        n = n == 7 ? 3 : n + 2;
        const Tensor whole = astype(reshape(arange(n * 5), {n, 5}) % 4 + 1, dtype).sync();
        for (const AxisSplits& splits :
             std::vector<AxisSplits>{{"data"}, {"data", "model"}, {{}, {{"data", "model"}}}}) {
          const Tensor x = shard(whole, mesh, splits), low = shard((whole + 1).sync(), mesh, splits);
          for (const std::vector<std::int64_t>& axes : std::vector<std::vector<std::int64_t>>{{0}, {0, 1}}) {
            EXPECT_EQ(test::difference(sum(whole, axes), sum(x, axes)), "");
            EXPECT_EQ(test::difference(prod(whole, axes), prod(x, axes)), "");
            EXPECT_EQ(test::difference(max(whole, axes), max(x, axes)), "");
            EXPECT_EQ(test::difference(min(whole + 1, axes), min(low, axes)), "");
            EXPECT_EQ(test::difference(any(whole > 3, axes), any(x > 3, axes)), "");
            EXPECT_EQ(test::difference(all(whole > 0, axes), all(x > 0, axes)), "");
            if (is_floating(dtype)) { EXPECT_EQ(test::difference(mean(whole, axes), mean(x, axes)), ""); }
          }
          const Tensor below = whole * (is_floating(dtype) ? -1 : 1);
          EXPECT_EQ(test::difference(max(below), max(shard(below.sync(), mesh, splits))), "");
          EXPECT_EQ(test::difference(argmax(whole, 0), argmax(x, 0)), "");
        }
      }
    });
}

/// A process with no elements does not see that one sum depends on another: it must not join their reductions.
TEST_P(Uneven, CompiledFunctionsJoinTheSameReductionsEverywhere) {
  on_mesh(3, 1, [](const Mesh& mesh) {
    const Tensor x = reshape(arange(36).astype(DType::f64), {6, 2, 3}).sync(), whole = x / 4 + 1;
    const auto f = [](const Tensor& t) {
      const Tensor y = t + sum(t, 1, true);
      return t - max(y, 2, true) * sum(y, 1, true) / (1 + abs(mean(t, 1, true)));
    };
    const std::vector<double> wanted = f(whole).to_vector<double>();
    const auto compiled = compile(f);
    for (int run = 0; run < 3; ++run) {
      const Tensor divided = shard(whole, mesh, {{}, "data"});
      EXPECT_EQ(compiled(divided).to_vector<double>(), wanted);
    }
  });
}

TEST_P(Uneven, CallsOfNetworks) {
  on_meshes([](const Mesh& mesh) {
    const test::CheapTransfers cheap;
    const Tensor images = randn({5, 3, 7, 7}).sync(), kernel = (randn({6, 3, 3, 3}) * 0.3).sync(),
                 rows = randn({5, 9}).sync(), weight = (randn({9, 7}) * 0.3).sync(),
                 classes = randint(0, 7, {5}).sync();
    const auto results = [&](const Tensor& i, const Tensor& k, const Tensor& r, const Tensor& w, const Tensor& c) {
      const std::vector<Tensor> leaves{k.detach().requires_grad(true), w.detach().requires_grad(true),
                                       r.detach().requires_grad(true)};
      const Tensor features = mean(gelu(conv2d(i, leaves[0])), {2, 3}), hidden = tanh(matmul(leaves[2], leaves[1]));
      const Tensor loss = cross_entropy(hidden, c) + square(features).mean() + square(layer_norm(hidden)).mean() * 0.1 +
                          softmax(hidden, 0).max() + concat({hidden, leaves[2]}, 1).sum() * 0.01 +
                          hidden.slice(0, 1).mean() + take(hidden, c.slice(0, 0, 3) % 5, 0).sum();
      loss.backward();
      return std::vector<Tensor>{loss.detach(),    features.detach(), hidden.detach(),
                                 leaves[0].grad(), leaves[1].grad(),  leaves[2].grad()};
    };
    const std::vector<Tensor> want = results(images, kernel, rows, weight, classes);
    const std::vector<std::vector<AxisSplits>> ways{{{"data"}, {}, {"data"}, {}, {"data"}},
                                                    {{"data"}, {"model"}, {"data"}, {{}, "model"}, {"data"}},
                                                    {{"data", "model"}, {{}, "data"}, {"data", "model"}, {"model"}, {}},
                                                    {{}, {"data"}, {{}, "data"}, {"data"}, {"model"}}};
    for (const auto& s : ways) {
      const std::vector<Tensor> got =
          results(shard(images, mesh, s[0]), shard(kernel, mesh, s[1]), shard(rows, mesh, s[2]),
                  shard(weight, mesh, s[3]), shard(classes, mesh, s[4]));
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(test::difference(want[i], got[i]), "") << i;
    }
  });
}

TEST_P(Uneven, BlocksByHandHaveGradients) {
  on_mesh(4, 1, [](const Mesh& mesh) {
    for (const std::int64_t n : {3, 6, 10}) {
      const Tensor whole = randn({n, 3}).sync();
      const auto mapped = shard_map([](const std::vector<Tensor>& v) { return std::vector<Tensor>{exp(v[0]) * v[1]}; },
                                    mesh, {{"data"}, {}}, {{"data"}});
      const Tensor x = copy(whole).requires_grad(true), scale = full({}, 2.0).requires_grad(true);
      const Tensor y = mapped({x, scale})[0];
      EXPECT_EQ(test::difference(exp(whole) * 2, y.detach()), "");
      (y * y).sum().backward();
      EXPECT_EQ(test::difference(8 * exp(2 * whole), x.grad()), "");
      EXPECT_EQ(test::difference(4 * exp(2 * whole).sum(), scale.grad()), "");
      const Tensor joined = from_blocks(own_block(shard(whole, mesh, {"data"})) + 1, {n, 3}, mesh, {"data"});
      EXPECT_EQ(sharding_of(joined), "[data, -]");
      EXPECT_EQ(test::difference(whole + 1, joined), "");
    }
  });
}

TEST_P(Uneven, BlocksOfOtherSizesAreErrors) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const auto message = [&](const std::vector<std::int64_t>& sizes) -> std::string {
      try {
        from_blocks(ones({1, 3}), sizes, mesh, {"data"});
      } catch (const ShapeError& error) { return error.what(); }
      return "no error";
    };
    EXPECT_THAT(message({5, 3}),
                HasSubstr("FM7105 ShapeError: from_blocks: this process has the block " +
                          std::string(mesh.rank() == 0 ? "[3, 3]" : "[2, 3]") + " of a tensor [5, 3], but got [1, 3]"));
    EXPECT_THAT(message({5}), HasSubstr("FM7105 ShapeError: from_blocks: a block of 2 axes is none of a tensor [5]"));
    EXPECT_THAT(message({5}), HasSubstr("uneven_test.cpp:"));
  });
}

TEST_P(Uneven, LoopsCarryThem) {
  if (GetParam() == Mode::eager) GTEST_SKIP() << "functions of control flow are compiled";
  on_meshes([](const Mesh& mesh) {
    for (const bool is_cheap : {false, true}) {
      std::optional<test::CheapTransfers> cheap;
      if (is_cheap) cheap.emplace();
      const Tensor h0 = randn({3, 5}).sync(), xs = randn({4, 3, 5}).sync(), w = (randn({5, 5}) * 0.3).sync();
      const auto results = [](const Tensor& h, const Tensor& x, const Tensor& weight) {
        const Tensor leaf = weight.detach().requires_grad(true);
        const auto [last, all] = scan(
            [leaf](const Tensor& c, const Tensor& row) {
              const Tensor next = tanh(matmul(c, leaf) + row);
              return std::pair(next, next - mean(next));
            },
            h, x);
        (square(last).sum() + all.sum()).backward();
        const Tensor chosen = cond(
            mean(h) > 0, [](const Tensor& t) { return t * 2; }, [](const Tensor& t) { return t + t.sum({0}, true); },
            h);
        return std::vector<Tensor>{last.detach(), all.detach(), leaf.grad(), chosen};
      };
      const std::vector<Tensor> want = results(h0, xs, w);
      for (const auto& [of_h, of_x] : std::vector<std::pair<AxisSplits, AxisSplits>>{
               {{"data"}, {{}, "data"}}, {{{}, "data"}, {{}, {}, "data"}}, {{"data", "model"}, {"data"}}}) {
        const std::vector<Tensor> got = results(shard(h0, mesh, of_h), shard(xs, mesh, of_x), w);
        for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(test::difference(want[i], got[i]), "") << i;
      }
    }
  });
}

struct Net {
  nn::Linear up{5, 7}, down{7, 3};
  Tensor forward(const Tensor& x) const { return down(tanh(up(x))); }
};

/// Losses of steps; the batch, the weights and the states are divided as asked for.
std::vector<double> losses_of(const Mesh* mesh, bool is_compiled) {
  manual_seed(3);
  Net net;
  Tensor x = randn({10, 5}).sync(), labels = randint(0, 3, {10}).sync();
  const std::vector<Tensor> parameters = nn::parameters(net);
  optim::Adam adam(parameters, {.learning_rate = 0.05});
  if (mesh != nullptr) {
    x = shard(x, *mesh, {"data"}), labels = shard(labels, *mesh, {"data"});
    shard_(net.up.weight, *mesh, {"model"}), shard_(net.down.weight, *mesh, {{}, "model"});
    for (const Tensor& t : adam.state())
      if (t.rank() > 0) shard_(t, *mesh, {"data"});
  }
  const auto step = [&](const Tensor& inputs, const Tensor& targets) {
    const Tensor loss = cross_entropy(net.forward(inputs), targets);
    adam.zero_grad();
    loss.backward();
    adam.step();
    return loss.detach();
  };
  const auto compiled = compile(step);
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i)
    losses.push_back((is_compiled ? compiled(x, labels) : step(x, labels)).template item<double>());
  if (mesh != nullptr) { EXPECT_EQ(sharding_of(net.up.weight), "[model, -]"); }
  return losses;
}

TEST_P(Uneven, TrainingIsThatOfOneProcess) {
  for (const bool is_compiled : {false, true}) {
    std::vector<double> want;
    {
      const ModeGuard mode(GetParam());
      want = losses_of(nullptr, is_compiled);
    }
    on_meshes([&](const Mesh& mesh) {
      const std::vector<double> got = losses_of(&mesh, is_compiled);
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 1e-6 * std::max(1.0, std::abs(want[i])));
    });
  }
}

TEST_P(Uneven, CheckpointsOfAnyMeshAreReadByAnyOther) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("fermata_uneven_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const std::string path = (folder / "run.safetensors.index.json").string();
  const std::vector<AxisSplits> ways{{"data"}, {{}, "model"}, {"data", "model"}, {{{"data", "model"}}}, {}};
  const auto value = [](std::size_t i, std::int64_t n) {
    return reshape(arange(n * 5), {n, 5}) + static_cast<double>(i);
  };
  const auto values = [&](const Mesh& mesh, double scale) {
    NamedTensors all;
    for (std::size_t i = 0; i < ways.size(); ++i)
      for (const std::int64_t n : {3, 7})
        all.emplace(std::to_string(i) + " " + std::to_string(n), shard((value(i, n) * scale).sync(), mesh, ways[i]));
    return all;
  };
  constexpr test::MeshCase kGrids[] = {{1, 1}, {2, 1}, {4, 1}, {3, 2}};
  for (const test::MeshCase writer : kGrids) {
    on_mesh(writer.rows, writer.columns, [&](const Mesh& mesh) { save_safetensors(path, values(mesh, 1)); });
    for (const test::MeshCase reader : kGrids)
      on_mesh(reader.rows, reader.columns, [&](const Mesh& mesh) {
        const SafetensorsFile file(path);
        for (const auto& [name, like] : values(mesh, 0)) {
          const Tensor want = value(static_cast<std::size_t>(name[0] - '0'), name[2] - '0');
          EXPECT_EQ(test::difference(want, file.tensor(name)), "") << name;
          EXPECT_EQ(test::difference(want, file.tensor_like(name, like)), "") << name;
        }
      });
  }
  fs::remove_all(folder);
}

/// What blocks of one shape are not those of the other gathers, and says so.
TEST_P(Uneven, ReshapesOfThemAreGatheredAndCounted) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({5, 4}).sync(), x = shard(whole, mesh, {"data"});
    const std::uint64_t before = partition_counts().gathered_calls;
    const Tensor y = x.reshape({20});
    if (mode() == Mode::compiled) { EXPECT_THAT(explain(y), HasSubstr("gathered: reshape")); }
    EXPECT_EQ(test::difference(whole.reshape({20}), y), "");
    EXPECT_EQ(partition_counts().gathered_calls, before + 1);
    const Tensor kept = x.reshape({5, 2, 2});
    EXPECT_EQ(sharding_of(kept), "[data, -, -]");
    EXPECT_EQ(partition_counts().gathered_calls, before + 1);
  });
}

}  // namespace
}  // namespace fermata
