// Custom operators in all features of the engine: recorded, fused, differentiated, written in place, traced.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <gmock/gmock.h>

#include <cmath>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

using Kind = Library::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

int scale_runs = 0;

Tensor scale_cpu(const Tensor& x, double factor) {
  ++scale_runs;
  const Elements in(x);
  const Tensor out = empty(x.shape(), DType::f32);
  const TensorView& v = in.view();
  auto* to = elements_to_fill<float>(out);
  const auto* from = static_cast<const float*>(v.data);
  // Up to two axes is all that these tests use.
  const std::int64_t rows = v.rank > 1 ? v.sizes[0] : 1, columns = v.rank > 0 ? v.sizes[v.rank - 1] : 1;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      *to++ = from[(v.rank > 1 ? i * v.strides[0] : 0) + (v.rank > 0 ? j * v.strides[v.rank - 1] : 0)] *
              static_cast<float>(factor);
  return out;
}

FERMATA_LIBRARY(ext, m) {
  m.def("scale(Tensor x, float factor=2) -> Tensor", "x times a number.");
  m.def("opaque(Tensor x) -> Tensor");  // no Meta kernel
  m.def("no_gradient(Tensor x) -> Tensor");
  m.def("add_(Tensor(a!) x, Tensor y) -> Tensor(a!)");
  m.def("sum_and_max(Tensor x) -> (Tensor, Tensor)");
  m.pointwise<DTypeRule::floating>(
      "mish", [](auto x) { return x * math::tanh(math::softplus(x)); }, "x tanh(softplus(x))");
  m.pointwise<DTypeRule::numeric>("lerp", [](auto a, auto b, auto t) { return a + (b - a) * t; });
}
FERMATA_LIBRARY_IMPL(ext, CPU, m) {
  m.impl("scale", &scale_cpu);
  m.impl("opaque", [](const Tensor& x) { return x + 1; });
  m.impl("no_gradient", [](const Tensor& x) { return scale_cpu(x, 1); });
  m.impl("add_", [](Tensor& x, const Tensor& y) {
    const Elements more(y);
    auto* to = elements_to_fill<float>(x);
    for (std::int64_t i = 0; i < more.count(); ++i) to[i] += more.data<float>()[i];
    return x;
  });
  m.impl("sum_and_max", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(sum(x), max(x)); });
}
FERMATA_LIBRARY_IMPL(ext, Meta, m) {
  m.impl("scale", [](const Tensor& x, double) { return meta_tensor({x.dtype(), x.shape()}); });
  m.impl("no_gradient", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
}
FERMATA_LIBRARY_IMPL(ext, Autograd, m) {
  m.impl_boxed("scale", derivative([](const DerivativeArguments& d) -> std::vector<Tensor> {
                 return {OperatorHandle::find("ext::scale")
                             .typed<Tensor(const Tensor&, double)>()(d.gradients[0], d.arguments[1].as<double>())};
               }));
  m.impl_boxed("mish", derivative([](const DerivativeArguments& d) -> std::vector<Tensor> {
                 const Tensor x = d.arguments[0].as<Tensor>(), t = tanh(softplus(x));
                 return {d.gradients[0] * (t + x * (1 - t * t) * sigmoid(x))};
               }));
}

Tensor scale(const Tensor& x, double factor) {
  static const auto op = OperatorHandle::find("ext::scale").typed<Tensor(const Tensor&, double)>();
  return op(x, factor);
}
Tensor mish(const Tensor& x) {
  static const auto op = OperatorHandle::find("ext::mish").typed<Tensor(const Operand&)>();
  return op(x);
}
template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}

