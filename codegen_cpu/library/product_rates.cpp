// See product_rates.h.
#include "codegen_cpu/library/product_rates.h"

#include <atomic>

#include "codegen_cpu/library/calibrate.h"
#include "ir/keep_forever.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#endif

namespace fermata {
namespace {

// Measured with sizes from 16 to 2048 and few rows: where a kernel is quicker by a tenth or more, it costs less.
constexpr ProductRates kSapphireRapids{.portable_avx512 = 76,
                                       .portable_avx2 = 42,
                                       .onednn_avx512 = 80,
                                       .onednn_avx2 = 40,
                                       .onednn_far = 1.45,
                                       .onednn_packing = 0,
                                       .onednn_call = 500,
                                       .libxsmm = 55,
                                       .libxsmm_call = 60,
                                       .onednn_bf16 = 115,
                                       .onednn_bf16_far = 1.5,
                                       .onednn_bytes = 230};
#if defined(__x86_64__)
constexpr ProductRates kZen3{.portable_avx512 = 48,  // it has none
                             .portable_avx2 = 48,
                             .onednn_avx512 = 45,
                             .onednn_avx2 = 45,
                             .onednn_far = 1.3,
                             .onednn_packing = 0,
                             .onednn_call = 900,
                             .libxsmm = 48,
                             .libxsmm_call = 150,
                             .onednn_bf16 = 90,
                             .onednn_bf16_far = 1.3,
                             .onednn_bytes = 180};
// Not measured yet: estimates from published peaks and the times of single products.
constexpr ProductRates kZen4{.portable_avx512 = 50,
                             .portable_avx2 = 48,
                             .onednn_avx512 = 54,
                             .onednn_avx2 = 50,
                             .onednn_far = 1.02,
                             .onednn_packing = 0.1,
                             .onednn_call = 500,
                             .libxsmm = 50,
                             .libxsmm_call = 60,
                             .onednn_bf16 = 110,
                             .onednn_bf16_far = 1.05,
                             .onednn_bytes = 220};
constexpr ProductRates kZen5{.portable_avx512 = 125,
                             .portable_avx2 = 63,
                             .onednn_avx512 = 125,
                             .onednn_avx2 = 63,
                             .onednn_far = 1.06,
                             .onednn_packing = 0.1,
                             .onednn_call = 500,
                             .libxsmm = 125,
                             .libxsmm_call = 60,
                             .onednn_bf16 = 225,
                             .onednn_bf16_far = 1.05,
                             .onednn_bytes = 450};

const ProductRates& rates_of_processor() {
  constexpr unsigned kZen3And4 = 0x19, kZen5Family = 0x1a, kAvx512F = 1u << 16;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return kSapphireRapids;
  char vendor[12];
  std::memcpy(vendor, &b, 4), std::memcpy(vendor + 4, &d, 4), std::memcpy(vendor + 8, &c, 4);
  if (std::memcmp(vendor, "AuthenticAMD", sizeof(vendor)) != 0) return kSapphireRapids;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return kSapphireRapids;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  if (family == kZen5Family) return kZen5;
  const bool has_avx512 = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kAvx512F) != 0;
  if (family == kZen3And4) return has_avx512 ? kZen4 : kZen3;
  return kSapphireRapids;
}
#else
const ProductRates& rates_of_processor() { return kSapphireRapids; }
#endif

/// Null until they are asked for or others are set.
constinit std::atomic<const ProductRates*> in_use{nullptr};
constinit thread_local const ProductRates* on_trial = nullptr;

}  // namespace

const ProductRates& shipped_product_rates() {
  static const ProductRates& rates = rates_of_processor();
  return rates;
}

void use_product_rates(const ProductRates& rates) { in_use.store(keep_forever<ProductRates>(rates)); }

TrialRates::TrialRates(const ProductRates& rates) { on_trial = &rates; }
TrialRates::~TrialRates() { on_trial = nullptr; }

const ProductRates& product_rates() {
  if (on_trial != nullptr) return *on_trial;
  if (const ProductRates* rates = in_use.load(std::memory_order_acquire)) return *rates;
  const ProductRates* none = nullptr;
  const std::optional<ProductRates> kept = calibrated_product_rates();
  in_use.compare_exchange_strong(none, kept ? keep_forever<ProductRates>(*kept) : &shipped_product_rates());
  return *in_use.load();
}

}  // namespace fermata
