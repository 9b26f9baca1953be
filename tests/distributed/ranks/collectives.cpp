// Every collective in every dtype and mode, with its gradient, against the same on one process.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fermata/control_flow.h"
#include "fermata/mesh.h"
#include "fermata/profile.h"
#include "frontend/tools/profile/profile_data.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

using test::collective_cases, test::CollectiveCase, test::is_same, test::kDTypes, test::operand_of_rank;
using test::operands_of_ranks, test::Reduction, test::takes;

const distributed::Group& world() { return distributed::world(); }
Shape shape() { return {2 * world().size(), 3 * world().size()}; }
template <class T> const T& own(const std::vector<T>& all) { return all[static_cast<std::size_t>(world().rank())]; }

Tensor leaf(const Tensor& x) {
  Tensor wanted = (x * 1).sync();
  return wanted.requires_grad(true);
}

class Ranks : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Ranks, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Ranks, EveryCollectiveInEveryDType) {
  for (const CollectiveCase& c : collective_cases(world()))
    for (const DType dtype : kDTypes) {
      if (!takes(c, dtype)) continue;
      const std::vector<Tensor> xs = operands_of_ranks(world().size(), shape(), dtype);
      EXPECT_TRUE(is_same(c.call(own(xs)), own(c.simulate(xs)))) << c.name << " " << name(dtype);
    }
}

TEST_P(Ranks, OperandsOfAnyStrides) {
  const std::int64_t n = world().size();
  for (const CollectiveCase& c : collective_cases(world())) {
    std::vector<Tensor> xs;
    for (std::int64_t r = 0; r < n; ++r) {
      const Tensor whole = operand_of_rank(r, {6 * n, 2 * n}, DType::f32).sync();
      xs.push_back(transpose(slice(whole, 0, kNone, kNone, -2)));  // [2n, 3n]
    }
    EXPECT_TRUE(is_same(c.call(own(xs)), own(c.simulate(xs)))) << c.name;
  }
}