class External : public testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, External, testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(External, ACallKernelIsAStepAmongFusedOnes) {
  const Tensor x = iota(4).astype(DType::f32);
  for (int i = 0; i < 3; ++i) {
    const Tensor y = exp(scale(x + 1, 0.5 + i) - 1) * 2;
    std::vector<float> expected;
    for (int k = 0; k < 4; ++k)
      expected.push_back(std::exp((static_cast<float>(k) + 1) * (0.5f + static_cast<float>(i)) - 1) * 2);
    EXPECT_THAT(y.to_vector<float>(), testing::Pointwise(testing::FloatNear(1e-3f), expected)) << i;
  }
}

TEST_P(External, ViewsAndOtherRanksReachTheKernel) {
  const Tensor x = iota(6).astype(DType::f32).reshape({2, 3});
  EXPECT_THAT(scale(x.mT(), 2).to_vector<float>(), ElementsAre(0, 6, 2, 8, 4, 10));
  EXPECT_THAT(scale(x.slice(1, 2, kNone, -1), 2).to_vector<float>(), ElementsAre(4, 2, 0, 10, 8, 6));
  EXPECT_EQ(scale(full({}, 3.0f), 2).item<float>(), 6);
  EXPECT_EQ(scale(ones({0, 3}), 2).shape(), (Shape{0, 3}));
}

TEST_P(External, AFormulaIsAnOpLikeAnyOther) {
  const Tensor x = linspace(-4, 4, 33);
  const std::vector<float> in = x.to_vector<float>(), out = (mish(x) * 2).to_vector<float>();
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_NEAR(out[i], 2 * in[i] * std::tanh(std::log1p(std::exp(in[i]))), 1e-5);
  const auto lerp = OperatorHandle::find("ext::lerp").typed<Tensor(const Operand&, const Operand&, const Operand&)>();
  EXPECT_THAT(lerp(x.slice(0, 0, 2), 10, ones({2})).to_vector<float>(), ElementsAre(10, 10));
  EXPECT_EQ(lerp(full({}, 1, DType::i32), 5, full({}, 3, DType::i32)).item<int>(), 13) << "integers stay integers";
  EXPECT_THROW(lerp(full({}, true), full({}, false), full({}, true)), DTypeError);
  EXPECT_EQ(mish(full({2}, 1.0f).astype(DType::bf16)).dtype(), DType::bf16);
  EXPECT_EQ(mish(ones({2, 1, 3, 1, 2})).shape(), (Shape{2, 1, 3, 1, 2}));
}

TEST_P(External, GradientsOfFirstAndSecondOrder) {
  Tensor x = full({}, 0.7, DType::f64);
  x.requires_grad(true);
  const Tensor y = mish(x) + x;
  const Tensor first = gradients(y, {x}, {}, true)[0];
  const Tensor second = gradients(first, {x})[0];
  const auto f = [](double v) { return v * std::tanh(std::log1p(std::exp(v))) + v; };
  EXPECT_NEAR(first.item<double>(), (f(0.7 + 1e-6) - f(0.7 - 1e-6)) / 2e-6, 1e-8);
  EXPECT_NEAR(second.item<double>(), (f(0.7 + 1e-4) - 2 * f(0.7) + f(0.7 - 1e-4)) / 1e-8, 1e-6);
  Tensor w = ones({3});
  w.requires_grad(true);
  sum(scale(w * 3, 4)).backward();
  EXPECT_THAT(w.grad().to_vector<float>(), ElementsAre(12, 12, 12));
}

TEST_P(External, AMissingDerivativeRaisesAtBackward) {
  Tensor x = ones({2});
  x.requires_grad(true);
  const auto op = OperatorHandle::find("ext::no_gradient").typed<Tensor(const Tensor&)>();
  const Tensor y = sum(op(x));
  EXPECT_EQ(y.item<float>(), 2) << "the call itself is fine";
  EXPECT_THAT(message_of([&] { y.backward(); }),
              HasSubstr("FM1716 GradientError: ext::no_gradient: has no derivative with respect to operand 0\n"));
  EXPECT_EQ(op(x.detach()).keys().has(Functionality::autograd), false);
}

