// The behaviors of registration and of the computed table, one test or more each: docs/dispatch.md numbers them.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

using Kind = Library::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

Library implementation(std::string_view space, std::string_view key) {
  return Library(Kind::implementation, space, key);
}

Tensor number(double value) { return full({}, value, DType::f64); }
double value_of(const Tensor& t) { return t.item<double>(); }

/// A kernel that says which one it is.
template <int kValue> Tensor answer(const Tensor&) { return number(kValue); }
using Answer = Tensor(const Tensor&);
double ask(std::string_view op, const Tensor& x) { return value_of(OperatorHandle::find(op).typed<Answer>()(x)); }

/// The message of the error that f throws.
template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}
/// The part of a message before its places, which move with every edit of this file.
std::string without_places(std::string text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (const std::size_t place = line.find("registration_test.cpp:"); place != line.npos) {
      std::size_t digits = line.find_first_not_of("0123456789", place + 22);
      line = line.substr(0, place + 21) + (digits == line.npos ? "" : line.substr(digits));
    }
    kept += line + "\n", at = end + 1;
  }
  kept.pop_back();
  return kept;
}

class Registration : public testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
  Tensor x_ = ones({2});
};
INSTANTIATE_TEST_SUITE_P(Modes, Registration, testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Registration, ASchemaMayComeBeforeOrAfterItsKernels) {  // 1
  {
    Library def(Kind::definition, "order");
    def.def("f(Tensor x) -> Tensor");
    Library impl = implementation("order", "CPU");
    impl.impl("f", &answer<1>);
    EXPECT_EQ(ask("order::f", x_), 1);
  }
  Library impl = implementation("order", "CPU");
  impl.impl("f", &answer<2>);
  EXPECT_THROW(OperatorHandle::find("order::f"), UnsupportedError);
  Library def(Kind::definition, "order");
  def.def("f(Tensor x) -> Tensor");
  EXPECT_EQ(ask("order::f", x_), 2);
}

TEST_P(Registration, ASchemaIsInferredFromATypedFunction) {  // 2
  Library def(Kind::definition, "inferred");
  def.def("f", [](const Tensor& x, double by, std::optional<Tensor> bias, std::vector<std::int64_t> axes, bool flag) {
    static_cast<void>(axes), static_cast<void>(flag);
    const Tensor y = x * by;
    return std::tuple<Tensor, std::int64_t>(bias ? y + *bias : y, 3);
  });
  EXPECT_EQ(to_string(OperatorHandle::find("inferred::f").schema()),
            "inferred::f(Tensor x0, float x1, Tensor? x2, int[] x3, bool x4) -> (Tensor, int)");
  const auto op = OperatorHandle::find("inferred::f")
                      .typed<std::tuple<Tensor, std::int64_t>(const Tensor&, double, const std::optional<Tensor>&,
                                                              std::span<const std::int64_t>, bool)>();
  const auto [y, n] = op(x_, 2, x_, {}, true);
  EXPECT_THAT(y.to_vector<float>(), ElementsAre(3, 3));
  EXPECT_EQ(n, 3);
}

TEST_P(Registration, AKernelOfAnotherSignatureIsRefusedWithBothPlaces) {  // 3
  Library def(Kind::definition, "sig");
  def.def("f(Tensor x, float by) -> Tensor");
  Library impl = implementation("sig", "CPU");
  EXPECT_EQ(without_places(message_of([&] { impl.impl("f", [](const Tensor& x) { return x; }); })),
            "FM1514 ValueError: sig::f: the signature does not match the schema\n"
            "  schema sig::f(Tensor x, float by) -> Tensor   dispatch/registration_test.cpp\n"
            "  kernel (Tensor) -> Tensor\n"
            "  at     dispatch/registration_test.cpp");
  impl.impl("g", [](const Tensor& x) { return x; });
  EXPECT_EQ(without_places(
                message_of([&] { implementation("sig", "Meta").impl("g", [](std::int64_t) { return Tensor(); }); })),
            "FM1514 ValueError: sig::g: the signature does not match that of the other kernels\n"
            "  first  (Tensor) -> Tensor   dispatch/registration_test.cpp\n"
            "  kernel (int) -> Tensor\n"
            "  at     dispatch/registration_test.cpp");
  EXPECT_EQ(without_places(message_of([&] { def.def("g(Tensor x, Tensor y) -> Tensor"); })),
            "FM1514 ValueError: sig::g: the schema does not match the kernels\n"
            "  schema sig::g(Tensor x, Tensor y) -> Tensor\n"
            "  kernel (Tensor) -> Tensor   dispatch/registration_test.cpp\n"
            "  at     dispatch/registration_test.cpp");
}

