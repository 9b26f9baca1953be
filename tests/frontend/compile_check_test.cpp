// compile(fn) is never silently another program: the second call records again, and what differs is an error with its
// line.
#include <gtest/gtest.h>

#include <string>

#include "fermata/fermata.h"
#include "fermata/library.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using testing::message;

Tensor plus(const Tensor& x, float n) {
  const Elements from(x);
  const Tensor out = empty(x.shape(), DType::f32);
  for (std::int64_t i = 0; i < from.count(); ++i) elements_to_fill<float>(out)[i] = from.data<float>()[i] + n;
  return out;
}
FERMATA_LIBRARY(check_test, m) { m.def("shift(Tensor x) -> Tensor"); }
FERMATA_LIBRARY_IMPL(check_test, CPU, m) {
  m.impl("shift", [](const Tensor& x) { return plus(x, 1); });
}
FERMATA_LIBRARY_IMPL(check_test, Meta, m) {
  m.impl("shift", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
}
FERMATA_LIBRARY_IMPL(check_test, User1, m) {
  m.impl("shift", [](const Tensor& x) { return x * 100; });
}
Tensor shift(const Tensor& x) {
  static const auto op = OperatorHandle::find("check_test::shift").typed<Tensor(const Tensor&)>();
  return op(x);
}

/// The line after the one that asks.
constexpr unsigned line(std::source_location here = std::source_location::current()) { return here.line() + 1; }
std::string place(unsigned line) { return "frontend/compile_check_test.cpp:" + std::to_string(line); }
std::string expected(const std::string& what, unsigned where) {
  return "FM1702 UserError: a compiled function recorded a different program than at its first call: " + what +
         "\n  at   " + place(where) +
         "\n  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting";
}

class CompileCheck : public ::testing::Test {
 protected:
  CompileCheck() : before_(set_check_replay(false)) {}
  ~CompileCheck() override { set_check_replay(before_); }
  const Tensor x_ = tensor({1.0f, 2.0f});

 private:
  const ModeGuard mode_{Mode::compiled};
  const bool before_;
};

TEST_F(CompileCheck, ACapturedNumberThatChanges) {
  double factor = 2;
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return x * factor; });
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{2.0f, 4.0f}));
  factor = 3;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(message<UserError>([&] { f(x_); }), expected("the number of multiply is 3, and was 2", where));
  factor = 2;
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{2.0f, 4.0f}));
}

TEST_F(CompileCheck, NumbersOfEveryOp) {
  float low = 1;
  std::int64_t start = 0, fill = 7;
  const auto where = line();
  auto clamped = compile([&](const Tensor& x) { return maximum(x, low); });
  const auto cut = line();
  auto part = compile([&](const Tensor& x) { return x.slice(0, start, start + 1) + 1; });
  const auto made = line();
  auto filled = compile([&](const Tensor& x) { return full({2}, fill) + astype(x, DType::i64); });
  clamped(x_), part(x_), filled(x_);
  low = 1.5f, start = 1, fill = 8;
  EXPECT_EQ(message<UserError>([&] { clamped(x_); }), expected("the number of maximum is 1.5, and was 1", where));
  EXPECT_EQ(message<UserError>([&] { part(x_); }), expected("the arguments of slice are [1, 1], and were [0, 1]", cut));
  EXPECT_EQ(message<UserError>([&] { filled(x_); }), expected("the number of full is 8, and was 7", made));
}

TEST_F(CompileCheck, ACapturedBool) {
  bool other = false;
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return other ? sin(x) : cos(x); });
  f(x_);
  other = true;
  EXPECT_EQ(message<UserError>([&] { f(x_); }), expected("it does not call cos here, but calls sin", where));
}

TEST_F(CompileCheck, ALoopOfAnotherLength) {
  int steps = 2;
  auto f = compile([&](Tensor x) {
    for (int i = 0; i < steps; ++i) x = exp(x);
    return x;
  });
  const auto where = std::to_string(__LINE__ - 3);
  f(x_);
  steps = 3;
  EXPECT_EQ(
      message<UserError>([&] { f(x_); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: it calls exp, and "
      "did not\n"
      "  at   frontend/compile_check_test.cpp:" +
          where +
          "\n"
          "  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting");
}

TEST_F(CompileCheck, AHandleThatIsReplaced) {
  Tensor w = tensor({2.0f, 3.0f});
  const Tensor kept = w;
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return x + w; });
  f(x_);
  w = tensor({2.0f, 3.0f});
  EXPECT_EQ(message<UserError>([&] { f(x_); }), expected("add reads another tensor, f32[2]", where));
  w = kept;
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{3.0f, 5.0f}));
}