TEST_P(External, PassingAutogradOverIsNeverASilentZero) {
  Library def(Kind::definition, "flat");
  def.def("f(Tensor x) -> Tensor");
  Library cpu(Kind::implementation, "flat", "CPU"), autograd(Kind::implementation, "flat", "Autograd");
  cpu.impl("f", [](const Tensor& x) { return scale_cpu(x, 1); });
  autograd.fallthrough("f");
  Tensor x = ones({2});
  x.requires_grad(true);
  const Tensor y = sum(OperatorHandle::find("flat::f").typed<Tensor(const Tensor&)>()(x) + x);
  EXPECT_EQ(y.item<float>(), 4);
  EXPECT_THAT(message_of([&] { y.backward(); }),
              HasSubstr("FM1716 GradientError: flat::f: has no derivative with respect to operand 0\n"));
}

TEST_P(External, AKernelBesideACompositeOneMakesTheDerivativeAmbiguous) {
  Library def(Kind::definition, "ambiguous");
  def.def("f", [](const Tensor& x) { return x * x; });
  Library cpu(Kind::implementation, "ambiguous", "CPU");
  cpu.impl("f", [](const Tensor& x) { return scale_cpu(x, 1); });
  Tensor x = ones({2});
  x.requires_grad(true);
  const Tensor y = sum(OperatorHandle::find("ambiguous::f").typed<Tensor(const Tensor&)>()(x));
  EXPECT_THAT(
      message_of([&] { y.backward(); }),
      HasSubstr(
          "FM1719 GradientError: ambiguous::f: ambiguous derivative: that of its CompositeImplicit kernel or of the "
          "kernel that ran\n  x    f32[2]\n"));
}

TEST_P(External, WritesInPlaceAreSeenByEveryAlias) {
  const auto add_ = OperatorHandle::find("ext::add_").typed<Tensor(const Tensor&, const Tensor&)>();
  const Tensor base = zeros({2, 2}), row = base[1], before = base + 0;
  const Tensor result = add_(row, ones({2}));
  EXPECT_EQ(result.impl(), row.impl());
  EXPECT_THAT(base.to_vector<float>(), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(before.to_vector<float>(), ElementsAre(0, 0, 0, 0)) << "values that were taken before stay";
  EXPECT_EQ(base.version(), 1u);
  Tensor leaf = ones({2});
  leaf.requires_grad(true);
  EXPECT_THAT(message_of([&] { add_(leaf, ones({2})); }), HasSubstr("FM1712 GradientError"));
  const Tensor history = leaf * 1;
  add_(history, ones({2}));
  EXPECT_THAT(message_of([&] { sum(history).backward(); }), HasSubstr("FM1716 GradientError: ext::add_"))
      << "never a silent gradient";
}

TEST_P(External, SeveralResultsAndOpsWithoutAMetaKernelRunOnTheSpot) {
  const Tensor x = iota(3).astype(DType::f32) * 2;
  const auto both = OperatorHandle::find("ext::sum_and_max").typed<std::tuple<Tensor, Tensor>(const Tensor&)>();
  const auto [total, top] = both(x);
  EXPECT_EQ(total.item<float>() + top.item<float>(), 10);
  const auto opaque = OperatorHandle::find("ext::opaque").typed<Tensor(const Tensor&)>();
  const auto syncs_before = stats().sync_reasons;
  EXPECT_THAT((opaque(x * 3) + 1).to_vector<float>(), ElementsAre(2, 8, 14));
  if (GetParam() == Mode::compiled) {
    bool counted = false;
    for (const auto& [reason, n] : stats().sync_reasons)
      counted = counted || reason == "an operator without a Meta kernel";
    EXPECT_TRUE(counted);
  }
}

TEST_P(External, CustomFunctionsHaveTheBackwardPassTheyWrite) {
  struct TwoResults : Function<TwoResults> {
    static std::vector<Tensor> forward(FunctionContext& context, const Tensor& x, const Tensor& y, double power) {
      const Tensor product = x * y;
      context.save_for_backward({x, y, product});
      context.data["power"] = power;
      return {product, x + y};
    }
    static std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> g) {
      const auto saved = context.saved();
      EXPECT_EQ(context.data["power"].as<double>(), 3);
      Tensor dx = zeros(saved[0].shape()), dy = dx;
      if (g[0].defined()) dx = dx + g[0] * saved[1], dy = dy + g[0] * saved[0];
      if (g[1].defined()) dx = dx + g[1], dy = dy + g[1] * 100;  // wrong on purpose: it is what is written that counts
      return {dx, dy};
    }
  };
  Tensor x = full({2}, 3.0f), y = full({2}, 5.0f);
  x.requires_grad(true), y.requires_grad(true);
  auto results = TwoResults::apply(x, y, 3.0);
  sum(results[0] * 2 + results[1]).backward();
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(11, 11));
  EXPECT_THAT(y.grad().to_vector<float>(), ElementsAre(106, 106));
  x.zero_grad(), y.zero_grad();
  results = TwoResults::apply(x, y, 3.0);
  sum(results[0]).backward();
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(5, 5)) << "only one result was used";
  EXPECT_THAT(message_of([&] { sum(results[0]).backward(); }), HasSubstr("FM1713 GradientError"));
  EXPECT_FALSE(no_grad([&] { return TwoResults::apply(x, y, 3.0); })[0].keys().has(Functionality::autograd));
}

