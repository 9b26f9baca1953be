// The table of registration events by transforms by ways to run: in each cell a program gives what eager mode gives,
// while the event is in force, and again what it gave before when it is over.
#include <fermata/library.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string_view>

#include "dispatch/kernel_table.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

using Kind = Library::Kind;

/// What is in force while the table is looked at.
struct InForce {
  std::optional<Library> library;
  std::optional<KeyGuard> keys;
};

struct Event {
  const char* name;
  void (*happen)(InForce&);
};

Library& cpu(InForce& in) { return in.library.emplace(Kind::implementation, "fermata", "CPU"); }
Tensor halved(const Operand& x) { return x.tensor() * 0.5; }

const Event kEvents[] = {
    {"a kernel replaces tanh", [](InForce& in) { cpu(in).impl("tanh", &halved, {.replaces = true}); }},
    {"a boxed kernel replaces tanh",
     [](InForce& in) {
       cpu(in).impl_boxed("tanh", [](const Call&, Stack& stack) { stack.assign(1, stack[0].as<Tensor>() * 0.5); },
                          {.replaces = true});
     }},
    {"a variant of tanh with a condition",
     [](InForce& in) {
       cpu(in).impl("tanh", &halved,
                    {.variant = "halves",
                     .fits = [](const Stack& s) { return s[0].as<Tensor>().dtype() == DType::f32; },
                     .fits_text = "f32",
                     .cost = -1});
     }},
    {"a kernel for the composite softmax",
     [](InForce& in) {
       cpu(in).impl_boxed("softmax", [](const Call&, Stack& stack) {
         const Tensor x = stack[0].as<std::vector<Tensor>>()[0];
         stack.assign(1, x * 0.25);
       });
     }},
    {"two kernels at once",
     [](InForce& in) {
       cpu(in)
           .impl("tanh", &halved, {.replaces = true})
           .impl("exp", [](const Operand& x) { return x.tensor() + 1; }, {.replaces = true});
     }},
    {"a kernel under a user key",
     [](InForce& in) {
       in.library.emplace(Kind::implementation, "fermata", "User1")
           .impl_boxed("tanh", [](const Call& call, Stack& stack) {
             redispatch_boxed(call, Functionality::user1, stack);
             stack.assign(1, stack[0].as<Tensor>() * 3);
           });
       in.keys.emplace(Functionality::user1, DispatchKeySet());
     }},
    {"a fallback under a user key",
     [](InForce& in) {
       in.library.emplace(Kind::implementation, "_", "User2").fallback([](const Call& call, Stack& stack) {
         redispatch_boxed(call, Functionality::user2, stack);
         if (call.entry.name == "exp") stack.assign(1, stack[0].as<Tensor>() * 1.5);
       });
       in.keys.emplace(Functionality::user2, DispatchKeySet());
     }},
};

Tensor body(const Tensor& x) { return tanh(x) * 2 + softmax(x, 0) + exp(x * 0.5); }

struct Transform {
  const char* name;
  std::vector<Tensor> (*program)(const Tensor& x);
};

const Transform kTransforms[] = {
    {"a plain call", [](const Tensor& x) { return std::vector{body(x)}; }},
    {"vmap",
     [](const Tensor& x) {
       return std::vector{vmap([](const Tensor& row) { return body(row); })(x.reshape({2, 2}))};
     }},
    {"gradients",
     [](const Tensor& x) {
       Tensor w = x.detach();
       w.requires_grad(true);
       return std::vector{gradients(sum(body(w)), {w})[0]};
     }},
    {"control flow",
     [](const Tensor& x) {
       return std::vector{fori_loop(
           0, 3, [](const Tensor&, const Tensor& t) { return body(t) * 0.25; }, x)};
     }},
    {"autocast",
     [](const Tensor& x) {
       const AutocastGuard region;
       return std::vector{body(x), astype(matmul(x.reshape({2, 2}), body(x).reshape({2, 2})), DType::f32)};
     }},
    {"a function that is compiled",
     [](const Tensor& x) {
       auto inner = compile([](const Tensor& t) { return body(t); });
       const Tensor y = inner(x);
       return std::vector{y, inner(x)};
     }},
    {"checkpoint",
     [](const Tensor& x) {
       Tensor w = x.detach();
       w.requires_grad(true);
       return std::vector{gradients(sum(checkpoint([](const Tensor& t) { return body(t); })(w)), {w})[0]};
     }},
};

TEST(EventTable, EveryCellIsThatOfEagerMode) {
  const Tensor x = tensor(std::vector<float>{0.5f, -1, 0.25f, 2}).sync();
  const auto near = [](const Numbers& a, const Numbers& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (std::abs(a[i] - b[i]) > 1e-5 * (1 + std::abs(b[i]))) return false;
    return true;
  };
  for (const Transform& transform : kTransforms) {
    const auto program = [&] { return transform.program(x); };
    const auto before = in_every_way(program);
    for (const auto& [way, numbers] : before)
      EXPECT_TRUE(near(numbers, before[0].second)) << transform.name << ", " << way;
    for (const Event& event : kEvents) {
      {
        InForce in;
        event.happen(in);
        const auto during = in_every_way(program);
        EXPECT_FALSE(near(during[0].second, before[0].second))
            << event.name << ", " << transform.name << ": changes nothing";
        for (const auto& [way, numbers] : during)
          EXPECT_TRUE(near(numbers, during[0].second)) << event.name << ", " << transform.name << ", " << way;
      }
      for (const auto& [way, numbers] : in_every_way(program))
        EXPECT_TRUE(near(numbers, before[0].second)) << "after " << event.name << ", " << transform.name << ", " << way;
    }
  }
}

TEST(EventTable, APlayedTraceMeetsTheTableOfTheMoment) {
  const Tensor x = tensor(std::vector<float>{0.5f, -1, 0.25f, 2}).sync();
  const Trace traced = trace([](const Tensor& t) { return tanh(t) + 1; }, x);
  const std::vector<Tensor> arguments{x};
  const auto play = [&] { return run_trace(traced, arguments); };
  const auto before = in_every_way(play);
  for (const Event& event : kEvents) {
    if (std::string_view(event.name).find("tanh") == std::string_view::npos) continue;
    InForce in;
    event.happen(in);
    const auto during = in_every_way(play);
    EXPECT_NE(during[0].second, before[0].second) << event.name;
    for (const auto& [way, numbers] : during)
      for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_NEAR(numbers[i], during[0].second[i], 1e-5) << event.name << ", " << way;
  }
}

}  // namespace
}  // namespace fermata
