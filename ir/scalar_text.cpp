// See scalar_text.h.
#include "ir/scalar_text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "ir/float16.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

/// f16 and bf16 have no to_chars: the fewest digits that narrow back to the same bits.
template <class Narrow> std::string shortest_half(float value, std::uint16_t bits, Narrow narrow) {
  for (int digits = 1;; ++digits) {
    std::string text = fmt::format("{:.{}g}", value, digits);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    if (narrow(back).bits == bits || digits == 9) return text;
  }
}

std::string float_to_text(DType dtype, std::uint64_t bits) {
  const double value = std::bit_cast<double>(convert_slot(dtype, DType::f64, bits));
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (std::isnan(value)) {
    const auto quiet = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::quiet_NaN());
    return bits == convert_slot(DType::f64, dtype, quiet) ? "nan" : fmt::format("{:#x}", bits);
  }
  const auto narrow_bits = static_cast<std::uint16_t>(bits);
  switch (dtype) {
    case DType::f16: return shortest_half(static_cast<float>(value), narrow_bits, to_float16);
    case DType::bf16: return shortest_half(static_cast<float>(value), narrow_bits, to_bfloat16);
    case DType::f32: return fmt::format("{}", static_cast<float>(value));
    default: return fmt::format("{}", value);
  }
}

template <class T> std::optional<T> number(std::string_view text, auto... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string scalar_to_text(DType dtype, std::uint64_t bits) {
  if (dtype == DType::boolean) return bits != 0 ? "true" : "false";
  if (is_floating(arithmetic_dtype(dtype))) return float_to_text(dtype, bits);
  if (is_signed(arithmetic_dtype(dtype)))
    return fmt::format("{}", static_cast<std::int64_t>(convert_slot(dtype, DType::i64, bits)));
  return fmt::format("{}", bits);
}

std::optional<std::uint64_t> scalar_from_text(DType dtype, std::string_view text) {
  if (is_quantized(dtype)) return std::nullopt;
  if (dtype == DType::boolean) {
    if (text == "true") return 1;
    if (text == "false") return 0;
    return std::nullopt;
  }
  if (text.starts_with("0x")) {
    const auto bits = number<std::uint64_t>(text.substr(2), 16);
    const std::size_t width = 8 * byte_size(dtype);
    if (!bits || (width < 64 && *bits >> width != 0)) return std::nullopt;
    return bits;
  }
  if (dtype == DType::f32) {  // read at its own width: through f64 it would round twice
    const auto value = number<float>(text);
    if (!value) return std::nullopt;
    return std::bit_cast<std::uint32_t>(*value);
  }
  if (is_floating(arithmetic_dtype(dtype))) {
    const auto value = number<double>(text);
    if (!value) return std::nullopt;
    return convert_slot(DType::f64, dtype, std::bit_cast<std::uint64_t>(*value));
  }
  const DType wide = is_signed(arithmetic_dtype(dtype)) ? DType::i64 : DType::u64;
  const auto signed_value = number<std::int64_t>(text);
  const auto unsigned_value = number<std::uint64_t>(text);
  if (wide == DType::i64 ? !signed_value : !unsigned_value) return std::nullopt;
  const std::uint64_t given = wide == DType::i64 ? static_cast<std::uint64_t>(*signed_value) : *unsigned_value;
  const std::uint64_t bits = convert_slot(wide, dtype, given);
  if (convert_slot(dtype, wide, bits) != given) return std::nullopt;
  return bits;
}

}  // namespace fermata