TEST_P(Registration, TypedAccessChecksTheSignature) {  // 4
  Library def(Kind::definition, "typed");
  def.def("f(Tensor x) -> Tensor");
  EXPECT_EQ(without_places(message_of([] { OperatorHandle::find("typed::f").typed<Tensor(std::int64_t)>(); })),
            "FM1514 ValueError: typed::f: the signature does not match the schema\n"
            "  schema typed::f(Tensor x) -> Tensor   dispatch/registration_test.cpp\n"
            "  kernel (int) -> Tensor\n"
            "  at     dispatch/registration_test.cpp");
  EXPECT_EQ(without_places(message_of([] { OperatorHandle::find("nowhere::near_anything"); })),
            "FM2006 UnsupportedError: nowhere::near_anything: no operator of this name has a schema\n"
            "  at   dispatch/registration_test.cpp\n"
            "  hint `fermata ops` lists all ops");
  EXPECT_THAT(message_of([] { OperatorHandle::find("typed::ff"); }), HasSubstr("hint typed::f?"));
}

TEST_P(Registration, WhatAHandleRegisteredGoesWithItAndTheShadowedIsBack) {  // 5
  Library def(Kind::definition, "raii");
  def.def("f(Tensor x) -> Tensor");
  Library below = implementation("raii", "CompositeExplicit");
  below.impl("f", &answer<1>);
  {
    Library cpu = implementation("raii", "CPU");
    cpu.impl("f", &answer<2>);
    EXPECT_EQ(ask("raii::f", x_), 2);
    {
      Library over = implementation("raii", "CPU");
      over.impl("f", &answer<3>, {.replaces = true});
      EXPECT_EQ(ask("raii::f", x_), 3);
    }
    EXPECT_EQ(ask("raii::f", x_), 2);
  }
  EXPECT_EQ(ask("raii::f", x_), 1);
}

TEST_P(Registration, ASecondKernelIsAnErrorUnlessItReplaces) {  // 6
  Library def(Kind::definition, "twice");
  def.def("f(Tensor x) -> Tensor");
  Library impl = implementation("twice", "CPU"), cast = implementation("twice", "Autocast");
  impl.impl("f", &answer<1>), cast.impl("f", &answer<2>);
  EXPECT_EQ(without_places(message_of([&] { impl.impl("f", &answer<3>); })),
            "FM1515 ValueError: twice::f: duplicate kernel 'default' for CPU\n"
            "  first dispatch/registration_test.cpp\n"
            "  at    dispatch/registration_test.cpp\n"
            "  hint  mark it as a replacement, or use another name");
  EXPECT_THAT(message_of([&] { cast.impl("f", &answer<3>); }), HasSubstr("twice::f: duplicate kernel for Autocast"));
  EXPECT_THAT(message_of([&] { def.def("f(Tensor x) -> Tensor"); }),
              HasSubstr("FM1516 ValueError: twice::f: duplicate schema"));
  EXPECT_EQ(ask("twice::f", x_), 1) << "what was refused left nothing behind";
  // A composite serves backends without a kernel, and every backend has one for the ops of the table.
  Library composite(Kind::fragment, "fermata");
  const auto halved = [](const Operand& v) { return v.tensor() * 0.5; };
  EXPECT_EQ(without_places(message_of([&] { composite.impl("tanh", halved, {.replaces = true}); })),
            "FM1520 ValueError: tanh: a composite cannot replace the kernels that backends have\n"
            "  kernel CompositeImplicit\n"
            "  at     dispatch/registration_test.cpp\n"
            "  hint   name the backend whose kernel it replaces: FERMATA_LIBRARY_IMPL(fermata, CPU, m)");
  EXPECT_EQ(value_of(tanh(number(0))), 0);
}

