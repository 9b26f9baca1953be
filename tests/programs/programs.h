// Programs that use the engine as users do, for tests that run them many times: with faults, and for hours.
//
// A program computes the same numbers whenever it runs. It may use files below the folder that it is given.
#pragma once

#include <fermata/fermata.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fermata::programs {

/// The elements of results, as bits of doubles, in the order in which they were added.
class Results {
 public:
  void add(const Tensor& x);
  void add(double x);
  void add(const Results& others);
  bool operator==(const Results&) const = default;
  /// Whether both have as many numbers, and none differs by more than a small multiple of the rounding of f32.
  bool is_close(const Results& other) const;
  std::size_t size() const { return bits_.size(); }

 private:
  std::vector<std::uint64_t> bits_;
};

struct Program {
  const char* name;
  void (*run)(Results& results, const std::string& folder);
  bool is_small = false;  // each of its points can be tried
  bool is_on_device = false;
};
std::span<const Program> all();

}  // namespace fermata::programs
