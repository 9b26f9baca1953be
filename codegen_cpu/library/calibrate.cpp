// See calibrate.h. A cost is linear in the time of a multiply-add, 1 / rate, in the factors for what is far from
// the processor, and in the time of a call: two values of a figure give that line, and the time that was measured the
// figure.
#include "codegen_cpu/library/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "dispatch/calibration.h"
#include "dispatch/kernel_files.h"
#include "ir/shape.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/environment.h"
#include "runtime/thread_pool.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fermata {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kLabel = "rates of products";
/// Of one figure: the best of as many runs as fit, and at least three.
constexpr double kNanoseconds = 15e6;

/// One product whose time gives a figure.
struct Trial {
  double ProductRates::*figure;
  bool is_rate;  // else a factor
  std::string_view variant;
  DType dtype;
  std::int64_t batches, size;
};

/// Rates come before the factors that change them, and before what a call takes beside. What a cost does not depend on
/// here is not measured.
constexpr Trial kTrials[] = {
    {&ProductRates::portable_avx512, true, "portable", DType::f32, 1, 384},
    {&ProductRates::portable_avx2, true, "portable", DType::f32, 1, 384},
    {&ProductRates::onednn_avx512, true, "onednn", DType::f32, 1, 384},
    {&ProductRates::onednn_avx2, true, "onednn", DType::f32, 1, 384},
    {&ProductRates::onednn_far, false, "onednn", DType::f32, 1, 1024},
    {&ProductRates::onednn_call, false, "onednn", DType::f32, 64, 8},
    {&ProductRates::libxsmm, true, "libxsmm", DType::f32, 64, 32},
    {&ProductRates::libxsmm_call, false, "libxsmm", DType::f32, 1, 16},
    {&ProductRates::onednn_bf16, true, "onednn", DType::bf16, 1, 384},
    {&ProductRates::onednn_bf16_far, false, "onednn", DType::bf16, 1, 1536},
    {&ProductRates::onednn_bytes, true, "onednn", DType::i8, 1, 384},
};

/// Operands of zeros, whose products take as long as any.
class Product {
 public:
  explicit Product(const Trial& t)
      : shape_{t.batches, t.size, t.size},
        strides_(dense_strides(shape_)),
        op_(t.dtype == DType::i8 ? Op::matmul_i32 : Op::matmul),
        dtype_(t.dtype),
        operand_(element_count(shape_) * static_cast<std::int64_t>(byte_size(t.dtype))),
        result_(element_count(shape_) * 4) {
    std::memset(operand_.data(), 0, static_cast<std::size_t>(operand_.size()));
    inputs_[0] = {operand_.data(), t.dtype, 3, shape_.data(), strides_.data()};
    inputs_[1] = inputs_[0];
    output_ = {result_.data(), t.dtype == DType::i8 ? DType::i32 : t.dtype, 3, shape_.data(), strides_.data()};
  }
  CallArgs args() const { return {op_, inputs_, {&output_, 1}, {}, {}}; }
  /// Null where this machine has no such kernel.
  const KernelVariant* variant(std::string_view name) const {
    const BackendCell* const cell = backend_cell(op_, BackendKey::cpu);
    if (cell == nullptr) return nullptr;
    for (const KernelVariant& v : cell->variants)
      if (v.name == name && v.dtypes.has(dtype_) && v.cost != nullptr && (v.fits == nullptr || v.fits(args())))
        return &v;
    return nullptr;
  }
  double nanoseconds(const KernelVariant& v) const {
    double best = 1e18;
    const auto begin = Clock::now();
    for (int run = 0; run < 4 || Clock::now() - begin < std::chrono::duration<double, std::nano>(kNanoseconds); ++run) {
      const auto start = Clock::now();
      v.call(args());
      if (run > 0)  // the first one may make a kernel
        best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    return best;
  }

 private:
  Shape shape_, strides_;
  Op op_;
  DType dtype_;
  Scratch<std::byte> operand_, result_;
  TensorView inputs_[2], output_;
};

/// The figure that makes the cost what was measured; as it was where no figure does.
double fitted(const Trial& t, const Product& product, const KernelVariant& v, ProductRates rates) {
  const double before = rates.*t.figure;
  const auto cost = [&](double figure) {
    rates.*t.figure = figure;
    const TrialRates trial(rates);
    return v.cost(product.args());
  };
  const double one = cost(before), other = cost(before * 2);
  // Of a rate: one = rest + work, other = rest + work / 2. Of a factor: other = rest + 2 work.
  const double work = t.is_rate ? 2 * (one - other) : other - one, rest = one - work;
  if (!(work > 0)) return before;
  const double measured = product.nanoseconds(v);
  if (!(measured > rest)) return before;
  const double times = (measured - rest) / work;
  return std::clamp(t.is_rate ? before / times : before * times, before / 8, before * 8);
}

std::string processor() {
  std::string text(eager::instruction_set());
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) text += fmt::format(" {:x}", a);
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf)
    if (__get_cpuid(leaf, &a, &b, &c, &d) != 0)
      for (const unsigned word : {a, b, c, d}) text += fmt::format(" {:x}", word);
