// See dtype.h.
#include "ir/dtype.h"

namespace fermata {

std::optional<DType> dtype_from_name(std::string_view text) {
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (kDTypes[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace fermata
