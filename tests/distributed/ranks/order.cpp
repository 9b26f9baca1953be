// One program, and ranks that read values at different places, in different modes, on different threads: the calls are
// made in the order of the program all the same.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "runtime/environment.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

using test::collective_cases, test::CollectiveCase, test::is_same, test::operand_of_rank;

const distributed::Group& world() { return distributed::world(); }

/// A random program over tensors of one shape. What the ranks do is drawn from `shared`; where this rank reads a value,
/// and in which mode it goes on, from `own`.
class RandomRanks {
 public:
  explicit RandomRanks(std::uint64_t seed)
      : shared_(seed),
        own_(seed * 1000 + static_cast<std::uint64_t>(world().rank()) + 1),
        cases_(collective_cases(world())) {
    std::erase_if(cases_, [](const CollectiveCase& c) {  // results of another shape, or numbers that grow
      return c.name.find("scatter") != c.name.npos || c.name.find("gather") != c.name.npos ||
             c.name.find("to ") != c.name.npos || c.name.find("prod") != c.name.npos;
    });
  }

  /// Whether all values are those of the simulation.
  bool run() {
    const Shape shape{world().size(), 2};
    for (std::int64_t i = 0; i < 2; ++i) {
      std::vector<Tensor> all = test::operands_of_ranks(world().size(), shape, DType::f64, i);
      values_.push_back(all[static_cast<std::size_t>(world().rank())]), simulated_.push_back(all);
    }
    for (int i = 0; i < 14; ++i) {
      const std::size_t a = shared_() % values_.size(), b = shared_() % values_.size();
      if (shared_() % 3 == 0)
        calculate(a, b);
      else
        communicate(cases_[shared_() % cases_.size()], a);
      if (shared_() % 4 == 0) forget(shared_() % values_.size());
      do_something_of_my_own();
    }
    bool same = true;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i].defined()) continue;
      same = same && allclose(values_[i], simulated_[i][static_cast<std::size_t>(world().rank())]);
    }
    set_mode(Mode::compiled);
    return same;
  }

 private:
  Tensor& value(std::size_t i) {
    while (!values_[i].defined()) i = (i + 1) % values_.size();
    last_ = i;
    return values_[i];
  }
  void calculate(std::size_t a, std::size_t b) {
    const Tensor x = value(a);
    const std::vector<Tensor> xs = simulated_[last_];
    const Tensor y = value(b);
    const std::vector<Tensor> ys = simulated_[last_];
    values_.push_back(tanh(x) * 2 + y / 4);
    const ModeGuard eager(Mode::eager);
    std::vector<Tensor> all;
    for (std::size_t r = 0; r < xs.size(); ++r) all.push_back(tanh(xs[r]) * 2 + ys[r] / 4);
    simulated_.push_back(all);
  }
  void communicate(const CollectiveCase& c, std::size_t a) {
    const Tensor x = value(a);
    values_.push_back(c.call(x));
    const ModeGuard eager(Mode::eager);
    simulated_.push_back(c.simulate(simulated_[last_]));
  }
  /// Calls without readers are made as well.
  void forget(std::size_t i) {
    std::size_t left = 0;
    for (const Tensor& t : values_) left += t.defined() ? 1 : 0;
    if (left > 2) values_[i] = Tensor();
  }
  void do_something_of_my_own() {
    switch (own_() % 6) {
      case 0: static_cast<void>(value(own_() % values_.size()).to_vector<double>()); break;
      case 1: static_cast<void>(sum(value(own_() % values_.size()) * 2).item<double>()); break;
      case 2: set_mode(own_() % 4 == 0 ? Mode::eager : Mode::compiled); break;
      default: break;
    }
  }

  std::mt19937_64 shared_, own_;
  std::vector<CollectiveCase> cases_;
  std::vector<Tensor> values_;
  std::vector<std::vector<Tensor>> simulated_;
  std::size_t last_ = 0;
};

TEST(RanksOrder, RanksReadValuesWhereTheyLike) {
  const std::uint64_t first = environment_number("FERMATA_SEED", 1),
                      count = environment_number("FERMATA_FUZZ_COUNT", 40);
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    EXPECT_TRUE(RandomRanks(seed).run()) << "FERMATA_SEED=" << seed << " FERMATA_FUZZ_COUNT=1";
}

TEST(RanksOrder, OneRankReadsNothing) {
  const ModeGuard compiled(Mode::compiled);
  std::vector<Tensor> kept;
  Tensor x = full({3}, world().rank() + 1, DType::f32);
  for (int i = 0; i < 20; ++i) {
    x = distributed::all_reduce(x / 2, distributed::Reduction::mean) + 1;
    if (world().rank() == 0) static_cast<void>(x.to_vector<float>());
    if (world().rank() == 1 && i % 7 == 0) x.sync();
  }
  distributed::barrier();
  const std::vector<float> result = x.to_vector<float>();
  EXPECT_EQ(distributed::broadcast(x).to_vector<float>(), result);
}

TEST(RanksOrder, ThreadsHaveGroupsOfTheirOwn) {
  const distributed::Group first = world().split(0), second = world().split(0);
  const auto work = [](const distributed::Group& group, float* result) {
    Tensor x = full({100}, group.rank(), DType::f32);
    for (int i = 0; i < 30; ++i) x = distributed::all_reduce(x, distributed::Reduction::mean, group) + 1;
    *result = x.to_vector<float>()[0];
  };
  float a = 0, b = 0;
  std::thread other([&] { work(first, &a); });
  work(second, &b);
  other.join();
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, static_cast<float>(world().size() - 1) / 2 + 30);
}

TEST(RanksOrder, TheEndOfAThreadMakesItsCalls) {
  const distributed::Group group = world().split(0);
  std::thread([&] {
    static_cast<void>(distributed::all_reduce(ones({2}), distributed::Reduction::sum, group));
  }).join();
  EXPECT_EQ(distributed::all_reduce(ones({}), distributed::Reduction::sum, group).item<float>(),
            static_cast<float>(world().size()));
}

TEST(RanksOrder, FunctionsOfControlFlow) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const Tensor x = full({2}, world().rank() + 1, DType::f32);
    const Tensor y = cond(
        sum(x) > 0, [](const Tensor& t) { return distributed::all_reduce(t); },
        [](const Tensor& t) { return distributed::all_reduce(-t); }, x);
    const auto n = static_cast<float>(world().size());
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2, n * (n + 1) / 2));
  }
}

}  // namespace
}  // namespace fermata