TEST_P(External, ABackwardPassOfTheWrongShapeIsRefused) {
  struct Wrong : Function<Wrong> {
    static Tensor forward(FunctionContext&, const Tensor& x) { return x * 2; }
    static std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor>) { return {ones({5})}; }
  };
  struct TooFew : Function<TooFew> {
    static Tensor forward(FunctionContext&, const Tensor& x) { return x * 2; }
    static std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor>) { return {}; }
  };
  Tensor x = ones({2});
  x.requires_grad(true);
  EXPECT_THAT(
      message_of([&] { sum(Wrong::apply(x)).backward(); }),
      HasSubstr(
          "FM1718 GradientError: custom function: the shape of gradient 0 of its backward pass differs from that of "
          "the tensor\n"
          "  tensor   f32[2]\n  gradient f32[5]"));
  EXPECT_THAT(message_of([&] { sum(TooFew::apply(x)).backward(); }),
              HasSubstr("FM1718 GradientError: custom function: its backward pass returned 0 gradients for 1 tensors"));
}

TEST(ExternalPlans, FormulasFuseAndArgumentsCompileNothing) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = ones({8});
  const std::string one = explain(exp(mish(x * 2)) + 1);
  EXPECT_THAT(one, HasSubstr("step 0: kernel full_multiply_ext::mish_exp_and_1 (map kernel"));
  EXPECT_THAT(one, testing::Not(HasSubstr("step 1"))) << "one kernel";
  EXPECT_THAT(explain(exp(scale(x * 2, 3)) + 1), HasSubstr("call ext::scale"));
  const Tensor five = ones({5});
  sync({x, five});
  (scale(x, 0.5) + 1).sync();
  const Stats first = stats();
  EXPECT_THAT((scale(x, 0.25) + 1).to_vector<float>()[0], 1.25f);
  EXPECT_THAT((scale(five, 4) + 1).to_vector<float>()[4], 5.0f);
  EXPECT_EQ(stats().kernels_compiled, first.kernels_compiled);
  EXPECT_EQ(stats().plan_misses, first.plan_misses) << "numbers and sizes are arguments";
  set_compile_policy(before);
}

TEST(ExternalPlans, ACompiledFunctionReplaysThem) {
  auto step = compile([](const Tensor& x) { return scale(mish(x), 3) + 1; });
  const Tensor x = ones({4});
  const std::vector<float> expected = (scale(mish(x), 3) + 1).to_vector<float>();
  scale_runs = 0;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(x).to_vector<float>(), expected);
  EXPECT_EQ(scale_runs, 5);
}