TEST_P(Registration, NamedVariantsAreChosenByPredicateAndCost) {  // 6
  Library def(Kind::definition, "variants");
  def.def("f(Tensor x) -> Tensor");
  Library impl = implementation("variants", "CPU");
  impl.impl("f", &answer<1>, {.variant = "any", .cost = 10});
  impl.impl("f", &answer<2>,
            {.variant = "pairs",
             .fits = [](const Stack& s) { return s[0].as<Tensor>().element_count() == 2; },
             .fits_text = "two elements",
             .cost = 1});
  EXPECT_EQ(ask("variants::f", x_), 2);
  EXPECT_EQ(ask("variants::f", ones({3})), 1);
}

TEST_P(Registration, TheBackendOfTheArgumentsDecides) {  // 7
  Library def(Kind::definition, "backends");
  def.def("f(Tensor x, Tensor y) -> Tensor");
  Library cpu = implementation("backends", "CPU"), meta = implementation("backends", "Meta");
  cpu.impl("f", [](const Tensor&, const Tensor&) { return number(1); });
  meta.impl("f", [](const Tensor&, const Tensor&) { return meta_tensor({DType::f64, {}}); });
  const auto f = OperatorHandle::find("backends::f").typed<Tensor(const Tensor&, const Tensor&)>();
  EXPECT_EQ(value_of(f(x_, x_)), 1);
  EXPECT_TRUE(f(x_, meta_tensor({DType::f32, {2}})).keys().has(BackendKey::meta)) << "the highest backend wins";
}

TEST_P(Registration, AFallbackServesOpsWithoutAKernelOfItsKeyOnly) {  // 8
  Library def(Kind::definition, "fall");
  def.def("none(Tensor x) -> Tensor"), def.def("own(Tensor x) -> Tensor"), def.def("made(Tensor x) -> Tensor");
  Library cpu = implementation("fall", "PrivateUse3"), composite = implementation("fall", "CompositeExplicit");
  cpu.impl("own", &answer<1>), composite.impl("made", &answer<2>);
  Library fallback = implementation("_", "PrivateUse3");
  fallback.fallback([](const Call&, Stack& stack) { stack.assign(1, number(3)); });
  const KeyGuard plain({}, DispatchKeySet(Functionality::capture));
  const Tensor far(make_leaf({DType::f32, {2}}, Storage::nowhere(), BackendKey::private_use3, Node::kTensor),
                   DispatchKeySet(BackendKey::private_use3) | Functionality::dense);
  EXPECT_EQ(ask("fall::none", far), 3);
  EXPECT_EQ(ask("fall::own", far), 1) << "a kernel beats it";
  EXPECT_EQ(ask("fall::made", far), 2) << "a composite beats it";
  EXPECT_THROW(ask("fall::none", x_), UnsupportedError) << "it serves no other key";
}

TEST_P(Registration, AFallbackOfAWrapperKeySeesCompositesToo) {  // 8
  Library def(Kind::definition, "mode");
  def.def("made", &answer<2>);
  int seen = 0;
  Library fallback = implementation("_", "User1");
  fallback.fallback([&](const Call& call, Stack& stack) {
    seen += call.entry.name == "mode::made" ? 1 : 0;
    redispatch_boxed(call, Functionality::user1, stack);
  });
  const KeyGuard on(Functionality::user1, {});
  EXPECT_EQ(ask("mode::made", x_), 2);
  EXPECT_EQ(seen, 1);
}

TEST_P(Registration, AFallthroughIsPassedOver) {  // 9
  Library def(Kind::definition, "through");
  def.def("f(Tensor x) -> Tensor"), def.def("g(Tensor x) -> Tensor");
  Library cpu = implementation("through", "CPU");
  const auto one = [result = number(1)](const Tensor&) { return result; };
  cpu.impl("f", one), cpu.impl("g", one);
  Library all = implementation("_", "User2");  // it sees every op, so what it gives is made beforehand
  all.fallback([result = number(7)](const Call&, Stack& stack) { stack.assign(1, result); });
  Library user = implementation("through", "User2");
  user.fallthrough("f");
  const auto asked = [&](std::string_view op) {
    const KeyGuard on(Functionality::user2, {});
    return OperatorHandle::find(op).typed<Answer>()(x_);
  };
  EXPECT_EQ(value_of(asked("through::f")), 1);
  EXPECT_EQ(value_of(asked("through::g")), 7);
}

