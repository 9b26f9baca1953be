// Random programs with randomly sharded inputs, compared with the same programs in one process. FERMATA_FUZZ_COUNT says
// how many, FERMATA_SEED which ones.
#include <fermata/control_flow.h>
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "frontend/engine/graph_runner.h"
#include "tests/fuzz/table_program.h"
#include "tests/ir/seed.h"
#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using testing::Order, testing::TableProgram;

std::size_t program_count(std::size_t usual) {
  const char* count = std::getenv("FERMATA_FUZZ_COUNT");
  return count == nullptr ? usual : std::strtoull(count, nullptr, 10);
}

struct Outcome {
  int error = 0;
  std::vector<Tensor> results{};
};
Outcome outcome_of(const std::function<std::vector<Tensor>()>& run) {
  try {
    Outcome outcome{0, run()};
    sync(outcome.results);
    return outcome;
  } catch (const InternalError&) { throw; } catch (const Error& error) {
    return {error.code()};
  }
}

/// Programs of calls whose sizes meshes divide: what networks are made of.
class NetworkProgram {
 public:
  NetworkProgram(std::mt19937_64& random, const std::vector<Tensor>& inputs) : random_(random), values_(inputs) {}
  std::vector<Tensor> run(std::size_t calls) {
    for (std::size_t i = 0; i < calls; ++i) values_.push_back(call());
    std::vector<Tensor> outputs;
    for (std::size_t i = values_.size() - std::min<std::size_t>(values_.size(), 3); i < values_.size(); ++i)
      outputs.push_back(values_[i]);
    return outputs;
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  const Tensor& any() { return values_[below(values_.size())]; }
  Tensor call() {
    const Tensor x = any();
    const auto rank = static_cast<std::uint64_t>(x.rank());
    const auto axis = static_cast<std::int64_t>(rank == 0 ? 0 : below(rank));
    switch (below(rank == 0 ? 2 : 18)) {
      case 0: return tanh(x);
      case 1: return x * 0.5 + 1;
      case 2: return same_shape(x) + x;
      case 3: return sum(x, {axis}, true) * 0.1 + x;
      case 4: return max(x, {axis});
      case 5: return softmax(x, axis);
      case 6: return product(x);
      case 7: return x.T();
      case 8: return reshaped(x);
      case 9: return concat({x, x * 2}, axis);
      case 10: return expand_dims(mean(x, {axis}), axis) - x;
      case 11: return cumsum(x, axis);
      case 12: return x.size(axis) % 2 == 0 ? x.slice(axis, 0, x.size(axis) / 2) : -x;
      case 13: return looped(x);
      case 14: return scanned(x);
      case 15: return chosen(x);
      case 16: return repeated(x);
      default: return take(x, remainder(arange(6), x.size(axis)), axis);
    }
  }
  Tensor same_shape(const Tensor& x) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (const Tensor& y = values_[(i * 7 + below(5)) % values_.size()]; y.shape() == x.shape()) return y;
    return x;
  }
  // Functions of control flow: what they mention may be sharded, too.
  Tensor looped(const Tensor& x) {
    const Tensor y = same_shape(x);
    return fori_loop(
        0, 3, [y](const Tensor& i, const Tensor& p) { return tanh(p * y + i * 0.1); }, x);
  }
  Tensor scanned(const Tensor& x) {
    const bool is_reversed = below(2) == 0, takes_last = below(2) == 0;
    const Tensor start = zeros_like(sum(x, {0}));
    const auto [last, all] = scan(
        [](const Tensor& h, const Tensor& row) {
          const Tensor next = h * 0.5 + row;
          return std::pair(next, row.rank() == 0 ? next : next - mean(next));
        },
        start, x, is_reversed);
    return takes_last ? last : all;
  }
  Tensor chosen(const Tensor& x) {
    const Tensor y = same_shape(x);
    const auto axis = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(x.rank())));
    // No sums that are equal but for their rounding, as those of x and of x.T().
    return cond(
        mean(abs(x)) > 0.31372, [](const Tensor& a, const Tensor& b) { return a * 0.5 - b; },
        [axis](const Tensor& a, const Tensor& b) { return b * 0.5 + mean(a, {axis}, true); }, x, y);
  }
  Tensor repeated(const Tensor& x) {
    const Tensor y = same_shape(x);
    return std::get<1>(while_loop(
        [](const Tensor& i, const Tensor& p) { return logical_and(i < 3, max(abs(p)) < 1e6); },
        [y](const Tensor& i, const Tensor& p) { return std::tuple(i + 1, p * 0.5 + y); }, std::tuple(full({}, 0), x)));
  }
  Tensor product(const Tensor& x) {
    if (x.rank() < 2) return x;
    for (const Tensor& y : values_)
      if (y.rank() >= 2 && y.size(-2) == x.size(-1) && (y.rank() == 2 || x.rank() == 2)) return matmul(x, y) * 0.2;
    return matmul(x, x.mT()) * 0.2;
  }
  Tensor reshaped(const Tensor& x) {
    const Shape& s = x.shape();
    if (s.rank() >= 2 && below(2) == 0) {
      std::vector<std::int64_t> merged{s[0] * s[1]};
      merged.insert(merged.end(), s.begin() + 2, s.end());
      return x.reshape(merged);
    }
    std::vector<std::int64_t> split(s.begin(), s.end());
    const std::size_t at = below(s.rank());
    if (split[at] % 2 != 0) return x;
    split[at] /= 2;
    split.insert(split.begin() + static_cast<std::ptrdiff_t>(at) + (below(2) == 0 ? 1 : 0), 2);
    return split.size() > 5 ? x : x.reshape(split);
  }

  std::mt19937_64& random_;
  std::vector<Tensor> values_;
};