int tiles_told = 0;
bool fails_after_a_tile = false;

/// 2 * x, a row at a time, telling of each: a library kernel that what follows can be fused to.
void doubled_in_tiles(const CallArgs& args) {
  const TensorView& in = args.inputs[0];
  auto* to = static_cast<float*>(args.outputs[0].data);
  const std::int64_t rows = in.sizes[0], columns = in.sizes[1];
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j)
      to[i * columns + j] = 2 * static_cast<const float*>(in.data)[i * in.strides[0] + j * in.strides[1]];
    if (args.epilogue == nullptr) continue;
    ++tiles_told;
    args.epilogue->on_tile({i, i + 1, 0, columns});
    if (fails_after_a_tile) throw ValueError(1321, "a planted failure");
  }
}

TEST(ExternalPlans, ALibraryKernelInTilesAbsorbsWhatFollows) {
  Library def(Kind::definition, "tiled");
  def.def("twice(Tensor x) -> Tensor");
  Library cpu(Kind::implementation, "tiled", "CPU"), meta(Kind::implementation, "tiled", "Meta");
  cpu.impl("twice", [](const Tensor& x) { return scale_cpu(x, 2); });
  meta.impl("twice", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const OperatorHandle handle = OperatorHandle::find("tiled::twice");
  add_variant(handle.entry().op, BackendKey::cpu,
              {.name = "rows",
               .form = KernelForm::library,
               .dtypes = DType::f32,
               .call = &doubled_in_tiles,
               .fits = [](const CallArgs& args) { return args.inputs[0].rank == 2; },
               .cost = [](const CallArgs&) { return -1.0; },
               .fits_text = "two axes",
               .epilogue = EpilogueForm::tiles});
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = iota(128).astype(DType::f32).reshape({2, 64});
  x.sync();
  const auto twice = handle.typed<Tensor(const Tensor&)>();
  tiles_told = 0;
  EXPECT_THAT(exp(twice(x) * 0 + 1).to_vector<float>()[5], testing::FloatEq(std::exp(1.0f)));
  EXPECT_EQ(tiles_told, 2);
  const std::string text = explain(relu(twice(x) - 3));
  EXPECT_THAT(text, HasSubstr("rows (library"));
  EXPECT_THAT(text, HasSubstr("on each tile of step 0"));
  const std::vector<float> y = relu(twice(x) - 3).to_vector<float>();
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], std::max(0, 2 * i - 3));
  set_compile_policy(before);
}

TEST(ExternalPlans, AnEpilogueOfACallThatMayFailWritesOverNoOperand) {
  Library def(Kind::definition, "failing");
  def.def("pure twice(Tensor x) -> Tensor");
  Library cpu(Kind::implementation, "failing", "CPU"), meta(Kind::implementation, "failing", "Meta");
  cpu.impl("twice", [](const Tensor& x) { return scale_cpu(x, 2); });
  meta.impl("twice", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const OperatorHandle handle = OperatorHandle::find("failing::twice");
  add_variant(handle.entry().op, BackendKey::cpu,
              {.name = "rows",
               .form = KernelForm::library,
               .dtypes = DType::f32,
               .call = &doubled_in_tiles,
               .cost = [](const CallArgs&) { return -1.0; },
               .epilogue = EpilogueForm::tiles});
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = full({2, 64}, 1.0f).sync();
  const auto twice = handle.typed<Tensor(const Tensor&)>();
  Tensor y;
  {
    const Tensor last_read = full({2, 64}, 3.0f).sync();  // uniquely owned: y may overwrite it
    y = relu(twice(x) + last_read);
  }
  fails_after_a_tile = true;
  EXPECT_THROW(y.sync(), ValueError);
  fails_after_a_tile = false;
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(128, 5.0f));
  set_compile_policy(before);
}

