// What a compiled function returns aliases what it aliases in eager mode: arguments, captured tensors, other results.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "fermata/compile.h"
#include "fermata/fermata.h"
#include "tests/codegen_cpu/kernel_case.h"

namespace fermata {
namespace {

using Tensors = std::vector<Tensor>;

/// Elements of several tensors, for comparison and for messages.
std::string text(const Tensors& tensors) {
  std::string out;
  for (const Tensor& t : tensors) out += to_string(t) + "\n";
  return out;
}

/// The world in which a function is called: arguments that are no views and that are, captured ones, and two that have
/// the value of one of those.
struct World {
  Tensor x, base, y, captured, whole, part, twin, detached;
  World() {
    x = arange(12).astype(DType::f32).reshape({3, 4}).sync();
    base = arange(24).astype(DType::f32).reshape({4, 6}).sync(), y = base.slice(0, 1, 4).slice(1, 0, 6, 2);
    captured = (arange(12).astype(DType::f32).reshape({3, 4}) * -1).copy().sync();
    whole = (arange(20).astype(DType::f32).reshape({4, 5}) * 10).copy().sync(), part = whole.slice(0, 0, 3);
    twin = zeros({3, 4}), twin.assign(captured), detached = captured.detach();
  }
  Tensors tensors() const { return {x, base, y, captured, whole, part, twin, detached}; }
};

/// A random function of the world: views, writes, calls, and a few results.
class Story {
 public:
  explicit Story(std::uint64_t seed) : seed_(seed) {}

  Tensors operator()(World& w, const Tensor& x, const Tensor& y) const {
    std::mt19937_64 random(seed_);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    Tensors pool = {x, y, w.captured, w.part, w.twin, w.detached};
    const std::size_t steps = 1 + below(7);
    for (std::size_t step = 0; step < steps; ++step) {
      const std::size_t chosen = below(pool.size());
      Tensor t = pool[chosen];
      const std::size_t what = below(10), number = below(3);
      const Tensor same_shape = [&] {
        for (std::size_t i = below(pool.size()), k = 0; k < pool.size(); ++k, i = (i + 1) % pool.size())
          if (i != chosen && pool[i].shape() == t.shape()) return pool[i];
        return t;
      }();
      const auto axis = t.rank() == 0 ? 0 : static_cast<std::int64_t>(below(t.rank()));
      switch (what) {
        case 0: pool.push_back(t * 2 + 1); break;
        case 1: pool.push_back(t + same_shape); break;
        case 2: pool.push_back(t.rank() < 2 ? t.reshape({-1}) : t.mT()); break;
        case 3:
          if (t.rank() > 0 && t.size(axis) > 1) pool.push_back(t.slice(axis, static_cast<std::int64_t>(number) % 2));
          break;
        case 4:
          if (t.rank() > 1) pool.push_back(t.select(axis, 0));
          break;
        case 5: pool.push_back(t.reshape({-1})); break;
        case 6: t.add_(static_cast<float>(number + 1)); break;
        case 7: t.mul_(same_shape); break;
        case 8: t.assign(same_shape); break;
        default: pool.push_back(number == 0 ? t.detach() : number == 1 ? t.copy() : ones({3, 4}));
      }
    }
    Tensors results;
    const std::size_t count = 1 + below(4);
    for (std::size_t i = 0; i < count; ++i) results.push_back(pool[below(pool.size())]);
    return results;
  }

