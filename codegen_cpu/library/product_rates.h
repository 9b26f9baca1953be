// How fast the kernels of products are on a processor: what their costs are made of.
//
// Only how they compare decides anything, and that differs from one core to the next by more than sizes make up for.
// Processors that nobody has measured are taken for the first one in the table of product_rates.cpp, until they are
// measured themselves (calibrate.cpp): figures of this machine are kept in the disk cache and used from then on.
#pragma once

#include <array>
#include <string_view>

namespace fermata {

/// Multiply-adds of f32, if nothing else is said, per nanosecond of one core, on products that fill its registers.
struct ProductRates {
  double portable_avx512, portable_avx2;
  double onednn_avx512, onednn_avx2;
  double onednn_far;      // times as long from where operands and result are more than 4 MiB
  double onednn_packing;  // then, ns for each element of the right side
  double onednn_call;     // ns of a call beside its multiply-adds
  double libxsmm, libxsmm_call;
  double onednn_bf16, onednn_bf16_far;  // by pairs (vdpbf16ps), and as above
  double onednn_bytes;                  // by VNNI
};

struct ProductRateField {
  std::string_view name;
  double ProductRates::*field;
};
inline constexpr auto kProductRateFields = std::to_array<ProductRateField>({
    {"portable_avx512", &ProductRates::portable_avx512},
    {"portable_avx2", &ProductRates::portable_avx2},
    {"onednn_avx512", &ProductRates::onednn_avx512},
    {"onednn_avx2", &ProductRates::onednn_avx2},
    {"onednn_far", &ProductRates::onednn_far},
    {"onednn_packing", &ProductRates::onednn_packing},
    {"onednn_call", &ProductRates::onednn_call},
    {"libxsmm", &ProductRates::libxsmm},
    {"libxsmm_call", &ProductRates::libxsmm_call},
    {"onednn_bf16", &ProductRates::onednn_bf16},
    {"onednn_bf16_far", &ProductRates::onednn_bf16_far},
    {"onednn_bytes", &ProductRates::onednn_bytes},
});
static_assert(sizeof(ProductRates) == kProductRateFields.size() * sizeof(double), "every figure has a name");

/// Those in use.
const ProductRates& product_rates();
/// Those that are known without measuring: of this processor, or of the one it is taken for.
const ProductRates& shipped_product_rates();
/// Others from now on, for the life of the process.
void use_product_rates(const ProductRates& rates);

/// Others for the costs that this thread asks for, for a scope.
class TrialRates {
 public:
  explicit TrialRates(const ProductRates& rates);
  ~TrialRates();
  TrialRates(const TrialRates&) = delete;
  TrialRates& operator=(const TrialRates&) = delete;
};

}  // namespace fermata