TEST(ExternalPlans, ANameThatIsDefinedAgainMeansTheNewFormula) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = full({3}, 5.0f);
  x.sync();
  const auto tried = [&](auto formula) {
    Library m(Kind::fragment, "again");
    m.pointwise<DTypeRule::numeric>("f", formula);
    return (OperatorHandle::find("again::f").typed<Tensor(const Operand&)>()(x) + 1).to_vector<float>();
  };
  EXPECT_THAT(tried([](auto v) { return v * v; }), ElementsAre(26, 26, 26));
  EXPECT_THAT(tried([](auto v) { return v + v; }), ElementsAre(11, 11, 11));
  EXPECT_THROW(OperatorHandle::find("again::f"), UnsupportedError);
  set_compile_policy(before);
}

TEST(ExternalPlans, TheTextFormNamesThem) {
  const Trace t = trace([](const Tensor& x) { return scale(mish(x), 3); }, ones({2}));
  EXPECT_THAT(to_string(t), HasSubstr("ext::mish(%0)"));
  EXPECT_THAT(to_string(t), HasSubstr("ext::scale(%1)"));
  EXPECT_EQ(run_trace(t, std::vector<Tensor>{ones({2})})[0].to_vector<float>(),
            scale(mish(ones({2})), 3).to_vector<float>());
}

TEST(ExternalPlans, ATraceRunsAnOperatorWithoutAMetaKernel) {
  Library def(Kind::definition, "unknown"), cpu(Kind::implementation, "unknown", "CPU");
  def.def("f(Tensor x) -> Tensor");
  cpu.impl("f", [](const Tensor& x) { return scale_cpu(x, 3); });
  const auto f = OperatorHandle::find("unknown::f").typed<Tensor(const Tensor&)>();
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const Trace t = trace([&](const Tensor& x) { return f(x + 1) * 2; }, ones({2}));
    EXPECT_THAT(to_string(t), HasSubstr("unknown::f(%1)"));
    EXPECT_EQ(run_trace(t, std::vector<Tensor>{zeros({2})})[0].to_vector<float>(), (std::vector<float>{6, 6}));
  }
}

TEST(ExternalPlans, AMetaKernelThatIsWrongIsFound) {
  Library def(Kind::definition, "liar");
  def.def("f(Tensor x) -> Tensor");
  Library cpu(Kind::implementation, "liar", "CPU"), meta(Kind::implementation, "liar", "Meta");
  cpu.impl("f", [](const Tensor& x) { return scale_cpu(x, 1); });
  meta.impl("f", [](const Tensor&) { return meta_tensor({DType::f32, {7}}); });
  const Tensor y = OperatorHandle::find("liar::f").typed<Tensor(const Tensor&)>()(ones({2}));
  EXPECT_THAT(message_of([&] { y.sync(); }),
              HasSubstr("FM2008 UnsupportedError: liar::f: the result does not match the Meta kernel\n"
                        "  result f32[2]\n  Meta   f32[7]"));
  EXPECT_EQ((ones({2}) + 1).to_vector<float>()[0], 2) << "the engine goes on";
}

TEST(MetaTensors, EveryOpSaysWhatItWouldGive) {
  const Tensor x = meta_tensor({DType::f32, {4, 3}});
  const Tensor y = softmax(matmul(exp(x) + 1, meta_tensor({DType::f32, {3, 5}})), -1);
  EXPECT_EQ(y.shape(), (Shape{4, 5}));
  EXPECT_TRUE(y.keys().has(BackendKey::meta));
  EXPECT_THROW(matmul(x, x), ShapeError);
  EXPECT_THAT(message_of([&] { y.to_vector<float>(); }),
              HasSubstr("FM2005 UnsupportedError: to_vector: a meta tensor has no elements to read"));
  EXPECT_THROW(static_cast<void>(x + ones({3})), DeviceError);
}

}  // namespace
}  // namespace fermata
