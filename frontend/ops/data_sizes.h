// Sizes of results that only the data say.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

/// How many elements something has that only the data say; `size` where the caller said it, in the argument of that
/// name.
std::int64_t size_from_data(std::string_view function, const Tensor& x, const Tensor& count,
                            std::optional<std::int64_t> size, Location where, std::string_view argument = "size");

}  // namespace fermata
