// One table in every mode: what is registered, replaced or taken away changes what a program means, in each way that it
// runs; how it runs never does.
#include <fermata/library.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "dispatch/kernel_table.h"
#include "ir/error.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

using Kind = Library::Kind;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}

Tensor values(std::initializer_list<float> numbers) {
  const Tensor t = tensor(std::vector<float>(numbers));
  t.sync();
  return t;
}

/// The program gives `expected` in every way.
void expect_everywhere(const TestProgram& program, const Numbers& expected) {
  for (const auto& [way, numbers] : in_every_way(program)) EXPECT_EQ(numbers, expected) << way;
}

Tensor sevens(const TensorType& type) { return full(type.shape, 7, type.dtype); }

// ---- Kernels that replace built-in ones
// ------------------------------------------------------------------------------

/// Sevens in the type that the op would give by itself.
void replace_by_sevens(Library& m, const std::string& op, const TensorType& type) {
  m.impl_boxed(op, [type](const Call&, Stack& stack) { stack.assign(1, sevens(type)); }, {.replaces = true});
}

TEST(OneTable, AKernelThatReplacesABuiltInOneRunsInEveryMode) {
  const Tensor x = values({0.5f, -1, 2, 3}), square = values({1, 2, 3, 4}).reshape({2, 2}).sync(),
               mask = (x > 0).sync(), z = complex(x, 1 - x).sync();
  struct Case {
    const char* op;
    TensorType type;
    TestProgram program;
  };
  const TensorType four{DType::f32, {4}}, none{DType::f32, {}}, two{DType::f32, {2, 2}}, eight{DType::f32, {8}},
      four_complex{DType::c64, {4}};
  const Case cases[] = {
      {"tanh", four, [=] { return std::vector{tanh(x)}; }},
      {"add", four, [=] { return std::vector{x + x}; }},
      {"matmul", two, [=] { return std::vector{matmul(square, square)}; }},
      {"sum", none, [=] { return std::vector{sum(x)}; }},
      {"where", four, [=] { return std::vector{where(mask, x, x)}; }},
      {"concat", eight,
       [=] {
         return std::vector{concat({x, x}, 0)};
       }},
      {"sort", four, [=] { return std::vector{sort(x)}; }},
      {"permute", two,
       [=] {
         return std::vector{permute(square, {1, 0})};
       }},
      {"cast", {DType::i32, {4}}, [=] { return std::vector{astype(x, DType::i32)}; }},
      {"softmax", four, [=] { return std::vector{softmax(x, 0)}; }},
      {"mean", none, [=] { return std::vector{mean(x)}; }},
      {"multiply", four_complex, [=] { return std::vector{real(z * z)}; }},
      {"where", four_complex, [=] { return std::vector{real(where(mask, z, z))}; }},
      {"complex", four_complex, [=] { return std::vector{real(complex(x, x))}; }},
      {"cast", four_complex, [=] { return std::vector{real(astype(x, DType::c64))}; }},
      {"conj", four_complex, [=] { return std::vector{real(conj(z))}; }},
      {"abs", four, [=] { return std::vector{abs(z)}; }},
      {"imag", four, [=] { return std::vector{imag(z)}; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op);
    const auto before = in_every_way(c.program);
    for (const auto& [way, numbers] : before) EXPECT_EQ(numbers, before[0].second) << way;
    {
      Library cpu(Kind::implementation, "fermata", "CPU");
      replace_by_sevens(cpu, c.op, c.type);
      if (std::string_view(c.op) == "cast") continue;  // numbers_of() casts, too
      expect_everywhere(c.program, Numbers(static_cast<std::size_t>(element_count(c.type.shape)), 7));
    }
    expect_everywhere(c.program, before[0].second);
  }
}

TEST(OneTable, ACastThatIsReplacedIsSeenInEveryMode) {
  const Tensor x = values({0.5f, -1, 2, 3});
  Library cpu(Kind::implementation, "fermata", "CPU");
  replace_by_sevens(cpu, "cast", {DType::i32, {4}});
  const auto read = [](const Tensor& t) { return t.to_vector<std::int32_t>(); };
  {
    const ModeGuard eager(Mode::eager);
    EXPECT_THAT(read(astype(x, DType::i32)), Each(7));
  }
  for (int sight = 0; sight < 3; ++sight) EXPECT_THAT(read(astype(x, DType::i32)), Each(7));
  auto compiled = compile([&] { return astype(x, DType::i32); });
  for (int call = 0; call < 3; ++call) EXPECT_THAT(read(compiled()), Each(7));
}

TEST(OneTable, TransformsAndControlFlowSeeAReplacedKernel) {
  const Tensor x = values({0.5f, -1}), rows = values({1, 2, 3, 4}).reshape({2, 2}).sync();
  const auto in_vmap = [=] { return std::vector{vmap([](const Tensor& row) { return tanh(row); })(rows)}; };
  const auto in_loop = [=] {
    return std::vector{fori_loop(
        0, 2, [](const Tensor&, const Tensor& t) { return tanh(t) + 1; }, x)};
  };
  const auto forward_of_gradient = [=] {
    Tensor w = x.detach();
    w.requires_grad(true);
    const Tensor y = tanh(w);
    return std::vector{y.detach(), gradients(sum(y), {w})[0]};
  };
  Library cpu(Kind::implementation, "fermata", "CPU");
  cpu.impl("tanh", [](const Operand& v) { return full(v.tensor().shape(), 7, v.tensor().dtype()); },
           {.replaces = true});
  expect_everywhere(in_vmap, {7, 7, 7, 7});
  expect_everywhere(in_loop, {8, 8});
  const auto results = in_every_way(forward_of_gradient);
  for (const auto& [way, numbers] : results) EXPECT_EQ(numbers, results[0].second) << way;
  EXPECT_EQ(results[0].second[0], 7);
}

TEST(OneTable, ASecondKernelHasToSayThatItReplacesTheFirst) {
  Library cpu(Kind::implementation, "fermata", "CPU");
  EXPECT_THAT(message_of([&] { cpu.impl("tanh", [](const Operand&) { return ones({2}); }); }),
              HasSubstr("FM1515 ValueError: tanh: duplicate kernel for CPU\n"));
}

TEST(OneTable, AVariantBesideTheBuiltInOnesIsChosenByItsConditionInEveryMode) {
  const Tensor two = values({1, 2}), three = values({1, 2, 3});
  const auto program = [=] { return std::vector{abs(two), abs(three)}; };
  Library cpu(Kind::implementation, "fermata", "CPU");
  cpu.impl("abs", [](const Operand& x) { return x.tensor() * 0 + 7; },
           {.variant = "of two",
            .fits = [](const Stack& stack) { return stack[0].as<Tensor>().size(0) == 2; },
            .fits_text = "two elements",
            .cost = -1});
  expect_everywhere(program, {7, 7, 1, 2, 3});
}

TEST(OneTable, AVariantThatIsCheaperIsChosenAtEverySight) {
  static bool fits_now = true;
  add_variant(Op::sinh, BackendKey::cpu,
              {.name = "sevens",
               .form = KernelForm::library,
               .dtypes = DType::f32,
               .call =
                   [](const CallArgs& args) {
                     auto* out = static_cast<float*>(args.outputs[0].data);
                     for (std::int64_t i = 0; i < args.outputs[0].element_count(); ++i) out[i] = 7;
                   },
               .fits = [](const CallArgs&) { return fits_now; },
               .cost = [](const CallArgs&) { return -1e9; }});
  const Tensor x = values({0.5f, 1});
  expect_everywhere([=] { return std::vector{sinh(x) + 1}; }, {8, 8});
  fits_now = false;
  const auto results = in_every_way([=] { return std::vector{sinh(x)}; });
  for (const auto& [way, numbers] : results) EXPECT_EQ(numbers, results[0].second) << way;
  EXPECT_NEAR(results[0].second[0], 0.521095, 1e-5);
}

TEST(OneTable, ExplainListsTheKernelThatTheRowNames) {
  const Tensor x = values({0.5f, 1});
  Library cpu(Kind::implementation, "fermata", "CPU");
  cpu.impl("tanh", [](const Operand& v) { return full(v.tensor().shape(), 7, v.tensor().dtype()); },
           {.replaces = true});
  const std::string text = explain(tanh(x) + 1);
  EXPECT_THAT(text, HasSubstr("kernel::tanh"));
  EXPECT_THAT(text, HasSubstr("default (call, "));
  EXPECT_THAT(text, HasSubstr("one_table_test.cpp:"));
  EXPECT_THAT(describe_row("tanh"), HasSubstr("one_table_test.cpp:"));
  EXPECT_THAT(describe_variants(Op::tanh), HasSubstr("one_table_test.cpp:"));
  EXPECT_THAT(describe_variants(Op::tanh), HasSubstr("after the kernel above"));
}

TEST(OneTable, AnOperatorThatIsDefinedAnewOrTakenAwayIsSeenByWhatWasCaptured) {
  const Tensor x = values({2, 3});
  auto captured = compile([&] { return OperatorHandle::find("again::f").typed<Tensor(const Operand&)>()(x); });
  {
    Library m(Kind::definition, "again");
    m.pointwise<DTypeRule::floating>("f", [](auto v) { return v * v; });
    EXPECT_THAT(captured().to_vector<float>(), ElementsAre(4, 9));
    EXPECT_THAT(captured().to_vector<float>(), ElementsAre(4, 9));
  }
  {
    Library m(Kind::definition, "again");
    m.pointwise<DTypeRule::floating>("f", [](auto v) { return v + decltype(v)(100); });
    EXPECT_THAT(captured().to_vector<float>(), ElementsAre(102, 103));
  }
  EXPECT_THAT(message_of([&] { captured(); }), HasSubstr("FM2006"));
}

TEST(OneTable, ACaptureBelongsToTheKeysThatItRanUnder) {
  Library user(Kind::implementation, "fermata", "User1");
  user.impl_boxed("exp", [](const Call&, Stack& stack) { stack.assign(1, full({2}, 7)); }, {.replaces = true});
  const Tensor x = values({0, 0});
  auto captured = compile([&] { return exp(x); });
  const auto with_key = [&] {
    const KeyGuard on(Functionality::user1, {});
    return captured().to_vector<float>();
  };
  EXPECT_THAT(with_key(), ElementsAre(7, 7));
  EXPECT_THAT(captured().to_vector<float>(), ElementsAre(1, 1));
  EXPECT_THAT(with_key(), ElementsAre(7, 7));
}

// ---- A recorded call keeps its dispatch
// ------------------------------------------------------------------------------

TEST(OneTable, AKernelRunsUnderTheKeysOfItsCall) {
  Library def(Kind::definition, "keys"), cpu(Kind::implementation, "keys", "CPU"),
      meta(Kind::implementation, "keys", "Meta");
  def.def("pure product(Tensor x) -> Tensor");
  cpu.impl("product", [](const Tensor& x) { return astype(matmul(x, x), DType::f32); });
  meta.impl("product", [](const Tensor& x) { return meta_tensor({DType::f32, x.shape()}); });
  const auto product = OperatorHandle::find("keys::product").typed<Tensor(const Tensor&)>();
  const Tensor x = full({1, 1}, std::sqrt(2.0)).sync();
  const auto in_region = [=] {
    const AutocastGuard region;
    return std::vector{product(x)};
  };
  const auto outside = [=] { return std::vector{product(x)}; };
  const auto results = in_every_way(in_region), plain = in_every_way(outside);
  for (const auto& [way, numbers] : results) EXPECT_EQ(numbers, results[0].second) << way;
  for (const auto& [way, numbers] : plain) EXPECT_EQ(numbers, plain[0].second) << way;
  EXPECT_NE(results[0].second, plain[0].second) << "the region changes what the kernel computes";
}

TEST(OneTable, AKernelUnderAUserKeyFindsItInEveryMode) {
  Library def(Kind::definition, "ukeys"), cpu(Kind::implementation, "ukeys", "CPU"),
      meta(Kind::implementation, "ukeys", "Meta");
  def.def("f(Tensor x) -> Tensor");
  cpu.impl("f", [](const Tensor& x) {
    return full(x.shape(), thread_keys.included.has(Functionality::user2) ? 1.0f : 0.0f);
  });
  meta.impl("f", [](const Tensor& x) { return meta_tensor({DType::f32, x.shape()}); });
  const auto f = OperatorHandle::find("ukeys::f").typed<Tensor(const Tensor&)>();
  const Tensor x = values({1});
  expect_everywhere(
      [=] {
        const KeyGuard on(Functionality::user2, {});
        return std::vector{f(x)};
      },
      {1});
  expect_everywhere([=] { return std::vector{f(x)}; }, {0});
}

TEST(OneTable, KernelsMayWriteCopiesAndTakeGradients) {
  Library def(Kind::definition, "inner"), cpu(Kind::implementation, "inner", "CPU"),
      meta(Kind::implementation, "inner", "Meta");
  def.def("fill(Tensor x) -> Tensor").def("slope(Tensor x) -> Tensor");
  cpu.impl("fill", [](const Tensor& x) {
    const Tensor t = copy(x).reshape({2, 2});
    t[1].assign(9);
    return t.reshape({4});
  });
  cpu.impl("slope", [](const Tensor& x) {
    Tensor w = x.detach();
    w.requires_grad(true);
    sum(w * w).backward();
    return w.grad();
  });
  for (const char* name : {"fill", "slope"})
    meta.impl(name, [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const Tensor x = full({4}, 1.0f).sync();
  const auto fill = OperatorHandle::find("inner::fill").typed<Tensor(const Tensor&)>();
  const auto slope = OperatorHandle::find("inner::slope").typed<Tensor(const Tensor&)>();
  expect_everywhere([=] { return std::vector{fill(x)}; }, {1, 1, 9, 9});
  expect_everywhere([=] { return std::vector{slope(x * 3)}; }, {6, 6, 6, 6});
}

TEST(OneTable, AKernelOfDifferentiableCallsHasTheirDerivative) {
  Library def(Kind::definition, "diff"), cpu(Kind::implementation, "diff", "CPU"),
      meta(Kind::implementation, "diff", "Meta");
  def.def("square(Tensor x) -> Tensor");
  cpu.impl("square", [](const Tensor& x) { return x * x; });
  meta.impl("square", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto square = OperatorHandle::find("diff::square").typed<Tensor(const Tensor&)>();
  const Tensor x = values({3, 4});
  expect_everywhere(
      [=] {
        Tensor w = x.detach();
        w.requires_grad(true);
        return std::vector{gradients(sum(square(w)), {w})[0]};
      },
      {6, 8});
}

// ---- A player that may be entered again
// -------------------------------------------------------------------------------

TEST(OneTable, AKernelMayComputeWhatIsPending) {
  Library def(Kind::definition, "reenter"), cpu(Kind::implementation, "reenter", "CPU"),
      meta(Kind::implementation, "reenter", "Meta");
  def.def("f(Tensor x) -> Tensor");
  static Tensor outside;
  cpu.impl("f", [](const Tensor& x) {
    const ModeGuard compiled(Mode::compiled);
    const Tensor more = (outside * 2 + x) * 1;
    return full(x.shape(), more.to_vector<float>()[0]);
  });
  meta.impl("f", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto f = OperatorHandle::find("reenter::f").typed<Tensor(const Tensor&)>();
  const Tensor x = values({1, 1});
  expect_everywhere(
      [=] {
        outside = x * 10 + 1;  // pending, where calls are recorded
        const Tensor y = f(x + 0) + 0;
        return std::vector{y, f(y) + x};
      },
      {23, 23, 46, 46});
  outside = Tensor();
}

TEST(OneTable, AKernelMayKeepItsArguments) {
  Library def(Kind::definition, "keep"), cpu(Kind::implementation, "keep", "CPU"),
      meta(Kind::implementation, "keep", "Meta");
  def.def("f(Tensor x) -> Tensor");
  static std::vector<Tensor> kept;
  cpu.impl("f", [](const Tensor& x) {
    kept.push_back(x);
    return x * 1;
  });
  meta.impl("f", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto f = OperatorHandle::find("keep::f").typed<Tensor(const Tensor&)>();
  const Tensor x = values({1, 2, 3, 4});
  const auto program = [=] { return std::vector{(f(x * 2) - 5) * 3, (f(x * 4).reshape({2, 2}) + 1).reshape({4})}; };
  expect_everywhere(program, {-9, -3, 3, 9, 5, 9, 13, 17});
  for (int i = 0; i < 20; ++i) (values({-3, -3, -3, -3}) * i + 1).sync();  // uses memory again
  ASSERT_GE(kept.size(), 18u);
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_THAT(kept[i].to_vector<float>(), i % 2 == 0 ? ElementsAre(2, 4, 6, 8) : ElementsAre(4, 8, 12, 16)) << i;
  kept.clear();
}

TEST(OneTable, AValueThatFourThreadsWantIsComputedOnce) {
  Library def(Kind::definition, "once"), cpu(Kind::implementation, "once", "CPU"),
      meta(Kind::implementation, "once", "Meta");
  def.def("f(Tensor x) -> Tensor");
  static std::atomic<int> runs{0};
  cpu.impl("f", [](const Tensor& x) {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return x + 1;
  });
  meta.impl("f", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto f = OperatorHandle::find("once::f").typed<Tensor(const Tensor&)>();
  const Tensor x = values({1, 2});
  for (int round = 0; round < 4; ++round) {
    runs = 0;
    const Tensor y = f(x * 2) * 3, z = y + 1;
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const std::vector<float> got = (i % 2 == 0 ? y : z).to_vector<float>();
        right += got[0] == (i % 2 == 0 ? 9.0f : 10.0f);
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(runs, 1) << round;
    EXPECT_EQ(right, 4) << round;
  }
}

TEST(OneTable, TwoKernelsThatWaitForEachOtherEnd) {
  Library def(Kind::definition, "circle"), cpu(Kind::implementation, "circle", "CPU"),
      meta(Kind::implementation, "circle", "Meta");
  def.def("pure f(Tensor x, int other) -> Tensor");
  static Tensor pending[2];
  static std::atomic<int> depth{0};
  cpu.impl("f", [](const Tensor& x, std::int64_t other) {
    if (++depth <= 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      static_cast<void>(pending[other].to_vector<float>());
    }
    return x + 1;
  });
  meta.impl("f", [](const Tensor& x, std::int64_t) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto f = OperatorHandle::find("circle::f").typed<Tensor(const Tensor&, std::int64_t)>();
  const Tensor x = values({1});
  pending[0] = f(x, 1), pending[1] = f(x, 0);
  std::thread a([] { pending[0].sync(); }), b([] { pending[1].sync(); });
  a.join(), b.join();
  EXPECT_EQ(pending[0].item<float>(), 2);
  EXPECT_EQ(pending[1].item<float>(), 2);
  pending[0] = pending[1] = Tensor();
}

// ---- Operators that write, and that have several results
// --------------------------------------------------------------

TEST(OneTable, OperatorsThatWriteOrHaveSeveralResultsAreSteps) {
  Library def(Kind::definition, "steps"), cpu(Kind::implementation, "steps", "CPU"),
      meta(Kind::implementation, "steps", "Meta");
  def.def("pure add_(Tensor(a!) x, Tensor y) -> Tensor(a!)").def("pure minmax(Tensor x) -> (Tensor, Tensor)");
  def.def("pure swap_(Tensor(a!) x, Tensor(b!) y) -> Tensor");
  cpu.impl("add_", [](Tensor& x, const Tensor& y) {
    x += y;
    return x;
  });
  cpu.impl("minmax", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(min(x), astype(max(x), DType::i32)); });
  meta.impl("minmax", [](const Tensor& x) {
    return std::tuple<Tensor, Tensor>(meta_tensor({x.dtype(), {}}), meta_tensor({DType::i32, {}}));
  });
  cpu.impl("swap_", [](Tensor& x, Tensor& y) {
    const Tensor was = copy(x);
    x.assign(y), y.assign(was);
    return sum(x);
  });
  meta.impl("swap_", [](const Tensor& x, const Tensor&) { return meta_tensor({x.dtype(), {}}); });
  const auto add_ = OperatorHandle::find("steps::add_").typed<Tensor(const Tensor&, const Tensor&)>();
  const auto minmax = OperatorHandle::find("steps::minmax").typed<std::tuple<Tensor, Tensor>(const Tensor&)>();
  const auto swap_ = OperatorHandle::find("steps::swap_").typed<Tensor(const Tensor&, const Tensor&)>();
  const Tensor x = values({1, 2, 3, 4});
  const auto program = [=] {
    const Tensor t = (x * 2).reshape({2, 2}), other = x + 100, before = t + 0;
    add_(t[1], t[0]);
    const auto [low, high] = minmax(t);
    const Tensor flat = t.reshape({4}) * 1;
    const Tensor total = swap_(flat, other);
    return std::vector{t, before, low, high, flat, other, total};
  };
  expect_everywhere(program, {2, 4, 8, 12, 2, 4, 6, 8, 2, 12, 101, 102, 103, 104, 2, 4, 8, 12, 410});
  const std::uint64_t before = stats().syncs;
  const std::vector<Tensor> pending = program();
  EXPECT_EQ(stats().syncs, before) << "recorded";
  sync(pending);
}

TEST(OneTable, SeveralResultsAreCheckedAgainstTheMetaKernel) {
  Library def(Kind::definition, "wrong"), cpu(Kind::implementation, "wrong", "CPU"),
      meta(Kind::implementation, "wrong", "Meta");
  def.def("two(Tensor x) -> (Tensor, Tensor)");
  cpu.impl("two", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(x, concat({x, x}, 0)); });
  meta.impl("two", [](const Tensor& x) {
    return std::tuple<Tensor, Tensor>(meta_tensor({x.dtype(), x.shape()}), meta_tensor({x.dtype(), x.shape()}));
  });
  const Tensor x = values({1, 2});
  const auto two = OperatorHandle::find("wrong::two").typed<std::tuple<Tensor, Tensor>(const Tensor&)>();
  EXPECT_THAT(message_of([&] { std::get<1>(two(x)).sync(); }),
              HasSubstr("FM2008 UnsupportedError: wrong::two: the result does not match the Meta kernel\n"
                        "  result f32[4]\n  Meta   f32[2]\n  at     dispatch/one_table_test.cpp:"));
  EXPECT_EQ((x * 2).to_vector<float>()[1], 4) << "the engine still works";
}

// ---- What traces say
// --------------------------------------------------------------------------------------------------

TEST(OneTable, ATraceSaysWhichResultsOfKernelsItHasFixed) {
  Library def(Kind::definition, "traced"), cpu(Kind::implementation, "traced", "CPU");
  def.def("raw(Tensor x) -> (Tensor, Tensor)").def("calls(Tensor x) -> (Tensor, Tensor)");
  cpu.impl("raw", [](const Tensor& x) {
    const std::vector<float> elements = x.to_vector<float>();
    return std::tuple<Tensor, Tensor>(tensor(elements), tensor(elements));
  });
  cpu.impl("calls", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(x * 2, x + 1); });
  const auto call = [](const char* name, const Tensor& x) {
    return std::get<0>(OperatorHandle::find(name).typed<std::tuple<Tensor, Tensor>(const Tensor&)>()(x));
  };
  const Tensor x = values({1, 2});
  const Trace raw = trace([&](const Tensor& t) { return call("traced::raw", t * 3); }, x);
  ASSERT_FALSE(raw.frozen.empty());
  EXPECT_THAT(raw.frozen, testing::Contains(HasSubstr("traced::raw at dispatch/one_table_test.cpp:")));
  const Trace calls = trace([&](const Tensor& t) { return call("traced::calls", t * 3); }, x);
  EXPECT_TRUE(calls.frozen.empty()) << "its calls are in the program";
  EXPECT_THAT(run_trace(calls, std::vector{values({5, 6})})[0].to_vector<float>(), ElementsAre(30, 36));
}

TEST(OneTable, TheDispatchTraceHasEveryStepThatRuns) {
  const PolicyGuard policy(CompilePolicy::immediate);
  const Tensor x = values({1, 2});
  testing::internal::CaptureStderr();
  set_trace_dispatch(true);
  (exp(x) + sort(x)).sync();
  set_trace_dispatch(false);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("exp [Capture/CPU]"));
  EXPECT_THAT(text, HasSubstr("sort [step/CPU]"));
  EXPECT_THAT(text, HasSubstr("exp_add [step/CPU]"));
}

// ---- Merging
// ----------------------------------------------------------------------------------------------------------

TEST(OneTable, CallsThatDifferInASizeAreNotMerged) {
  const PolicyGuard policy(CompilePolicy::immediate);
  const Tensor x = values({0, 1, 0, 2, 3});
  const std::vector<Tensor> found{flatnonzero(x, 2), flatnonzero(x, 5)};
  sync(found);
  EXPECT_THAT(found[0].to_vector<std::int64_t>(), ElementsAre(1, 3));
  EXPECT_EQ(found[1].to_vector<std::int64_t>()[2], 4);
  for (const std::int64_t size : {4, 4'000'000}) {
    const std::vector<Tensor> sizes{flatnonzero(x, 8), flatnonzero(x, size)};
    sync(sizes);
    EXPECT_EQ(sizes[1].size(0), size);
    EXPECT_EQ(sizes[0].to_vector<std::int64_t>()[1], 3);
  }
}

TEST(OneTable, APlanThatMergedEqualCallsServesNoOthers) {
  const Tensor z = fft::rfft(values({1, 2, 3, 4, 5, 6, 7, 8})).sync();
  const auto both = [&](std::int64_t a, std::int64_t b) {
    const std::vector<Tensor> results{fft::irfft(z, a), fft::irfft(z, b)};
    sync(results);
    return numbers_of(results);
  };
  const auto eager = [&](std::int64_t a, std::int64_t b) {
    const ModeGuard guard(Mode::eager);
    return numbers_of({fft::irfft(z, a), fft::irfft(z, b)});
  };
  const PolicyGuard policy(CompilePolicy::immediate);
  EXPECT_EQ(both(8, 8), eager(8, 8));
  EXPECT_EQ(both(8, 9), eager(8, 9));
  Library def(Kind::definition, "merged"), cpu(Kind::implementation, "merged", "CPU"),
      meta(Kind::implementation, "merged", "Meta");
  def.def("pure plus(Tensor x, int n) -> Tensor");
  cpu.impl("plus", [](const Tensor& x, std::int64_t n) { return x + n; });
  meta.impl("plus", [](const Tensor& x, std::int64_t) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto plus = OperatorHandle::find("merged::plus").typed<Tensor(const Tensor&, std::int64_t)>();
  const Tensor x = values({1});
  for (const std::int64_t n : {2, 3}) {
    const std::vector<Tensor> results{plus(x, 2), plus(x, n)};
    sync(results);
    EXPECT_EQ(numbers_of(results), (Numbers{3, 1.0 + static_cast<double>(n)}));
  }
}

}  // namespace
}  // namespace fermata