TEST_P(Registration, WrappersRedispatchBelowThemselvesTypedAndBoxed) {  // 10
  Library def(Kind::definition, "layers");
  def.def("f(Tensor x) -> Tensor");
  Library cpu = implementation("layers", "CPU"), one = implementation("layers", "User1"),
          two = implementation("layers", "User2");
  cpu.impl("f", [](const Tensor& x) { return x + 1; });
  one.impl("f", [](const Call& call, const Tensor& x) {
    return Dispatcher<Answer>::redispatch(call, Functionality::user1, x * 2);
  });
  two.impl_boxed("f", [](const Call& call, Stack& stack) {
    EXPECT_TRUE(call.keys.has(Functionality::user2));
    stack[0] = stack[0].as<Tensor>() + 10;
    redispatch_boxed(call, Functionality::user2, stack);
    stack[0] = stack[0].as<Tensor>() * 100;
  });
  const auto f = OperatorHandle::find("layers::f").typed<Answer>();
  EXPECT_THAT(f(x_).to_vector<float>(), ElementsAre(2, 2));
  const KeyGuard on(DispatchKeySet(Functionality::user1) | Functionality::user2, {});
  EXPECT_THAT(f(x_).to_vector<float>(), ElementsAre(2300, 2300)) << "(((1 + 10) * 2) + 1) * 100";
}

TEST_P(Registration, EveryTypeBoxesAndUnboxes) {  // 11
  Library def(Kind::definition, "types");
  def.def(
      "f(Tensor a, Tensor[] b, Tensor? c, Scalar d, int e, float f, bool g, str h, dtype i, Device j, Shape k, "
      "float[] l, int? m, dtype? n, int[]? o) -> (Tensor, Tensor[], Scalar, int, float, bool, str)");
  Library impl = implementation("types", "CompositeImplicit");
  impl.impl("f", [](const Tensor& a, std::span<const Tensor> b, const std::optional<Tensor>& c, const Scalar& d,
                    std::int64_t e, double f, bool g, std::string_view h, DType i, Device j,
                    std::span<const std::int64_t> k, std::span<const double> l, std::optional<std::int64_t> m,
                    std::optional<DType> n, const std::optional<std::vector<std::int64_t>>& o) {
    EXPECT_TRUE(b.size() == 2 && !c && i == DType::bf16 && j == BackendKey::cpu);
    EXPECT_TRUE(k[1] == 5 && l[0] == 0.5 && m == 9 && !n && o->at(0) == 4);
    return std::tuple<Tensor, std::vector<Tensor>, Scalar, std::int64_t, double, bool, std::string>(
        a + b[1], {b[0]}, d, e + 1, f * 2, !g, std::string(h) + "!");
  });
  Stack stack{x_,
              std::vector<Tensor>{x_, x_},
              Value(),
              Scalar(2.5),
              std::int64_t{3},
              0.25,
              true,
              std::string("hey"),
              DType::bf16,
              BackendKey::cpu,
              std::vector<std::int64_t>{4, 5},
              std::vector<double>{0.5},
              std::int64_t{9},
              Value(),
              std::vector<std::int64_t>{4}};
  OperatorHandle::find("types::f").call_boxed(stack);
  ASSERT_EQ(stack.size(), 7u);
  EXPECT_THAT(stack[0].as<Tensor>().to_vector<float>(), ElementsAre(2, 2));
  EXPECT_EQ(stack[1].as<std::vector<Tensor>>().size(), 1u);
  EXPECT_EQ(stack[2].as<Scalar>().real, 2.5);
  EXPECT_EQ(stack[3].as<std::int64_t>(), 4);
  EXPECT_EQ(stack[4].as<double>(), 0.5);
  EXPECT_FALSE(stack[5].as<bool>());
  EXPECT_EQ(stack[6].as<std::string>(), "hey!");
}