TEST_P(Ranks, EmptyAndSingleElements) {
  EXPECT_EQ(distributed::all_reduce(full({}, 2.5f)).item<float>(), 2.5f * static_cast<float>(world().size()));
  EXPECT_EQ(distributed::all_reduce(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(distributed::all_gather(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(distributed::all_gather(full({1}, 1)).size(0), world().size());
  EXPECT_EQ(distributed::broadcast(full({}, world().rank()), 0).item<int>(), 0);
}

TEST_P(Ranks, NanOfAnyRank) {
  const Tensor x = full({2}, world().rank() == world().size() - 1 ? std::nan("") : 1.0, DType::f32);
  for (const Reduction how : {Reduction::max, Reduction::min, Reduction::sum})
    EXPECT_TRUE(all(isnan(distributed::all_reduce(x, how))).item<bool>());
}

TEST_P(Ranks, NarrowNumbersAreReducedInF32) {
  // 256 + 1 is 256 in bf16, so adding up in it would lose the ones.
  const Tensor x = full({3}, world().rank() == 0 ? 256 : 1, DType::bf16);
  const float wanted = astype(full({}, 256.0f + static_cast<float>(world().size() - 1)), DType::bf16).item<float>();
  EXPECT_EQ(distributed::all_reduce(x).to_vector<float>(), std::vector<float>(3, wanted));
}

TEST_P(Ranks, GradientsAreThoseOfTheSumOverRanks) {
  for (const CollectiveCase& c : collective_cases(world()))
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto weight = [&](std::size_t rank, const Tensor& y) {
        return operand_of_rank(static_cast<std::int64_t>(rank), y.shape(), dtype, 11);
      };
      std::vector<Tensor> xs;
      for (const Tensor& x : operands_of_ranks(world().size(), shape(), dtype)) xs.push_back(leaf(x));
      const std::vector<Tensor> ys = c.simulate(xs);
      Tensor total = zeros({}, dtype);
      for (const Tensor& x : xs) total = total + sum(x * 0);  // all have a gradient
      for (std::size_t r = 0; r < ys.size(); ++r) total = total + sum(ys[r] * weight(r, ys[r]));
      total.backward();
      const Tensor x = leaf(operand_of_rank(world().rank(), shape(), dtype));
      const Tensor y = c.call(x);
      sum(y * weight(static_cast<std::size_t>(world().rank()), y)).backward();
      EXPECT_TRUE(allclose(x.grad(), own(xs).grad())) << c.name << " " << name(dtype);
    }
}

TEST_P(Ranks, SecondDerivatives) {
  const Tensor x = leaf(operand_of_rank(world().rank(), shape(), DType::f64));
  const auto f = [&](const Tensor& t) { return sum(distributed::all_reduce(t * t * t)); };
  const auto g = grad([&](const Tensor& t) { return sum(grad(f)(t) * t); });
  // L = n sum x^3 over all ranks: its gradient is 3 n x^2 in all of x, and of sum(3 n x^3) that is 9 n x^2.
  const double n = static_cast<double>(world().size());
  EXPECT_TRUE(allclose(g(x), 9 * n * x * x));
}

TEST_P(Ranks, SeveralAtOnceInBuckets) {
  std::vector<Tensor> xs;
  for (const Shape& s : {Shape{3}, Shape{2, 2}, Shape{}, Shape{5, 1}})
    for (const DType t : {DType::f32, DType::f32, DType::i32}) xs.push_back(operand_of_rank(world().rank(), s, t));
  for (const std::int64_t bytes : {1, 24, 1 << 20}) {
    const std::vector<Tensor> ys = distributed::all_reduce(xs, Reduction::sum, world(), bytes);
    for (std::size_t i = 0; i < xs.size(); ++i)
      EXPECT_TRUE(is_same(ys[i], distributed::all_reduce(xs[i]))) << i << " in buckets of " << bytes;
  }
}

TEST_P(Ranks, SendAndReceive) {
  const std::int64_t n = world().size(), rank = world().rank(), next = (rank + 1) % n, before = (rank + n - 1) % n;
  const Tensor x = operand_of_rank(rank, {4, 3}, DType::f32), wanted = operand_of_rank(before, {4, 3}, DType::f32);
  distributed::send(transpose(x), next, world(), 1);
  distributed::send(x * 2, next, world(), 2);
  const Tensor second = distributed::receive({4, 3}, DType::f32, before, world(), 2);
  EXPECT_TRUE(is_same(second, wanted * 2));
  EXPECT_TRUE(is_same(distributed::receive({3, 4}, DType::f32, before, world(), 1), transpose(wanted)));
}

TEST_P(Ranks, GroupsOfSomeRanks) {
  const std::int64_t rank = world().rank(), n = world().size();
  const distributed::Group part = world().split(rank % 2, -rank);
  EXPECT_EQ(part.size(), (n + 1 - rank % 2) / 2);
  EXPECT_EQ(part.ranks()[static_cast<std::size_t>(part.rank())], rank);
  EXPECT_TRUE(std::ranges::is_sorted(part.ranks(), std::greater()));
  std::int64_t wanted = 0;
  for (std::int64_t r = rank % 2; r < n; r += 2) wanted += r;
  EXPECT_EQ(distributed::all_reduce(full({}, rank), Reduction::sum, part).item<std::int64_t>(), wanted);
  EXPECT_EQ(distributed::broadcast(full({}, rank), 0, part).item<std::int64_t>(), part.ranks()[0]);
  const distributed::Group alone = part.split(part.rank());
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(distributed::all_reduce(full({}, rank), Reduction::sum, alone).item<std::int64_t>(), rank);
  for (const CollectiveCase& c : collective_cases(part)) {
    const std::vector<Tensor> xs = operands_of_ranks(part.size(), {2 * part.size(), part.size()}, DType::f32);
    const auto own_rank = static_cast<std::size_t>(part.rank());
    EXPECT_TRUE(is_same(c.call(xs[own_rank]), c.simulate(xs)[own_rank])) << c.name;
  }
}

/// Ranks make different numbers of calls, and none waits for another.
TEST_P(Ranks, WithoutTransfersNothingIsExchanged) {
  const std::int64_t rank = world().rank(), n = world().size();
  {
    distributed::WithoutTransfers without;
    for (std::int64_t i = 0; i <= rank; ++i)
      EXPECT_EQ(distributed::all_reduce(full({}, rank)).item<std::int64_t>(), rank);
    const std::vector<double> times = without.take_times();
    EXPECT_EQ(std::ssize(times), rank + 2);
    EXPECT_GE(std::ranges::min(times), 0.0);
    EXPECT_EQ(without.take_times().size(), 1u);
    const Tensor gathered = distributed::all_gather(full({2}, rank), 0);
    EXPECT_EQ(gathered.to_vector<std::int64_t>(), std::vector<std::int64_t>(static_cast<std::size_t>(2 * n), rank));
    const std::vector<Tensor> xs = operands_of_ranks(n, shape(), DType::f32);
    for (const CollectiveCase& c : collective_cases(world()))
      EXPECT_EQ(c.call(own(xs)).sync().shape(), own(c.simulate(xs)).shape()) << c.name;
  }
  EXPECT_EQ(distributed::all_reduce(full({}, rank)).item<std::int64_t>(), n * (n - 1) / 2);
}

TEST_P(Ranks, Batches) {
  const Tensor x = operand_of_rank(world().rank(), {4, 2 * world().size()}, DType::f32);
  const std::uint64_t loops = stats().vmap_loops;
  EXPECT_TRUE(is_same(vmap([](const Tensor& row) { return distributed::all_gather(row, 0); })(x),
                      distributed::all_gather(x, 1)));
  EXPECT_TRUE(is_same(vmap([](const Tensor& row) { return distributed::reduce_scatter(row * 2, 0); })(x),
                      distributed::reduce_scatter(x * 2, 1)));
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST(RanksCompiled, FunctionsAreReplayed) {
  const auto step = compile([](const Tensor& x, const Tensor& w) {
    const Tensor y = distributed::all_reduce(x * w + 1, Reduction::mean);
    return distributed::all_gather(tanh(y) * x, 0) + 1;
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = operand_of_rank(world().rank(), {3, 2}, DType::f32, i).sync();
    const Tensor w = full({2}, i, DType::f32).sync();
    const ModeGuard eager(Mode::eager);
    const Tensor y = distributed::all_reduce(x * w + 1, Reduction::mean);
    EXPECT_TRUE(allclose(step(x, w), distributed::all_gather(tanh(y) * x, 0) + 1));
  }
}

/// The steps of a plan between the start of a transfer and its wait.
TEST(RanksCompiled, CalculationsRunBesideTransfers) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = ones({64, 64}).sync();
  const Tensor reduced = distributed::all_reduce(x * 2);
  const Tensor beside = sum(matmul(x, x), {0}, true);
  const Tensor y = reduced + beside;
  const std::string text = explain(y);
  const std::size_t start = text.find("call all_reduce starts (transfer 0)"), product = text.find("call matmul"),
                    wait = text.find("call wait for all_reduce (transfer 0)");
  EXPECT_LT(start, product) << text;
  EXPECT_LT(product, wait) << text;
  EXPECT_NE(wait, std::string::npos) << text;
  EXPECT_EQ(y.sync().to_vector<float>()[0], 2.0f * static_cast<float>(world().size()) + 4096);
}

/// The names of the steps that run when f(x) is called, in order.
template <class F> std::vector<std::string> steps_of(const F& f, const Tensor& x) {
  Profile profile;
  f(x).sync();
  profile.stop();
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const ThreadEvents& thread : profile.data().threads)
    for (const Event& e : thread.events)
      if (e.info->kind == EventKind::call || e.info->kind == EventKind::kernel)
        found.emplace_back(e.begin_ns, e.info->name);
  std::ranges::stable_sort(found, {}, [](const auto& step) { return step.first; });
  std::vector<std::string> names;
  for (auto& [begin, name] : found) names.push_back(std::move(name));
  return names;
}

/// Replays of functions with loops: around one, and in its function.
TEST(RanksCompiled, ReplaysStartEarlyAndWaitLate) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = (ones({32, 32}) / 32).sync();
  const auto place = [](const std::vector<std::string>& names, std::string_view begin) {
    return std::ranges::find_if(names, [&](const std::string& n) { return n.starts_with(begin); }) - names.begin();
  };
  const auto expect_order = [&](const std::vector<std::string>& names, std::string_view between) {
    const std::string all = fmt::format("{}", fmt::join(names, ", "));
    EXPECT_LT(place(names, "all_reduce"), place(names, between)) << all;
    EXPECT_LT(place(names, between), place(names, "wait for all_reduce")) << all;
    EXPECT_LT(place(names, "wait for all_reduce"), std::ssize(names)) << all;
  };
  const auto around = compile([](const Tensor& t) {
    const Tensor a = distributed::all_reduce(t * 2), b = distributed::all_reduce(t * 3);
    return a + fori_loop(
                   0, 2, [](const Tensor&, const Tensor& s) { return matmul(s, s); }, t) *
                   b;
  });
  const auto inside = compile([](const Tensor& t) {
    return fori_loop(
        0, 2,
        [](const Tensor&, const Tensor& s) {
          const Tensor a = distributed::all_reduce(s, Reduction::mean), b = distributed::all_reduce(s * 3);
          return sum(matmul(s, s), {0}, true) + a * b;
        },
        t);
  });
  for (int i = 0; i < 3; ++i) around(x).sync(), inside(x).sync();
  expect_order(steps_of(around, x), "scan");
  expect_order(steps_of(inside, x), "matmul");
}

TEST(RanksCompiled, TracesShowTransfersBesideSteps) {
  const ModeGuard compiled(Mode::compiled);
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = ones({64, 64}).sync();
  Profile profile;
  const Tensor y = distributed::all_reduce(x * 2) + sum(matmul(x, x), {0}, true);
  y.sync();
  set_compile_policy(before);
  const std::string path =
      std::filesystem::temp_directory_path() / ("fermata_ranks_trace_" + std::to_string(getpid()) + ".json");
  save(profile, path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  const std::string trace = text.str();
  const auto place = [&](const std::string& what) { return trace.find(what); };
  ASSERT_NE(place("\"cat\":\"transfer\""), trace.npos) << trace;
  EXPECT_NE(place("wait for all_reduce"), trace.npos) << trace;
}

}  // namespace
}  // namespace fermata
