// Host scalars as text, exactly: what the printers write and the parser reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace fermata {

/// The shortest decimal that reads back to the same bits; "inf", "-inf", "nan"; other NaNs as hexadecimal bits.
std::string scalar_to_text(DType dtype, std::uint64_t bits);
/// The bits of such a text; nothing if it is none, or does not fit the dtype.
std::optional<std::uint64_t> scalar_from_text(DType dtype, std::string_view text);

}  // namespace fermata
