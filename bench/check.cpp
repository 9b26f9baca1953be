// See check.h.
#include "bench/check.h"

#include <fmt/format.h>

namespace bench {

namespace fm = fermata;

std::string difference(const std::vector<fm::Tensor>& got, const std::vector<fm::Tensor>& wanted) {
  const fm::ModeGuard eager(fm::Mode::eager);
  if (got.size() != wanted.size()) return fmt::format("{} results, not {}", got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double largest = fm::max(fm::abs(wanted[i])).item<double>();
    const double differs = fm::max(fm::abs(got[i] - wanted[i])).item<double>();
    if (!(differs <= 1e-5 * largest))
      return fmt::format("result {} differs by {:.3g} among values up to {:.3g}", i, differs, largest);
  }
  return {};
}

}  // namespace bench
