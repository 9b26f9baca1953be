// FERMATA_CHECK_COLLECTIVES=1: ranks that disagree are told so, all of them, and go on.
#include <gtest/gtest.h>

#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

using distributed::Reduction, distributed::world;

/// Without the path.
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CollectiveError& error) { return error.what(); }
  return "no error";
}

class OnlyChecked : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, OnlyChecked, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(OnlyChecked, NamesBothCalls) {
  const bool is_first = world().rank() == 0;
  const std::string text = message_of([&] {
    if (is_first)
      distributed::all_reduce(ones({3})).sync();
    else
      distributed::all_reduce(ones({4}), Reduction::max).sync();
  });
  EXPECT_NE(text.find("FM7007 CollectiveError: all_reduce: ranks 0 and 1 make different calls"), text.npos) << text;
  EXPECT_NE(text.find("rank 0 all_reduce of 3 f32, sum at ranks/checked.cpp:"), text.npos) << text;
  EXPECT_NE(text.find("rank 1 all_reduce of 4 f32, max at ranks/checked.cpp:"), text.npos) << text;
  EXPECT_EQ(distributed::all_reduce(ones({})).item<float>(), static_cast<float>(world().size()));
}

TEST_P(OnlyChecked, OpsDTypesRootsAndLines) {
  const bool is_first = world().rank() == 0;
  const Tensor x = ones({4});
  const auto outcome = [&](const std::function<Tensor()>& one, const std::function<Tensor()>& other) {
    return message_of([&] { (is_first ? one : other)().sync(); }).substr(0, 6);
  };
  EXPECT_EQ(outcome([&] { return distributed::all_gather(x); }, [&] { return distributed::all_to_all(x, 0, 0); }),
            "FM7007");
  const Tensor wide = astype(x, DType::f64);
  EXPECT_EQ(outcome([&] { return distributed::broadcast(x); }, [&] { return distributed::broadcast(wide); }), "FM7007");
  EXPECT_EQ(outcome([&] { return distributed::broadcast(x, 0); }, [&] { return distributed::broadcast(x, 1); }),
            "FM7007");
  const auto one_line = [&] { return distributed::broadcast(x); };
  const auto another_line = [&] { return distributed::broadcast(x); };
  EXPECT_EQ(outcome(one_line, another_line), "FM7007");
  EXPECT_EQ(outcome(one_line, one_line), "no err");
  const auto makes_group = [&] {
    static_cast<void>(world().split(0));
    return x;
  };
  EXPECT_EQ(outcome(one_line, makes_group), "FM7007");
}

}  // namespace
}  // namespace fermata