 private:
  std::uint64_t seed_;
};

/// Calls the function several times, writes to what it has given and to what it reads, and prints all of it after each
/// step.
std::vector<std::string> tale(std::uint64_t seed, bool compiled) {
  const ModeGuard mode(compiled ? Mode::compiled : Mode::eager);
  World world;
  const Story story(seed);
  std::function<Tensors(const Tensor&, const Tensor&)> call = [&](const Tensor& x, const Tensor& y) {
    return story(world, x, y);
  };
  if (compiled) call = compile(call);
  std::mt19937_64 random(seed * 7 + 1);
  std::vector<std::string> out;
  Tensors all;
  for (int round = 0; round < 4; ++round) {
    const std::size_t arguments = random() % 6;
    for (const Tensor& t : call(arguments == 1 ? world.captured : world.x, arguments == 2   ? world.x
                                                                           : arguments == 3 ? world.x.slice(1, 1)
                                                                                            : world.y))
      all.push_back(t);
    out.push_back("after the call\n" + text(all) + text(world.tensors()));
    for (int writes = 0; writes < 2; ++writes) {
      Tensor t = random() % 3 == 0 ? world.tensors()[random() % 8] : all[random() % all.size()];
      if (random() % 2 == 0)
        t.add_(100);
      else
        t.mul_(3);
      out.push_back("after a write\n" + text(all) + text(world.tensors()));
    }
  }
  return out;
}

TEST(CompileAliases, RandomFunctionsAndWritesAroundThemAreThoseOfEagerMode) {
  const std::uint64_t first = test::seed_or(1);
  for (int i = 0; i < test::fuzz_count_or(400); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const std::vector<std::string> expected = tale(seed, false), found = tale(seed, true);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      ASSERT_EQ(found[step], expected[step]) << "step " << step << ", FERMATA_SEED=" << seed << " FERMATA_FUZZ_COUNT=1";
    }
  }
}

TEST(CompileAliases, ViewsThatAreArgumentsAreWrittenThrough) {
  const ModeGuard mode(Mode::compiled);
  const auto doubled = compile([](Tensor x) { x.mul_(2); });
  const auto both = compile([](Tensor whole, const Tensor& part) {
    whole.add_(1);
    return part * 1;
  });
  const Tensor whole = ones({4, 3}).sync();
  for (int i = 1; i < 4; ++i) {
    doubled(whole.slice(0, 0, 2));
    EXPECT_EQ(sum(whole).item<float>(), 6.f + 6.f * static_cast<float>(1 << i));
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(both(whole, whole.slice(0, 2, 4)).to_vector<float>()[0], 2.f + static_cast<float>(i));
}

TEST(CompileAliases, ViewsOfArgumentsAreViews) {
  const ModeGuard mode(Mode::compiled);
  const auto turned = compile([](const Tensor& x) { return x.mT(); });
  const Tensor x = ones({300, 200}).sync();
  for (int i = 0; i < 3; ++i) {
    Tensor y = turned(x);
    EXPECT_FALSE(y.pending());
    y.add_(1);
    EXPECT_EQ(sum(x).item<float>(), 60'000.f * static_cast<float>(i + 2));
  }
}

TEST(CompileAliases, ConstantsOfTheFunctionAreNewInEachCall) {
  const ModeGuard mode(Mode::compiled);
  const auto constant = compile([] { return tensor({1.f, 2.f, 3.f}); });
  const auto twice = compile([] {
    const Tensor t = tensor({1.f, 2.f, 3.f});
    return std::pair(t, t.slice(0, 1));
  });
  for (int i = 0; i < 4; ++i) {
    Tensor t = constant();
    EXPECT_EQ(sum(t).item<float>(), 6);
    t.add_(1);
    auto [whole, part] = twice();
    part.add_(1);
    EXPECT_EQ(sum(whole).item<float>(), 8);
  }
}

TEST(CompileAliases, ExistingTensorsCanBeAssigned) {
  const ModeGuard mode(Mode::compiled);
  Tensor a = tensor({1.f, 2.f}).sync(), b = tensor({3.f, 4.f}).sync();
  const auto swap = compile([&] {
    const Tensor old = a.copy();
    a.assign(b);
    b.assign(old);
  });
  const auto keep = compile([&](const Tensor& x) { a.assign(x); });
  for (int i = 1; i < 5; ++i) {
    swap();
    EXPECT_EQ(sum(a).item<float>(), i % 2 == 1 ? 7 : 3);
  }
  Tensor x = tensor({5.f, 6.f}).sync();
  keep(x);
  x.add_(1);
  EXPECT_EQ(sum(a).item<float>(), 11);
  keep(x);
  EXPECT_EQ(sum(a).item<float>(), 13);
}

TEST(CompileAliases, TensorsWithOneValueAreReadWhereTheyAreLater) {
  const ModeGuard mode(Mode::compiled);
  Tensor a = tensor({1.f, 2.f}), b = zeros({2});
  b.assign(a);
  Tensor c = a.detach();
  const auto all = compile([&] { return sum(a + b * 10 + c * 100); });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(all().item<float>(), 333.f + 2.f * static_cast<float>(i) + (i == 3 ? 200.f : 0));
    a.add_(1);
    if (i == 2) c.add_(1);
  }
}

TEST(CompileAliases, CopiesMadeByDetachAreOfTheFunction) {
  const ModeGuard mode(Mode::compiled);
  const Tensor whole = ones({4, 3}).sync(), part = whole.slice(0, 1, 3);
  const auto added = compile([&] {
    Tensor own = part.detach();
    own.add_(1);
    return own;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sum(added()).item<float>(), 12);
    EXPECT_EQ(sum(whole).item<float>(), 12);
  }
}

TEST(CompileAliases, CopiesOfACompiledFunctionShareItsCaptures) {
  const ModeGuard mode(Mode::compiled);
  const auto doubled = compile([](const Tensor& x) { return x * 2; });
  const std::function<Tensor(const Tensor&)> stored = doubled;
  const auto other = doubled;
  EXPECT_EQ(sum(stored(ones({3}).sync())).item<float>(), 6);
  EXPECT_EQ(sum(other(ones({3}).sync())).item<float>(), 6);
  EXPECT_EQ(doubled.captures(), 1u);
}

}  // namespace
}  // namespace fermata
