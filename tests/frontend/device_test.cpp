// Custom devices, in both modes: the example's (tally: memory that the CPU cannot touch, kernels from
// descriptions) and one that compiles nothing and runs everything on the CPU because it asked for that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "examples/custom_backend/tally.h"
#include "fermata/library.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BackendKey kCpu = BackendKey::cpu, kTally = BackendKey::private_use1, kMissing = BackendKey::private_use2,
                     kHosted = BackendKey::private_use3;

/// Memory and kernels of the CPU, under another name.
class HostedBackend final : public Backend {
 public:
  std::string_view name() const override { return "hosted"; }
  bool can_compile(std::string* failure_reason) const override {
    if (failure_reason != nullptr) *failure_reason = "it has no compiler";
    return false;
  }
  std::shared_ptr<const Executable> compile(const Kernel&, KernelListing*) override { throw_internal("not asked for"); }
  Storage* allocate(std::size_t bytes) override { return Storage::allocate(bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void synchronize() override {}
};

void register_once() {
  static const bool done = [] {
    tally::register_device();
    register_device(kHosted, std::make_unique<HostedBackend>(), {.missing_on_cpu = true});
    return true;
  }();
  static_cast<void>(done);
}

class Devices : public InBothModes {
 protected:
  Devices() { register_once(); }
  ~Devices() override {  // after any error the engine works, on every device
    for (const BackendKey b : {kCpu, kTally, kHosted})
      EXPECT_THAT((ones({2}, DType::f32, b) + 1).to_vector<int>(), ElementsAre(2, 2));
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Devices, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

TEST_P(Devices, ElementsSurviveTheWayThereAndBack) {
  for (const DType t : {DType::boolean, DType::i8, DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = astype(arange(24), t).reshape({2, 3, 4});
    const Tensor there = to(x, kTally), back = to(there, kCpu);
    EXPECT_EQ(device(there), kTally);
    EXPECT_EQ(device(back), kCpu);
    EXPECT_EQ(there.dtype(), t);
    EXPECT_EQ(there.shape(), x.shape());
    EXPECT_EQ(values(back), values(x));
    EXPECT_EQ(values(there), values(x));
  }
  EXPECT_EQ(to(tensor(3.5f), kTally).item<float>(), 3.5f);
  EXPECT_EQ(to(ones({0, 3}), kTally).shape(), (Shape{0, 3}));
  const Tensor x = ones({2});
  EXPECT_EQ(to(x, kCpu).impl(), x.impl());
  EXPECT_EQ(values(to(to(x, kTally), kHosted)), values(x));
  EXPECT_EQ(device(to(x, BackendKey::meta)), BackendKey::meta);
}

TEST_P(Devices, StridedSourcesBecomeDense) {
  const Tensor x = astype(arange(12), DType::f32).reshape({3, 4});
  EXPECT_EQ(values(to(x.mT(), kTally)), values(x.mT()));
  EXPECT_EQ(values(to(x.slice(1, 3, kNone, -2), kTally)), values(x.slice(1, 3, kNone, -2)));
  const Tensor there = to(x, kTally);
  EXPECT_EQ(values(to(there.mT(), kCpu)), values(x.mT()));
  EXPECT_EQ(values(there.slice(0, 1, 3) + there.slice(0, 0, 2)), values(x.slice(0, 1, 3) + x.slice(0, 0, 2)));
}

TEST_P(Devices, KernelsOfDescriptionsGiveTheCpusNumbers) {
  const Tensor x = astype(random_f64({5, 7}, -2, 2, true, 1), DType::f32),
               y = astype(random_f64({7}, -2, 2, true, 2), DType::f32);
  const auto program = [](const Tensor& a, const Tensor& b) {
    return concat({reshape(softmax(a * b + 1, -1), {-1}), sum(exp(a), 0), astype(argmax(a, 1), DType::f32), triu(a)[0],
                   reshape(where(a > b, a, 0.5), {-1}), matmul(a, b)});
  };
  const auto parts = [](const Tensor& a, const Tensor& b) {
    return std::vector<Tensor>{softmax(a * b + 1, -1),
                               sum(exp(a), 0),
                               argmax(a, 1),
                               triu(a),
                               where(a > b, a, 0.5),
                               matmul(a, b),
                               astype(a, DType::bf16) * 3,
                               full_like(a, 2) + iota({7}, 0, device(a)),
                               cross_entropy(a, argmax(a, 1))};
  };
  const std::vector<Tensor> here = parts(x, y), there = parts(to(x, kTally), to(y, kTally)),
                            hosted = parts(to(x, kHosted), to(y, kHosted));
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(device(there[i]), kTally);
    EXPECT_EQ(there[i].dtype(), here[i].dtype());
    const auto a = values(there[i]), b = values(here[i]), c = values(hosted[i]);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5) << i << ' ' << k;
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(c[k], b[k], 1e-5) << i << ' ' << k;
  }
  EXPECT_EQ(values(program(to(x, kHosted), to(y, kHosted))).size(), values(program(x, y)).size());
}

TEST_P(Devices, TensorsAreMadeOnADevice) {
  EXPECT_EQ(device(zeros({2}, DType::f64, kTally)), kTally);
  EXPECT_THAT(values(full({2}, 7, {}, kTally)), ElementsAre(7, 7));
  EXPECT_EQ(full({2}, 7, {}, kTally).dtype(), DType::i64);
  EXPECT_THAT(values(iota({3}, 0, kTally) * 2), ElementsAre(0, 2, 4));
  EXPECT_EQ(device(zeros_like(ones({2}, DType::f32, kTally))), kTally);
  EXPECT_EQ(device(bernoulli(full({4}, 0.5, {}, kTally))), kTally);
  EXPECT_EQ(device(empty({3}, DType::f32, kTally)), kTally);
  const Tensor x = ones({3}, DType::f32, kTally);
  x.assign(4);
  EXPECT_THAT(values(x), ElementsAre(4, 4, 4));
  EXPECT_EQ(device(x), kTally);
}

TEST_P(Devices, WritesInPlaceStayThere) {
  Tensor x = to(astype(arange(4), DType::f32), kTally);
  x += 1;
  x *= to(tensor({1.0f, 2.0f, 3.0f, 4.0f}), kTally);
  EXPECT_THAT(values(x), ElementsAre(1, 4, 9, 16));
  EXPECT_EQ(device(x), kTally);
  Tensor h = to(astype(arange(4), DType::f32), kHosted);
  h[1].assign(9);
  EXPECT_THAT(values(h), ElementsAre(0, 9, 2, 3));
}

TEST_P(Devices, ElementsOfTheCpuMeetAnyDevice) {
  const Tensor x = to(tensor({1.0f, 2.0f}), kTally), numbers = tensor({5.0f, 6.0f, 7.0f});
  EXPECT_THAT(values(x + tensor(3.0f)), ElementsAre(4, 5));
  EXPECT_THAT(values(tensor(3.0f) - x), ElementsAre(2, 1));
  EXPECT_THAT(values(x * numbers[2]), ElementsAre(7, 14));     // a view, at an offset
  EXPECT_THAT(values(x + sum(numbers)), ElementsAre(19, 20));  // pending
  EXPECT_THAT(values(x + tensor(2)), ElementsAre(3, 4));       // of another dtype
  EXPECT_THAT(values(where(x > 1, x, tensor(0.0f))), ElementsAre(0, 2));
  EXPECT_EQ(device(x + tensor(3.0f)), kTally);
  EXPECT_THAT(values(to(tensor({1.0f, 2.0f}), kHosted) + tensor(3.0f)), ElementsAre(4, 5));
}

TEST_P(Devices, GradientsGoBackToWhereTheLeafIs) {
  Tensor x = tensor({1.0f, 2.0f}), scale = tensor(3.0f);
  x.requires_grad(true), scale.requires_grad(true);
  sum(square(to(x, kTally)) * scale).backward();
  EXPECT_EQ(device(x.grad()), kCpu);
  EXPECT_EQ(device(scale.grad()), kCpu);
  EXPECT_THAT(values(x.grad()), ElementsAre(6, 12));
  EXPECT_EQ(scale.grad().item<float>(), 5);
  Tensor there = to(tensor({1.0f, 2.0f}), kTally);
  there.requires_grad(true);
  to(sum(exp(there) * there), kCpu).backward();
  EXPECT_EQ(device(there.grad()), kTally);
}

TEST_P(Devices, BatchesMoveAsOne) {
  const Tensor x = astype(arange(6), DType::f32).reshape({3, 2});
  const auto before = tally::counts().copies_in;
  const Tensor y = vmap([](const Tensor& row) { return to(row, kTally) * 2; })(x);
  EXPECT_EQ(tally::counts().copies_in, before + 1);
  EXPECT_EQ(device(y), kTally);
  EXPECT_THAT(values(y), ElementsAre(0, 2, 4, 6, 8, 10));
  const Tensor slopes = vmap(grad([](const Tensor& row) { return sum(square(to(row, kTally))); }))(x);
  EXPECT_EQ(device(slopes), kCpu);
  EXPECT_THAT(values(slopes), ElementsAre(0, 2, 4, 6, 8, 10));
}

TEST_P(Devices, OneSyncMayNameTensorsOfSeveral) {
  const Tensor here = ones({2}) + 1, there = ones({2}, DType::f32, kTally) + 2, more = here * 2;
  sync({here, there, more});
  EXPECT_FALSE(here.pending() || there.pending() || more.pending());
  EXPECT_THAT(values(there), ElementsAre(3, 3));
  EXPECT_THAT(values(more), ElementsAre(4, 4));
}

TEST_P(Devices, CompiledFunctionsReplayThere) {
  auto f = compile([](const Tensor& x, const Tensor& s) { return exp(x) * s; });
  const Tensor x = to(tensor({0.0f, 0.0f}), kTally);
  EXPECT_THAT(values(f(x, tensor(2.0f))), ElementsAre(2, 2));
  EXPECT_THAT(values(f(x, tensor(3.0f))), ElementsAre(3, 3));  // an element of the CPU is an argument like others
  EXPECT_EQ(device(f(x, tensor(3.0f))), kTally);
  EXPECT_THAT(values(f(tensor({0.0f}), tensor(4.0f))), ElementsAre(4));
}

TEST_P(Devices, PlansAreNotShared) {
  const auto run = [](BackendKey b) { return full({4}, 2, DType::f32, b) * 3; };
  EXPECT_EQ(values(run(kCpu)), values(run(kTally)));
  const auto before = tally::counts().launched;
  EXPECT_EQ(values(run(kTally)), values(run(kHosted)));
  EXPECT_GT(tally::counts().launched, before);
}

TEST_P(Devices, PrintingAndExplain) {
  EXPECT_THAT(to_string(zeros({60, 60}, DType::f32, kTally)), HasSubstr("..."));
  EXPECT_THAT(explain({exp(ones({2}, DType::f32, kTally)), exp(ones({2}))}),
              AnyOf(HasSubstr("device private_use1:0"), HasSubstr("input")));
}

TEST_P(Devices, MemoryIsGivenBack) {
  const auto before = tally::counts().live_bytes;
  { EXPECT_EQ(sum(exp(ones({100}, DType::f32, kTally)) + 1).shape(), Shape{}); }
  EXPECT_EQ(tally::counts().live_bytes, before);
}

TEST_P(Devices, ErrorsNameTheDevices) {
  const Tensor here = ones({2, 2}), there = ones({2, 2}, DType::f32, kTally), third = ones({2, 2}, DType::f32, kHosted);
  EXPECT_EQ(message_without_place<DeviceError>([&] { here + there; }),
            "FM1401 DeviceError: add: operands are on CPU and PrivateUse1\n"
            "  lhs  f32[2, 2]   on CPU\n"
            "  rhs  f32[2, 2]   on PrivateUse1\n"
            "  hint move one of them with to()");
  EXPECT_EQ(message_without_place<DeviceError>([&] { matmul(there, third); }),
            "FM1401 DeviceError: matmul: operands are on PrivateUse1 and PrivateUse3\n"
            "  x    f32[2, 2]   on PrivateUse1\n"
            "  x    f32[2, 2]   on PrivateUse3\n"
            "  hint move one of them with to()");
  EXPECT_EQ(message_without_place<DeviceError>([&] { here.assign(there); }),
            "FM1401 DeviceError: an in-place write: the tensor is on CPU, the value on PrivateUse1\n"
            "  x     f32[2, 2]   on CPU\n"
            "  value f32[2, 2]   on PrivateUse1\n"
            "  hint  move the value with to()");
  EXPECT_EQ(message_without_place<DeviceError>([&] { to(here, kMissing); }),
            "FM1403 DeviceError: to: no backend for PrivateUse2");
  EXPECT_EQ(message_without_place<DeviceError>([&] { zeros({2}, DType::f32, kMissing); }),
            "FM1403 DeviceError: zeros: no backend for PrivateUse2");
  EXPECT_EQ(message_without_place<DeviceError>([&] { to(here, Device(kTally, 1)); }),
            "FM1406 DeviceError: to: no device private_use1:1: devices of this kind are one");
  EXPECT_EQ(message_without_place<DeviceError>([&] { zeros({2}, DType::f32, Device(BackendKey::cpu, 2)); }),
            "FM1406 DeviceError: zeros: no device cpu:2: devices of this kind are one");
  EXPECT_EQ(message_without_place<DeviceError>([&] { there.data<float>(); }),
            "FM1402 DeviceError: data: the tensor is not on the CPU\n"
            "  x    f32[2, 2]");
  EXPECT_EQ(message_without_place<UnsupportedError>([&] {
              concat({there, there});
            }),
            "FM2001 UnsupportedError: concat: no kernel for PrivateUse1\n"
            "  hint see `fermata ops concat`; to() moves the operands to a device that has one");
  EXPECT_EQ(
      message_without_place<UnsupportedError>([&] { matmul(astype(there, DType::i32), astype(there, DType::i32)); }),
      "FM2002 UnsupportedError: matmul: no PrivateUse1 kernel for i32\n"
      "  hint cast to one of: f32, f64");
}

TEST_P(Devices, KernelsForCallsAreStepsOfPlans) {
  // The library of an operator is there while it lives: concat has a kernel on the device now, and no code that fuses.
  Library far(Library::Kind::implementation, "fermata", "PrivateUse1");
  far.impl("concat", [](std::span<const Tensor> parts, const Attributes&) {
    return to(ones({2 * static_cast<std::int64_t>(parts.size())}, DType::f32), kTally);
  });
  const Tensor x = exp(zeros({2}, DType::f32, kTally));
  EXPECT_THAT(values(concat({x, x, x}) + 1), ElementsAre(2, 2, 2, 2, 2, 2));
  auto f = compile([](const Tensor& t) { return concat({t, t}) * 3; });
  for (int call = 0; call < 3; ++call) EXPECT_THAT(values(f(x)), ElementsAre(3, 3, 3, 3)) << call;
}

TEST(DevicesInCompile, ErrorsOfCompiledFunctions) {
  register_once();
  auto both = compile([](const Tensor& x, const Tensor& y) { return std::vector<Tensor>{exp(x), exp(y)}; });
  EXPECT_EQ(message_without_place<DeviceError>([&] { both(ones({2}), ones({2}, DType::f32, kTally)); }),
            "FM1404 DeviceError: a compiled function uses both CPU and PrivateUse1\n"
            "  hint compile the part of each device separately");
  auto moving = compile([](const Tensor& x) { return to(x, kTally) + 1; });
  EXPECT_EQ(message_without_place<UserError>([&] { moving(ones({2})); }),
            "FM1701 UserError: a tensor is moved inside a function that is being compiled\n"
            "  hint move it before, and pass it as an argument");
}

}  // namespace
}  // namespace fermata
