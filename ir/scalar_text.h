// Exact text form of host scalars, as the printers write and the parser reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace fermata {

/// The shortest decimal that reads back to the same bits; "inf", "-inf", "nan"; other NaNs as hexadecimal bits.
std::string scalar_to_text(DType dtype, std::uint64_t bits);
/// Parses such a text to bits; nullopt if it is invalid or does not fit the dtype.
std::optional<std::uint64_t> scalar_from_text(DType dtype, std::string_view text);

}  // namespace fermata
