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

// Fitted to the times of fermata_choices: 348 products and convolutions with each instruction set.
constexpr ProductRates kSapphireRapids{.portable_avx512 = 88,
                                       .portable_avx2 = 54,
                                       .onednn_avx512 = 92,
                                       .onednn_avx2 = 56,
                                       .onednn_far = 1.02,
                                       .onednn_packing = 0.1,
                                       .onednn_call = 350,
                                       .libxsmm = 95,
                                       .libxsmm_call = 170,
                                       .onednn_bf16 = 53,
                                       .onednn_bf16_far = 1.05,
                                       .pairs_bf16 = 85,
                                       .onednn_bytes = 230,
                                       .onednn_apart = 1.1,
                                       .onednn_byte = 0.042,
                                       .portable_byte = 0.035};
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
                             .pairs_bf16 = 90,
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
                             .pairs_bf16 = 120,
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
                             .pairs_bf16 = 262,
                             .onednn_bytes = 450,
                             .portable_byte = 0.025};

struct KnownRates {
  const ProductRates& rates;
  bool is_measured;  // on such a processor
};

KnownRates rates_of_processor() {
  constexpr unsigned kZen3And4 = 0x19, kZen5Family = 0x1a, kAvx512F = 1u << 16, kTiles = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return {kSapphireRapids, false};
  char vendor[12];
  std::memcpy(vendor, &b, 4), std::memcpy(vendor + 4, &d, 4), std::memcpy(vendor + 8, &c, 4);
  unsigned features = 0, more_features = 0;
  if (__get_cpuid_count(7, 0, &a, &features, &c, &more_features) == 0) features = more_features = 0;
  if (std::memcmp(vendor, "GenuineIntel", sizeof(vendor)) == 0)
    return {kSapphireRapids, (more_features & kTiles) != 0};  // by its tiles: virtual machines give other models
  if (std::memcmp(vendor, "AuthenticAMD", sizeof(vendor)) != 0) return {kSapphireRapids, false};
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return {kSapphireRapids, false};
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  if (family == kZen5Family) return {kZen5, true};
  if (family == kZen3And4) return (features & kAvx512F) != 0 ? KnownRates{kZen4, false} : KnownRates{kZen3, true};
  return {kSapphireRapids, false};
}
#else
struct KnownRates {
  const ProductRates& rates;
  bool is_measured;
};
KnownRates rates_of_processor() { return {kSapphireRapids, false}; }
#endif

const KnownRates& known_rates() {
  static const KnownRates known = rates_of_processor();
  return known;
}

/// Null until they are asked for or others are set.
constinit std::atomic<const ProductRates*> in_use{nullptr};
constinit thread_local const ProductRates* on_trial = nullptr;

}  // namespace

const ProductRates& shipped_product_rates() { return known_rates().rates; }
bool processor_is_known() { return known_rates().is_measured; }

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