#endif
  return text;
}

std::string key() { return fmt::format("{} 2 {}", kLabel, processor()); }

std::optional<ProductRates> kept_rates() {
  const std::optional<std::string> text = DiskCache::instance().find(key());
  if (!text) return {};
  std::optional<ProductRates> rates = product_rates_of_text(*text);
  if (!rates) DiskCache::instance().discard(key(), "holds no rates of products");
  return rates;
}

ProductRates measure_and_keep() {
  const ProductRates rates = measure_product_rates();
  use_product_rates(rates);
  DiskCache::instance().store(key(), kLabel, to_text(rates));
  return rates;
}

bool is_off() {
  const char* const wish = environment_variable("FERMATA_CALIBRATE");
  return wish != nullptr && std::string_view(wish) == "0";
}

Calibration shown(bool measure) {
  const bool was_kept = !measure && !is_off() && kept_rates().has_value();
  const ProductRates used = measure ? measure_and_keep() : product_rates();
  Calibration c{measure ? "measured now" : was_kept ? "measured before" : "shipped", {}};
  for (const ProductRateField& f : kProductRateFields)
    c.figures.push_back({std::string(f.name), shipped_product_rates().*f.field, used.*f.field});
  return c;
}

}  // namespace

std::optional<ProductRates> calibrated_product_rates() {
  if (is_off()) return {};
  if (std::optional<ProductRates> kept = kept_rates()) return kept;
  const char* const wish = environment_variable("FERMATA_CALIBRATE");
  if (wish != nullptr && std::string_view(wish) == "1") run_beside([] { measure_and_keep(); });
  return {};
}

ProductRates measure_product_rates() {
  ProductRates rates = shipped_product_rates();
  // Inside a loop of the pool kernels run on their caller, and rates are those of one core.
  parallel_for(0, std::max(2, thread_count()), 1e9, [&](std::int64_t begin, std::int64_t) {
    if (begin != 0) return;
    for (const Trial& t : kTrials) {
      const Product product(t);
      if (const KernelVariant* v = product.variant(t.variant)) rates.*t.figure = fitted(t, product, *v, rates);
    }
  });
  return rates;
}

std::string to_text(const ProductRates& rates) {
  std::string text;
  for (const ProductRateField& f : kProductRateFields) text += fmt::format("{} {}\n", f.name, rates.*f.field);
  return text;
}

std::optional<ProductRates> product_rates_of_text(std::string_view text) {
  ProductRates rates{};
  for (const ProductRateField& f : kProductRateFields) {
    if (!text.starts_with(f.name) || text.size() <= f.name.size() || text[f.name.size()] != ' ') return {};
    text.remove_prefix(f.name.size() + 1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rates.*f.field);
    const double value = rates.*f.field;
    if (error != std::errc() || !(value >= 0) || !(value < 1e6) ||
        (value == 0 && f.field != &ProductRates::onednn_packing))
      return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with('\n')) return {};
    text.remove_prefix(1);
  }
  if (!text.empty()) return {};
  return rates;
}

FERMATA_KERNELS(cpu) { set_calibration(&shown); }

}  // namespace fermata