TEST_P(Registration, BoxedKernelsAreCalledTypedAndTypedOnesBoxed) {  // 11
  Library def(Kind::definition, "boxes");
  def.def("f(Tensor x, float by) -> (Tensor, Tensor)");
  Library impl = implementation("boxes", "CPU");
  impl.impl_boxed("f", [](const Call&, Stack& stack) {
    const Tensor x = stack[0].as<Tensor>();
    const double by = stack[1].as<double>();
    stack.assign({x * by, x + by});
  });
  using Pair = std::tuple<Tensor, Tensor>;
  const auto [p, q] = OperatorHandle::find("boxes::f").typed<Pair(const Tensor&, double)>()(x_, 4);
  EXPECT_THAT(p.to_vector<float>(), ElementsAre(4, 4));
  EXPECT_THAT(q.to_vector<float>(), ElementsAre(5, 5));
  Stack stack{x_, x_};
  OperatorHandle::find("fermata::add").call_boxed(stack);
  EXPECT_THAT(stack.at(0).as<Tensor>().to_vector<float>(), ElementsAre(2, 2));
  Stack wrong{x_};
  EXPECT_EQ(without_places(message_of([&] { OperatorHandle::find("boxes::f").call_boxed(wrong); })),
            "FM1518 ValueError: boxes::f: 1 arguments, not 2\n"
            "  schema boxes::f(Tensor x, float by) -> (Tensor, Tensor)\n"
            "  at     dispatch/registration_test.cpp");
  Stack mistyped{x_, std::int64_t{1}};
  EXPECT_THAT(message_of([&] { OperatorHandle::find("boxes::f").call_boxed(mistyped); }),
              HasSubstr("argument by is 1, not of type float"));
}

TEST_P(Registration, CompositesCoverBackendsAndGradientsUntilAKernelIsThere) {  // 13, 14
  Library def(Kind::definition, "comp");
  def.def("f(Tensor x) -> Tensor");
  Library implicit = implementation("comp", "CompositeImplicit");
  implicit.impl("f", [](const Tensor& x) { return x * x; });
  Tensor leaf = full({}, 3.0f);
  leaf.requires_grad(true);
  const auto f = OperatorHandle::find("comp::f").typed<Answer>();
  f(leaf).backward();
  EXPECT_EQ(leaf.grad().item<float>(), 6) << "its parts are differentiated";
  Library explicitly = implementation("comp", "CompositeExplicit");
  explicitly.impl("f", &answer<5>);
  EXPECT_EQ(value_of(f(x_)), 5) << "explicit beats implicit";
  Library cpu = implementation("comp", "CPU");
  cpu.impl("f", &answer<6>);
  EXPECT_EQ(value_of(f(x_)), 6) << "a kernel of the backend beats both";
  Library autograd = implementation("comp", "Autograd");
  autograd.impl("f", &answer<7>);
  EXPECT_EQ(value_of(f(leaf)), 7);
  Library autograd_cpu = implementation("comp", "AutogradCPU");
  autograd_cpu.impl("f", &answer<8>);
  EXPECT_EQ(value_of(f(leaf)), 8) << "AutogradCPU beats Autograd";
  EXPECT_EQ(value_of(f(x_)), 6);
}

TEST_P(Registration, WithoutTensorsBackendSelectOrTheThreadDecides) {  // 15
  Library def(Kind::definition, "nullary");
  def.def("f(int n) -> Tensor"), def.def("g(int n, Device device=CPU) -> Tensor");
  Library cpu = implementation("nullary", "CPU");
  cpu.impl("f", [](std::int64_t n) { return number(static_cast<double>(n)); });
  cpu.impl("g", [](std::int64_t n, Device) { return number(static_cast<double>(n) + 1); });
  const auto f = OperatorHandle::find("nullary::f").typed<Tensor(std::int64_t)>();
  EXPECT_EQ(without_places(message_of([&] { f(1); })),
            "FM2001 UnsupportedError: nullary::f: no tensor argument determines the backend\n"
            "  at   dispatch/registration_test.cpp\n"
            "  hint register a kernel for BackendSelect; kernels exist for: CPU");
  EXPECT_EQ(value_of(OperatorHandle::find("nullary::g").typed<Tensor(std::int64_t, Device)>()(1, BackendKey::cpu)), 2);
  {
    const KeyGuard on(DispatchKeySet(BackendKey::cpu) | Functionality::dense, {});
    EXPECT_EQ(value_of(f(1)), 1);
  }
  Library select = implementation("nullary", "BackendSelect");
  select.impl("f", [](const Call& call, std::int64_t n) {
    return Dispatcher<Tensor(std::int64_t)>::call_with(
        call.entry, DispatchKeySet(BackendKey::cpu) | Functionality::dense, call.where, n);
  });
  EXPECT_EQ(value_of(f(4)), 4);
}