TEST(ShardedPrograms, OfNetworks) {
  const std::size_t count = program_count(100);
  const std::uint64_t first = testing::test_seed(1);
  const std::vector<std::string> names{"data", "model"};
  for (const test::MeshCase& mesh_case : test::kMeshes)
    distributed::simulate(mesh_case.processes(), [&](int) {
      const Mesh mesh({{"data", mesh_case.rows}, {"model", mesh_case.columns}});
      for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const ModeGuard mode(seed % 4 == 0 ? Mode::eager : Mode::compiled);
        std::optional<test::CheapTransfers> cheap;
        if (seed % 5 < 2) cheap.emplace();
        std::mt19937_64 random(seed);
        manual_seed(seed);
        // Sizes that meshes divide, or any.
        const bool is_odd = seed % 7 < 3;
        const auto n = static_cast<std::int64_t>(is_odd ? 2 + random() % 10 : 12),
                   m = static_cast<std::int64_t>(is_odd ? 2 + random() % 14 : 24);
        const std::vector<Tensor> whole{randn({n, n}).sync(), randn({n, m}).sync(), randn({m, n}).sync(),
                                        randn({n, 6, 4}).sync(), randn({n}).sync()};
        std::vector<Tensor> divided;
        for (const Tensor& t : whole)
          divided.push_back(shard(t, mesh, test::random_splits(t.shape(), mesh, names, random)));
        const bool differentiates = seed % 3 == 0;
        const std::uint64_t choices = random();
        const auto run = [&](const std::vector<Tensor>& inputs) {
          std::mt19937_64 same(choices);
          std::vector<Tensor> results = NetworkProgram(same, inputs).run(8);
          if (!differentiates) return results;
          const auto loss = [&](const Tensor& x) {
            std::mt19937_64 again(choices);
            std::vector<Tensor> changed = inputs;
            changed[0] = x;
            Tensor total = full({}, 0.0);
            for (const Tensor& y : NetworkProgram(again, changed).run(8)) total = total + mean(tanh(y));
            return total;
          };
          results.push_back(grad(loss)(inputs[0]));
          return results;
        };
        const std::vector<Tensor> want = run(whole), got = run(divided);
        sync(want), sync(got);
        for (std::size_t i = 0; i < want.size(); ++i) {
          std::string how;
          for (const Tensor& t : divided) how += sharding_of(t) + " ";
          ASSERT_EQ(test::difference(want[i], got[i]), "") << "FERMATA_SEED=" << seed << " on " << mesh_case.rows << "x"
                                                           << mesh_case.columns << " " << how << "result " << i;
        }
      }
    });
}

TEST(ShardedPrograms, OfTheOpTable) {
  const std::size_t count = program_count(60);
  const std::uint64_t first = testing::test_seed(1);
  const std::vector<std::string> names{"data", "model"};
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const TableProgram program = testing::random_table_program(random, 6);
    const std::vector<Order> orders = testing::orders_of(program.graph);
    const Outcome want = outcome_of([&] { return program.run(program.inputs); });
    if (want.error != 0) continue;  // of a value, which one process alone may have
    const test::MeshCase& mesh_case = test::kMeshes[seed % std::size(test::kMeshes)];
    const std::uint64_t choices = random();
    distributed::simulate(mesh_case.processes(), [&](int) {
      const Mesh mesh({{"data", mesh_case.rows}, {"model", mesh_case.columns}});
      std::mt19937_64 same(choices);
      const ModeGuard mode(seed % 3 == 0 ? Mode::eager : Mode::compiled);
      std::vector<Tensor> divided;
      for (const Tensor& t : program.inputs)
        divided.push_back(shard(t, mesh, test::random_splits(t.shape(), mesh, names, same)));
      const Outcome got = outcome_of([&] { return program.run(divided); });
      ASSERT_EQ(got.error, want.error) << "FERMATA_SEED=" << seed << "\n" << to_string(program.graph);
      for (std::size_t i = 0; i < want.results.size(); ++i)
        if (orders[program.graph.outputs[i]] != Order::unknown) {
          ASSERT_EQ(test::difference(want.results[i], got.results[i]), "")
              << "FERMATA_SEED=" << seed << " output " << i << "\n"
              << to_string(program.graph);
        }
    });
  }
}

}  // namespace
}  // namespace fermata
