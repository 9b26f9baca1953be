// Seeds of random tests: fixed, printed where a test fails, and taken back from FERMATA_SEED.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace fermata::testing {

inline std::uint64_t test_seed(std::uint64_t fixed) {
  const char* given = std::getenv("FERMATA_SEED");
  return given == nullptr ? fixed : std::strtoull(given, nullptr, 10);
}

/// A generator whose seed every failure in the scope of `trace` shows.
class SeededTest : public ::testing::Test {
 protected:
  std::uint64_t seed_ = test_seed(20240607);
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "FERMATA_SEED=" + std::to_string(seed_)};

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  template <class List> const auto& any_of(const List& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(std::size(list)) - 1))];
  }
};

}  // namespace fermata::testing
