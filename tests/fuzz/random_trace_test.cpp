// Random programs traced: the program in the text computes what the traced run did. Environment as in
// random_graph_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "fermata/fermata.h"
#include "tests/fuzz/random_program.h"
#include "tests/ir/seed.h"

namespace fermata::testing {
namespace {

std::uint64_t program_count() {
  const char* given = std::getenv("FERMATA_FUZZ_COUNT");
  return given == nullptr ? 100 : std::strtoull(given, nullptr, 10);
}

/// Bits of all elements; every NaN is one.
std::string bits(const Tensor& x) {
  const Tensor dense = copy(where(not_equal(x, x), full({}, 0, x.dtype()), x)).sync();
  const Tensor nan = astype(not_equal(x, x), DType::u8).sync();
  const auto text = [](const Tensor& t) {
    const auto size = static_cast<std::size_t>(t.element_count()) * byte_size(t.dtype());
    return std::string(static_cast<const char*>(t.node()->storage.load()->data), size);
  };
  return text(dense) + text(nan);
}

void check(const Program& program, const AxisSizes& sizes) {
  const ModeGuard eager(Mode::eager);
  const Trace traced = trace([&] {
    Execution execution(sizes);
    execution.run(program);
    std::vector<Tensor> kept;
    for (const std::uint32_t v : program.kept)
      if (execution.values[v].defined()) kept.push_back(execution.values[v]);
    return kept;
  });
  const std::string text = to_string(traced);
  SCOPED_TRACE(text);
  EXPECT_FALSE(traced.results.empty());
  EXPECT_TRUE(traced.frozen.empty());
  Trace read = traced;
  read.graph = parse_graph(text);
  ASSERT_EQ(to_string(read.graph), to_string(traced.graph));
  const std::vector<Tensor> played = run_trace(read, {});
  ASSERT_EQ(played.size(), traced.outputs.size());
  for (std::size_t i = 0; i < traced.results.size(); ++i) {
    ASSERT_EQ(played[i].dtype(), traced.results[i].dtype()) << i;
    ASSERT_EQ(played[i].shape(), traced.results[i].shape()) << i;
    EXPECT_EQ(bits(played[i]), bits(traced.results[i])) << "result " << i;
  }
}

TEST(RandomTraces, ComputeWhatTheRunDid) {
  constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 17, 33, 0};
  const std::uint64_t seed = test_seed(20241121);
  for (std::uint64_t i = 0; i < program_count() && !HasFailure(); ++i) {
    std::mt19937_64 random(seed + i);
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed + i) + " FERMATA_FUZZ_COUNT=1");
    AxisSizes sizes;
    for (std::int64_t& size : sizes) size = kSizes[random() % std::size(kSizes)];
    check(random_program(random, 4 + random() % 20, sizes), sizes);
  }
}

}  // namespace
}  // namespace fermata::testing
