// Results that are written over operands (docs/adr/016): when, and that values do not change.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "dispatch/operator.h"
#include "fermata/fermata.h"
#include "runtime/storage.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;

class Overwrites : public ::testing::Test {
 protected:
  ~Overwrites() override { set_compile_policy(CompilePolicy::second_sight); }
  ModeGuard mode_{Mode::compiled};
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
};

const void* address(const Tensor& x) { return x.sync().node()->storage.load()->data; }
Tensor filled(std::int64_t n, double value) { return full({n}, value, DType::f32).sync(); }
Floats floats(const Tensor& x) { return x.to_vector<float>(); }

TEST_F(Overwrites, AnElementwiseWriteStaysWhereItIs) {
  Tensor x = filled(1000, 1);
  const void* const before = address(x);
  for (int i = 0; i < 3; ++i) x += 2, x.sync();
  EXPECT_EQ(address(x), before);
  EXPECT_EQ(floats(x), Floats(1000, 7));
  x *= x;  // two reads of the element that is written
  EXPECT_EQ(address(x), before);
  EXPECT_EQ(floats(x), Floats(1000, 49));
}

TEST_F(Overwrites, SeveralAtOnceBesideWhatIsKept) {
  Tensor a = filled(5000, 1), b = filled(5000, 2), c = filled(5000, 3);
  const Tensor kept = filled(5000, 4);
  const auto addresses = [&] { return std::set{address(a), address(b), address(c)}; };
  const auto before = addresses();
  for (int i = 0; i < 3; ++i) {
    a += kept, b += a * kept, c -= b + kept;  // one kernel, four operands, three results
    sync(std::vector{a, b, c});
  }
  EXPECT_EQ(addresses(), before);
  EXPECT_EQ(floats(kept), Floats(5000, 4));
  EXPECT_EQ(floats(a), Floats(5000, 13));
  EXPECT_EQ(floats(b), Floats(5000, 2 + 4 * (5 + 9 + 13)));
  EXPECT_EQ(floats(c), Floats(5000, 3 - (22 + 58 + 110) - 12));
}

TEST_F(Overwrites, AWriteThroughAViewMovesNothingElse) {
  const Tensor cache = zeros({4, 300, 8}).sync();
  const void* const before = address(cache);
  for (std::int64_t i = 0; i < 4; ++i) {
    cache.slice(1, i, i + 1).assign(full({4, 1, 8}, i + 1, DType::f32));
    EXPECT_EQ(address(cache), before) << i;
  }
  EXPECT_EQ(sum(cache).item<float>(), 10 * 32);
  EXPECT_EQ(floats(cache[3].slice(0, 0, 5).slice(1, 7, 8)), (Floats{1, 2, 3, 4, 0}));
}

TEST_F(Overwrites, AWriteOfWhatWasReadThroughAViewMovesNothingElse) {
  Tensor x = randn({300, 40}).sync(), wanted = (x * 1).sync();
  const void* const before = address(x);
  for (int i = 0; i < 3; ++i) {
    x[7] += 5;
    x.sync();  // in a statement of its own: the view lives as long as that
    x.slice(0, 10, 20).assign(x.slice(0, 20, 30) * 2);
    x.sync();
    x.select(1, 3) *= x.select(1, 3);
    x.sync();
    x[1] += 1, x[2] += x[1], x.slice(1, 5, 9) -= 3;  // several writes at once
    x.sync();
    ASSERT_EQ(address(x), before) << i;
  }
  const ModeGuard eager(Mode::eager);
  for (int i = 0; i < 3; ++i) {
    wanted[7] += 5;
    wanted.slice(0, 10, 20).assign(wanted.slice(0, 20, 30) * 2);
    wanted.select(1, 3) *= wanted.select(1, 3);
    wanted[1] += 1, wanted[2] += wanted[1], wanted.slice(1, 5, 9) -= 3;
  }
  EXPECT_EQ(floats(x), floats(wanted));
}

TEST_F(Overwrites, NotOfViewsThatAreReadLaterOrByOthers) {
  Tensor x = filled(5000, 1);
  const Tensor view = x.slice(0, 100, 4000);  // shows what x becomes
  const Tensor late = sum(x.slice(0, 0, 1000)) + sum(exp(x.slice(0, 1000, 2000)));
  const Tensor pending = x.slice(0, 5, 10) * 3;
  x.slice(0, 0, 3000) += 2;
  sync(std::vector{x, late});
  EXPECT_EQ(floats(view)[0], 3);
  EXPECT_EQ(floats(pending), Floats(5, 3));
  EXPECT_NEAR(late.item<float>(), 1000 + 1000 * std::exp(1.0), 1);
  EXPECT_EQ(sum(x).item<float>(), 5000 + 2 * 3000);
}