TEST_F(CompileCheck, AHandleThatIsReplacedAndForgotten) {
  Tensor w = tensor({2.0f, 3.0f});
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return x + w; });
  f(x_);
  w = w * 2;
  EXPECT_EQ(message<UserError>([&] { f(x_); }), expected("add reads another tensor, f32[2]", where));
}

TEST_F(CompileCheck, AHandleThatTheFunctionReplaces) {
  Tensor state = tensor({1.0f});
  unsigned where = 0;
  auto f = compile([&](const Tensor& x) {
    where = line();
    state = state + x;
    return state * 2;
  });
  EXPECT_EQ(f(tensor({1.0f})).item<float>(), 4);
  EXPECT_EQ(message<UserError>([&] { f(tensor({1.0f})); }),
            expected("add reads a constant with other elements, f32[1]", where));
}

TEST_F(CompileCheck, ConstantsMadeInside) {
  std::vector<float> table{1, 2};
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return x * tensor(table); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{1.0f, 4.0f}));
  auto g = compile([&](const Tensor& x) { return x * tensor(table); });
  g(x_);
  table[1] = 5;
  const auto again = where + 2;
  EXPECT_EQ(
      message<UserError>([&] { g(x_); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: multiply reads a "
      "constant with "
      "other elements, f32[2]\n  at   frontend/compile_check_test.cpp:" +
          std::to_string(again) +
          "\n  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting");
}

TEST_F(CompileCheck, WhatIsInsideControlFlow) {
  double factor = 2;
  auto f = compile([&](const Tensor& x) {
    return fori_loop(
        0, 3, [&](const Tensor&, const Tensor& v) { return v * factor; }, x);
  });
  const auto where = std::to_string(__LINE__ - 2);
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{8.0f, 16.0f}));
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{8.0f, 16.0f}));
  auto g = compile([&](const Tensor& x) {
    return fori_loop(
        0, 3, [&](const Tensor&, const Tensor& v) { return v * factor; }, x);
  });
  g(x_);
  factor = 3;
  EXPECT_EQ(
      message<UserError>([&] { g(x_); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: the number of "
      "multiply is 3, and "
      "was 2\n  at   frontend/compile_check_test.cpp:" +
          std::to_string(std::stoi(where) + 7) +
          "\n  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting");
}

TEST_F(CompileCheck, ResultsAndWrites) {
  bool other = false;
  Tensor a = tensor({1.0f}), b = tensor({1.0f});
  const auto results = line();
  auto swapped = compile([&](const Tensor& x) { return other ? std::pair(b, x + 1) : std::pair(a, x + 1); });
  const auto writes = line();
  auto written = compile([&](const Tensor& x) {
    const Tensor v = x * 3;
    (other ? a : b).assign(v);
    return v;
  });
  swapped(x_), written(tensor({2.0f}));
  other = true;
  EXPECT_EQ(message<UserError>([&] { swapped(x_); }), expected("it gives another tensor, f32[1]", results));
  EXPECT_EQ(message<UserError>([&] { written(tensor({2.0f})); }), expected("it writes another tensor, f32[1]", writes));
  EXPECT_EQ(b.item<float>(), 6);
}

TEST_F(CompileCheck, LeavesNothingBehind) {
  Tensor state = tensor({1.0f}), w = tensor({2.0f});
  w.requires_grad(true);
  auto f = compile([&](const Tensor& x) {
    state += x;
    const Tensor loss = sum(w * x) + sum(rand({3}));
    loss.backward();
    return loss.detach();
  });
  manual_seed(3);
  std::vector<float> got, want;
  for (int i = 0; i < 4; ++i) got.push_back(f(tensor({1.0f})).item<float>());
  EXPECT_EQ(state.item<float>(), 5);
  EXPECT_EQ(w.grad().item<float>(), 4);
  EXPECT_EQ(default_generator().offset(), 16u);
  manual_seed(3);
  for (int i = 0; i < 4; ++i) want.push_back((2 + sum(rand({3}))).item<float>());
  EXPECT_EQ(got, want);
}

TEST_F(CompileCheck, RandomNumbersMoveOnAndAreNoDifference) {
  auto f = compile([](const Tensor& x) { return x + rand({2}); });
  manual_seed(1);
  f(x_), f(x_);
  manual_seed(2);
  f(x_);
  set_check_replay(true);
  for (int i = 0; i < 3; ++i) f(x_);
}

TEST_F(CompileCheck, EveryCallWhereThatIsAskedFor) {
  double factor = 2;
  const auto where = line();
  auto f = compile([&](const Tensor& x) { return x * factor; });
  for (int i = 0; i < 3; ++i) f(x_);
  factor = 5;
  EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{2.0f, 4.0f}));  // docs/modes.md says that this is not found out
  set_check_replay(true);
  EXPECT_EQ(message<UserError>([&] { f(x_); }), expected("the number of multiply is 5, and was 2", where));
}

