// Finds out how numbers of a program follow from the sizes that are dynamic.
//
// The function has been recorded several times, with other sizes each time. A number that differs is sought among
// products of up to three sizes that are known, scaled, shifted, added in pairs or divided and rounded down; what is
// found holds for every recording, which are more than an expression has numbers to choose.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frontend/run/program_file.h"

namespace fermata {

class SizeSearch {
 public:
  explicit SizeSearch(std::size_t samples) : samples_(samples) {}
  /// A size that is known: its value in each recording. One that is always the same, or that of another one, is left
  /// out.
  void add(SizeVariable variable, std::vector<std::int64_t> values);

  /// Nothing where no expression gives these values.
  std::optional<SizeExpression> find(std::span<const std::int64_t> values) const;
  /// The same for host numbers of a dtype.
  std::optional<NumberExpression> find(std::span<const std::uint64_t> bits, DType dtype) const;

 private:
  using Values = std::vector<std::int64_t>;
  struct Known {
    SizeVariable variable;
    Values values;
  };
  struct Product {
    std::vector<SizeVariable> factors;
    Values values;
  };
  std::vector<Product> products(std::size_t most) const;

  std::size_t samples_;
  std::vector<Known> known_;
};

}  // namespace fermata
