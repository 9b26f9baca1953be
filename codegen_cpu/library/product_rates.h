// How fast the kernels of products and convolutions are on a processor: what their costs are made of.
//
// Only how they compare decides anything, and that differs from one core to the next by more than sizes make up for.
// Unmeasured processors use the first row of the table in product_rates.cpp, until they are
// measured themselves (calibrate.cpp): figures of this machine are kept in the disk cache, for the processes that
// follow.
#pragma once

#include <array>
#include <string_view>

namespace fermata {

/// Multiply-adds of f32, if nothing else is said, per nanosecond of one core, on products that fill its registers.
struct ProductRates {
  double portable_avx512, portable_avx2;
  double onednn_avx512, onednn_avx2;
  double onednn_far;      // times as long from where operands and result are more than 4 MiB
  double onednn_packing;  // then, ns for each element of the right side, where rows are more than a few
  double onednn_call;     // overhead of a call in ns
  double libxsmm, libxsmm_call;
  double onednn_bf16, onednn_bf16_far;              // by pairs (vdpbf16ps), and as above
  double pairs_bf16;                                // our own by pairs (bf16_pairs.h)
  double onednn_bytes;                              // by VNNI
  double onednn_apart = 1.25;                       // times as long where rows are a power of two apart
  double onednn_byte = 0.09, portable_byte = 0.07;  // ns: products that only read their operands
  // With tiles; those of a processor without them are of no use.
  double amx_f32 = 155, amx_bf16 = 670, amx_bytes = 1100;  // without packing
  double onednn_tiles_bf16 = 610, onednn_tiles_bytes = 1200;
  double convolution_amx = 78;
  // Convolutions of f32.
  double convolution_onednn = 0.85;  // times as long as a product of as many multiply-adds
  double convolution_portable = 16.7;
  double convolution_depthwise = 1;    // times as long as on Sapphire Rapids
  double convolution_winograd = 0.86;  // times as long as a product of as many multiply-adds
  double stream_mib = 8;  // results of so many MiB for each processor bypass the caches (runtime/streaming.h)
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
    {"pairs_bf16", &ProductRates::pairs_bf16},
    {"onednn_bytes", &ProductRates::onednn_bytes},
    {"onednn_apart", &ProductRates::onednn_apart},
    {"onednn_byte", &ProductRates::onednn_byte},
    {"portable_byte", &ProductRates::portable_byte},
    {"amx_f32", &ProductRates::amx_f32},
    {"amx_bf16", &ProductRates::amx_bf16},
    {"amx_bytes", &ProductRates::amx_bytes},
    {"onednn_tiles_bf16", &ProductRates::onednn_tiles_bf16},
    {"onednn_tiles_bytes", &ProductRates::onednn_tiles_bytes},
    {"convolution_amx", &ProductRates::convolution_amx},
    {"convolution_onednn", &ProductRates::convolution_onednn},
    {"convolution_portable", &ProductRates::convolution_portable},
    {"convolution_depthwise", &ProductRates::convolution_depthwise},
    {"convolution_winograd", &ProductRates::convolution_winograd},
    {"stream_mib", &ProductRates::stream_mib},
});
static_assert(sizeof(ProductRates) == kProductRateFields.size() * sizeof(double), "every figure has a name");

/// Those in use.
const ProductRates& product_rates();
/// Those that are known without measuring: of this processor, or of the one it is taken for.
const ProductRates& shipped_product_rates();
/// Whether they were measured on such a processor.
bool processor_is_known();
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