TEST_F(CompileCheck, CountsOfDraws) {
  int count = 4;
  auto f = compile([&](const Tensor& x) {
    static_cast<void>(rand({count}));
    return x + 1;
  });
  f(x_);
  count = 8;
  EXPECT_EQ(
      testing::message_without_place<UserError>([&] { f(x_); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: it draws 8 random "
      "numbers, and drew 4\n"
      "  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting");
}

// ---- Keys of a capture
// -------------------------------------------------------------------------------------------------

TEST_F(CompileCheck, ThreadKeysTellCapturesApart) {
  auto f = compile([](const Tensor& x) { return x * 2; });
  f(x_), f(x_);
  {
    const KeyGuard user(Functionality::user1, {});
    f(x_), f(x_);
  }
  f(x_);
  EXPECT_EQ(f.captures(), 2u);
  {
    const KeyGuard without({}, Functionality::ad_inplace_or_view);
    f(x_);
  }
  EXPECT_EQ(f.captures(), 3u);
}

TEST_F(CompileCheck, AKernelOfAUserKeyStaysWithItsGuard) {
  auto first_outside = compile(&shift), first_inside = compile(&shift);
  for (auto* f : {&first_outside, &first_inside}) {
    const auto inside = [&] {
      const KeyGuard user(Functionality::user1, {});
      for (int i = 0; i < 2; ++i) EXPECT_EQ((*f)(x_).to_vector<float>(), (std::vector{100.0f, 200.0f}));
    };
    if (f == &first_inside) inside();
    for (int i = 0; i < 2; ++i) EXPECT_EQ((*f)(x_).to_vector<float>(), (std::vector{2.0f, 3.0f}));
    inside();
    EXPECT_EQ((*f)(x_).to_vector<float>(), (std::vector{2.0f, 3.0f}));
  }
}

TEST_F(CompileCheck, RegistrationsAreMet) {
  auto f = compile(
      [](const Tensor& x) { return OperatorHandle::find("check_again::f").typed<Tensor(const Operand&)>()(x) + 1; });
  {
    Library m(Library::Kind::fragment, "check_again");
    m.pointwise<DTypeRule::numeric>("f", [](auto v) { return v * v; });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{2.0f, 5.0f}));
  }
  EXPECT_THROW(f(x_), UnsupportedError);
  Library m(Library::Kind::fragment, "check_again");
  m.pointwise<DTypeRule::numeric>("f", [](auto v) { return v + v; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x_).to_vector<float>(), (std::vector{3.0f, 5.0f}));
  EXPECT_EQ(f.captures(), 1u);
}

TEST_F(CompileCheck, ASeedInsideIsRunAndNotReplayed) {
  auto f = compile([](const Tensor& x) {
    manual_seed(9);
    return x + rand({2});
  });
  const auto first = f(x_).to_vector<float>();
  manual_seed(4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x_).to_vector<float>(), first);
  EXPECT_EQ(default_generator().key(), 9u);
}

}  // namespace
}  // namespace fermata
