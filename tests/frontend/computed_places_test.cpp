// Values that a kernel computes again where they are read: at so few places that this is no more work than storing
// them.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

/// The most that one of a plan's kernels has of what explain() counts.
int most(const std::string& explained, const std::string& what) {
  const std::regex count("([0-9]+) " + what);
  int most = 0;
  for (std::sregex_iterator at(explained.begin(), explained.end(), count), end; at != end; ++at)
    most = std::max(most, std::stoi((*at)[1]));
  return most;
}

Tensor shortest_paths(Tensor x, std::int64_t steps) {
  for (std::int64_t k = 0; k < steps; ++k) x = minimum(x, slice(x, 1, k, k + 1) + slice(x, 0, k, k + 1));
  return x;
}
/// Each step reads three places of the one before.
Tensor smooth(Tensor x, int steps) {
  for (int k = 0; k < steps; ++k) x = slice(x, 0, 0, -2) + tanh(slice(x, 0, 1, -1)) * slice(x, 0, 2);
  return x;
}

TEST(ComputedPlaces, DoNotGrowWithTheLengthOfAProgram) {
  const Tensor x = rand({40, 40}).sync(), y = rand({1000}).sync();
  const std::string paths = explain(shortest_paths(x, 12)), smoothed = explain(smooth(y, 12));
  EXPECT_LE(most(paths, "primitives"), 150) << paths;  // all steps in one kernel are thousands
  EXPECT_LE(most(paths, "loads and stores"), 100) << paths;
  EXPECT_LE(most(smoothed, "primitives"), 150) << smoothed;
}

TEST(ComputedPlaces, HaveTheSameElementsInEveryWay) {
  for (const int steps : {1, 2, 3, 7}) {
    const Tensor x = rand({30, 33}).sync(), y = rand({200}).sync();
    const auto results = in_every_way([&] { return std::vector{shortest_paths(x, steps), smooth(y, steps)}; });
    for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way;
  }
}

}  // namespace
}  // namespace fermata