TEST_P(Registration, ANamespaceIsDefinedOnceAndExtendedByFragments) {  // 16
  Library def(Kind::definition, "spaces");
  EXPECT_THAT(message_of([] { Library again(Kind::definition, "spaces"); }),
              HasSubstr("FM1517 ValueError: the namespace spaces is defined twice"));
  Library more(Kind::fragment, "spaces");
  more.def("f", &answer<1>);
  EXPECT_EQ(ask("spaces::f", x_), 1);
  EXPECT_THAT(message_of([&] { more.def("elsewhere::f(Tensor x) -> Tensor"); }),
              HasSubstr("FM1519 ValueError: elsewhere::f"));
  EXPECT_THAT(message_of([] { implementation("spaces", "Nowhere"); }),
              HasSubstr("FM1513 ValueError: there is no dispatch key Nowhere"));
}

TEST_P(Registration, OthersGiveKernelsToBuiltInOps) {  // 16
  Library far = implementation("fermata", "PrivateUse2");
  far.impl("tanh", [](const Operand&) { return number(42); });
  const Tensor there(make_leaf({DType::f32, {2}}, Storage::nowhere(), BackendKey::private_use2, Node::kTensor),
                     DispatchKeySet(BackendKey::private_use2) | Functionality::dense);
  const KeyGuard plain({}, DispatchKeySet(Functionality::capture));
  EXPECT_EQ(value_of(tanh(there)), 42);
  std::string text = without_places(message_of([&] { exp(there); }));
  if (const std::size_t at = text.find("CUDA, "); at != std::string::npos) text.erase(at, 6);  // where it is built in
  EXPECT_EQ(text,
            "FM2001 UnsupportedError: exp: no kernel for PrivateUse2\n"
            "  at   dispatch/registration_test.cpp\n"
            "  hint kernels exist for: CPU, Meta; see `fermata ops exp`");
}

TEST_P(Registration, ListenersHearOfDefinitionsAlsoPastOnes) {  // 17
  Library def(Kind::definition, "heard");
  def.def("before(Tensor x) -> Tensor");
  std::vector<std::string> defined, removed;
  const auto mine = [](const OperatorEntry& e) { return e.name.starts_with("heard::"); };
  const fermata::Registration listening = add_listener({[&](const OperatorEntry& e) {
                                                          if (mine(e)) defined.emplace_back(e.name);
                                                        },
                                                        [&](const OperatorEntry& e) {
                                                          if (mine(e)) removed.emplace_back(e.name);
                                                        }});
  {
    Library more(Kind::fragment, "heard");
    more.def("after(Tensor x) -> Tensor");
  }
  EXPECT_THAT(defined, ElementsAre("heard::before", "heard::after"));
  EXPECT_THAT(removed, ElementsAre("heard::after"));
}

TEST_P(Registration, DanglingKernelsAndOpsPerKeyAreListed) {  // 18, 19
  EXPECT_THAT(dangling_kernels(), ElementsAre());
  Library impl = implementation("dangling", "QuantizedCPU");
  impl.impl("f", &answer<1>);
  ASSERT_EQ(dangling_kernels().size(), 1u);
  EXPECT_THAT(dangling_kernels()[0],
              HasSubstr("dangling::f for QuantizedCPU, registered at dispatch/registration_test.cpp:"));
  EXPECT_THAT(operators_with(parse_key("QuantizedCPU", Location::current())), testing::Contains("dangling::f"));
}

