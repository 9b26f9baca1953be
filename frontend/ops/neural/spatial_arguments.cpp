// See spatial_arguments.h.
#include "frontend/ops/neural/spatial_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata {

Shape by_axis(std::string_view function, std::string_view argument, std::span<const std::int64_t> given,
              std::size_t axes, std::int64_t least, Location where) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(1372,
                     format_error(1372, "ValueError", fmt::format("{}: {} {}", function, argument, what), {}, where));
  };
  if (given.size() != 1 && given.size() != axes)
    fail(fmt::format("has {} numbers, not {}", given.size(), axes == 1 ? "1" : fmt::format("1 or {}", axes)));
  Shape result;
  for (std::size_t i = 0; i < axes; ++i) result.push_back(given[given.size() == 1 ? 0 : i]);
  for (const std::int64_t size : result)
    if (size < least) fail(fmt::format("is {}, below {}", size, least));
  return result;
}

Images::Images(std::string_view function, const Tensor& given, std::size_t axes, Location where) {
  require_defined(function, given, where);
  added_ = given.rank() == axes + 1;
  if (!added_ && given.rank() != axes + 2)
    throw ShapeError(1071,
                     format_error(1071, "ShapeError",
                                  fmt::format("{}: x must have channels and {} spatial ax{}, with or without a batch",
                                              function, axes, axes == 1 ? "is" : "es"),
                                  describe(given), where));
  x = added_ ? expand_dims(given, 0, where) : given;
}

Tensor Images::restore(const Tensor& y, Location where) const { return added_ ? squeeze(y, 0, where) : y; }

}  // namespace fermata