TEST_F(Overwrites, CompiledFunctionsWriteWhereArgumentsAre) {
  Tensor hidden = filled(5000, 1);
  const auto step = compile([hidden](const Tensor& cache, const Tensor& row, const Tensor& at) mutable {
    cache[3].assign(exp(row)), cache[4] += row;
    hidden += at;
    return sum(cache);
  });
  const Tensor cache = zeros({8, 500}).sync(), row = zeros({500}).sync(), one = ones({}).sync();
  const void *const of_cache = address(cache), *const of_hidden = address(hidden);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(step(cache, row, one).item<float>(), 500);
    EXPECT_EQ(address(cache), of_cache) << i;
    EXPECT_EQ(address(hidden), of_hidden) << i;
    EXPECT_EQ(floats(hidden), Floats(5000, static_cast<float>(1 + i)));
  }
}

TEST_F(Overwrites, CompiledFunctionsLeaveWhatOthersHave) {
  const auto add = compile([](Tensor x) {
    x += 1;
    return x * 2;
  });
  const auto swap = compile([](Tensor x, Tensor y) {
    const Tensor before = copy(x);
    x.assign(y), y.assign(before);
    return std::tuple<>();
  });
  const auto give_old = compile([](Tensor x) {
    const Tensor old = x.detach();
    x.assign(x * 3);
    return old;
  });
  for (int i = 0; i < 4; ++i) {
    Tensor x = filled(1000, 1);
    const Tensor same = x.detach(), pending = x * 5, view = x.slice(0, 0, 10);
    EXPECT_EQ(floats(add(x)), Floats(1000, 4));
    EXPECT_EQ(floats(x), Floats(1000, 2));
    EXPECT_EQ(floats(pending), Floats(1000, 5));
    EXPECT_EQ(floats(view), Floats(10, 2));
    EXPECT_EQ(floats(same).size(), 1000u);
    Tensor a = filled(1000, 1), b = filled(1000, 2);
    swap(a, b);
    EXPECT_EQ(floats(a), Floats(1000, 2));
    EXPECT_EQ(floats(b), Floats(1000, 1));
    Tensor z = filled(1000, 1);
    EXPECT_EQ(floats(give_old(z)), floats(z.detach())) << "a detached tensor shows its tensor";
    const float* const seen = z.data<float>();  // an address was handed out: writes land there
    add(z);
    EXPECT_EQ(z.data<float>(), seen);
    EXPECT_EQ(floats(z), Floats(1000, 4));
    std::vector<float> mine(1000, 1);
    Storage* const borrowed = Storage::adopt(
        mine.data(), 1000 * sizeof(float), [](Storage*) {}, nullptr);
    Tensor w(make_leaf({DType::f32, {1000}}, borrowed, BackendKey::cpu, Node::kTensor), keys_of(BackendKey::cpu));
    add(w);
    EXPECT_EQ(floats(w), Floats(1000, 2));
    EXPECT_EQ(mine, Floats(1000, 1));
  }
}

TEST_F(Overwrites, OfTheLastReadOnly) {
  Tensor x = filled(1000, 3);
  const Tensor late = sum(cos(x)) + sum(x);  // read by other steps of the same plan, perhaps after the write
  const Tensor old = x * 10;
  x += 1;
  sync(std::vector{x, late, old});
  EXPECT_EQ(floats(x), Floats(1000, 4));
  EXPECT_EQ(floats(old), Floats(1000, 30));
  EXPECT_NEAR(late.item<float>(), 1000 * (std::cos(3.0) + 3), 1e-1);
  EXPECT_EQ(floats(x - 4), Floats(1000, 0));
}

TEST_F(Overwrites, NotOfWhatOthersMayAskFor) {
  Tensor x = filled(1000, 1);
  const Tensor same = x.detach();  // the value, by another handle
  x += 1;
  EXPECT_EQ(floats(x), Floats(1000, 2));
  EXPECT_EQ(floats(same).size(), 1000u);
  Tensor y = filled(1000, 1);
  const Tensor pending = y * 5;  // recorded, computed later
  y += 1;
  y.sync();
  EXPECT_EQ(floats(pending), Floats(1000, 5));
  Tensor z = filled(1000, 1);
  const float* const seen = z.data<float>();  // an address was handed out: writes land there, and stay right
  z += 1;
  EXPECT_EQ(floats(z), Floats(1000, 2));
  EXPECT_EQ(z.data<float>(), seen);
  std::vector<float> mine(1000, 1);
  Storage* const borrowed = Storage::adopt(
      mine.data(), 1000 * sizeof(float), [](Storage*) {}, nullptr);
  Tensor w(make_leaf({DType::f32, {1000}}, borrowed, BackendKey::cpu, Node::kTensor), keys_of(BackendKey::cpu));
  w += 1;
  EXPECT_EQ(floats(w), Floats(1000, 2));
  EXPECT_EQ(mine, Floats(1000, 1));  // a caller's memory is not the engine's
}