TEST_P(Registration, TheComputedRowIsPrintedWithPlaces) {  // 19
  Library def(Kind::definition, "shown");
  def.def("f(Tensor x) -> Tensor", "What it does.");
  Library cpu = implementation("shown", "CPU"), autograd = implementation("shown", "Autograd");
  cpu.impl("f", &answer<1>), autograd.impl("f", &answer<2>);
  const std::string text = describe_row("shown::f");
  EXPECT_THAT(text, HasSubstr("shown::f(Tensor x) -> Tensor\n  What it does.\n"));
  EXPECT_THAT(text, HasSubstr("CPU            <- registered, dispatch/registration_test.cpp:"));
  EXPECT_THAT(text, HasSubstr("Autograd* "));
  EXPECT_THAT(text, HasSubstr("Autograd alias"));
}

TEST_P(Registration, GuardsNestAndAreRestoredByExceptions) {  // 20
  const ThreadKeys before = thread_keys;
  try {
    const KeyGuard outer(Functionality::user1, {});
    const KeyGuard inner(Functionality::user2, Functionality::user1);
    EXPECT_TRUE(thread_keys.included.has(Functionality::user2));
    EXPECT_TRUE(thread_keys.excluded.has(Functionality::user1));
    throw ValueError(1, "");
  } catch (const ValueError&) {}
  EXPECT_EQ(thread_keys.included, before.included);
  EXPECT_EQ(thread_keys.excluded, before.excluded);
}

TEST_P(Registration, TheTraceShowsOpKeyPlaceAndNesting) {  // 21
  Library def(Kind::definition, "traced");
  def.def("f", [](const Tensor& x) { return tanh(x); });
  testing::internal::CaptureStderr();
  set_trace_dispatch(true);
  OperatorHandle::find("traced::f").typed<Answer>()(x_);
  set_trace_dispatch(false);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("fermata dispatch traced::f [Dense/CPU]  dispatch/registration_test.cpp:"));
  EXPECT_THAT(text, HasSubstr("fermata dispatch   tanh ["));
}

/// Registers the given ones in an order, and says what came of it.
TEST(RegistrationOrder, AllOrdersGiveOneTable) {
  const std::vector<std::function<void(std::vector<Library>&)>> steps{
      [](auto& all) { all.emplace_back(Kind::fragment, "perm").def("f(Tensor x) -> Tensor"); },
      [](auto& all) { all.emplace_back(Kind::implementation, "perm", "CPU").impl("f", &answer<1>); },
      [](auto& all) {
        all.emplace_back(Kind::implementation, "perm", "CPU").impl("f", &answer<2>, {.replaces = true});
      },
      [](auto& all) { all.emplace_back(Kind::implementation, "perm", "CompositeImplicit").impl("f", &answer<3>); },
      [](auto& all) { all.emplace_back(Kind::implementation, "perm", "Autograd").impl("f", &answer<4>); },
      [](auto& all) { all.emplace_back(Kind::implementation, "perm", "User1").fallthrough("f"); }};
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), 0u);
  std::string first;
  int tried = 0;
  do {
    std::vector<Library> all;
    for (const std::size_t i : order) steps[i](all);
    const std::string table = row_fingerprint("perm::f");
    if (first.empty()) first = table;
    ASSERT_EQ(table, first) << testing::PrintToString(order);
    ASSERT_EQ(ask("perm::f", ones({2})), 2);
    ++tried;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(tried, 720);
}

TEST(RegistrationThreads, CallsGoOnWhileOthersRegister) {
  Library def(Kind::definition, "race");
  def.def("f(Tensor x) -> Tensor");
  Library composite = implementation("race", "CompositeExplicit");
  composite.impl("f", &answer<1>);
  const auto f = OperatorHandle::find("race::f").typed<Answer>();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      const ModeGuard eager(Mode::eager);
      const Tensor x = ones({2});
      while (!stop) {
        const double v = value_of(f(x));
        if (v != 1 && v != 2 && v != 3) ++wrong;
      }
    });
  for (int i = 0; i < 300; ++i) {
    Library cpu = implementation("race", "CPU");
    const double state = 3;
    if (i % 2 == 0)
      cpu.impl("f", &answer<2>);
    else
      cpu.impl("f", [state](const Tensor&) { return number(state); });
    Library other(Kind::fragment, "race" + std::to_string(i % 7));
    other.def("g", &answer<4>);
  }
  stop = true;
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fermata
