// The rates of product_rates.h, measured on this machine once, and stored next to machine code.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen_cpu/library/product_rates.h"

namespace fermata {

/// Those that were kept by an earlier process on such a processor. Where there are none, and none are shipped for it or
/// FERMATA_CALIBRATE is 1, they are measured beside what the process does, for the processes that follow: this one
/// goes on as it began.
std::optional<ProductRates> calibrated_product_rates();
/// Runs each kernel for some milliseconds, and sets its rate so that its cost is the time that it took.
ProductRates measure_product_rates();

/// The text that is kept, and back; nothing where it is not one of these, or holds what no processor does.
std::string to_text(const ProductRates& rates);
std::optional<ProductRates> product_rates_of_text(std::string_view text);

}  // namespace fermata