TEST_F(Overwrites, NotOfWhatTheTapeComputesAgain) {
  Tensor x = filled(1000, 0.5);
  Tensor w = filled(1000, 2);
  w.requires_grad(true);
  const Tensor y = sum(square(x * 3 * w));  // the tape asks for x * 3, which is computed again from x
  x += 1;
  sync(std::vector{x, y});
  y.backward();
  EXPECT_EQ(floats(w.grad()), Floats(1000, 2 * 1.5f * 1.5f * 2));
  EXPECT_EQ(floats(x), Floats(1000, 1.5));
}

TEST_F(Overwrites, NotOfOtherLayoutsSizesOrDtypes) {
  Tensor x = reshape(arange(12).astype(DType::f32), {3, 4}).sync();
  x.assign(flip(x));  // reads elements that lie elsewhere
  EXPECT_EQ(floats(x), (Floats{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  x.assign(x - max(x, 1, true));
  EXPECT_EQ(floats(x), (Floats{0, -1, -2, -3, 0, -1, -2, -3, 0, -1, -2, -3}));
  Tensor s = reshape(arange(16).astype(DType::f32), {4, 4}).sync();
  s.assign(s.mT() + s);
  EXPECT_EQ(floats(s)[1], 5);
  EXPECT_EQ(floats(s)[4], 5);
  Tensor row = filled(1, 2);
  row.assign(sum(broadcast_to(row, {5}), 0, true));
  EXPECT_EQ(floats(row), Floats{10});
  Tensor v = filled(8, 1);
  v.slice(0, 0, 4).assign(v.slice(0, 4, 8) + 1), v.slice(0, 4, 8).assign(v.slice(0, 0, 4));  // from the same cache
  EXPECT_EQ(floats(v), Floats(8, 2));
}

TEST_F(Overwrites, ProductsThatReadWhatTheirTilesWrite) {
  Tensor x = (randn({256, 256}) * 0.1).sync();
  const Tensor before = copy(x).sync();
  x += matmul(x, x);
  x.sync();
  const ModeGuard eager(Mode::eager);
  EXPECT_LT(max(abs(x - (before + matmul(before, before)))).item<double>(), 1e-5);
}

TEST_F(Overwrites, AFailureLeavesOperandsUntouched) {
  Tensor x = filled(1000, 1);
  const Tensor index = full({3}, 5000, DType::i64).sync();
  x += 1;
  const Tensor wrong = take(x, index, 0);  // the value that x has after the write
  EXPECT_THROW(sync(std::vector{x, wrong}), IndexError);
  EXPECT_EQ(floats(x), Floats(1000, 2));
}

TEST_F(Overwrites, ALostOperandIsAnError) {
  Tensor x = filled(10, 1);
  const Tensor y = x + 1;
  Storage* const buffer = x.node()->storage.exchange(Storage::overwritten());
  EXPECT_EQ(testing::message_without_place<OutOfMemoryError>([&] { y.sync(); }),
            "FM3003 OutOfMemoryError: add: an operand was overwritten by a run that then failed\n"
            "  hint assign a new value to the tensor that was written in place");
  x.node()->storage.exchange(buffer)->release();
  EXPECT_EQ(floats(y), Floats(10, 2));
}

TEST_F(Overwrites, ThreadsThatRaceForOneResultAgree) {
  constexpr int kThreads = 4, kRounds = 300;
  Tensor state = filled(20000, 0);
  for (int round = 1; round <= kRounds; ++round) {
    state += 1;
    const Tensor doubled = state * 2;
    std::atomic<int> waiting{kThreads}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        const ModeGuard compiled(Mode::compiled);
        for (--waiting; waiting.load() > 0;) std::this_thread::yield();
        const Tensor& mine = t % 2 == 0 ? state : doubled;
        const Floats got = floats(mine);
        for (const float v : got) wrong += v != static_cast<float>(t % 2 == 0 ? round : 2 * round);
      });
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(wrong.load(), 0) << "round " << round;
  }
}

}  // namespace
}  // namespace fermata
