// See calibrate.h. A cost is linear in the time of a multiply-add, 1 / rate, in the factors for what is far from
// the processor, and in the time of a call: two values of a figure give that line, and the time that was measured the
// figure.
#include "codegen_cpu/library/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "codegen_cpu/irregular/positions.h"
#include "dispatch/calibration.h"
#include "dispatch/kernel_files.h"
#include "dispatch/kernel_table.h"
#include "dispatch/measured_choices.h"
#include "ir/shape.h"
#include "runtime/background.h"
#include "runtime/calibration_wish.h"
#include "runtime/disk_cache.h"
#include "runtime/processor_model.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kLabel = "rates of products";
/// Of one figure: the best of as many runs as fit, and at least three.
constexpr double kNanoseconds = 15e6;

/// A call whose time gives a figure.
struct Trial {
  double ProductRates::*figure;
  bool is_rate;  // else a factor
  std::string_view variant;
  DType dtype;
  Op op;
  Shape lhs, rhs, out;
  std::vector<std::int64_t> attributes = {};
};

Trial product(double ProductRates::*figure, bool is_rate, std::string_view variant, DType dtype, std::int64_t batches,
              std::int64_t size) {
  const Shape s{batches, size, size};
  return {figure, is_rate, variant, dtype, dtype == DType::i8 ? Op::matmul_i32 : Op::matmul, s, s, s};
}
/// Windows of 3 by 3 on an image of as many filters as channels.
Trial convolution(double ProductRates::*figure, bool is_rate, std::string_view variant, std::int64_t channels,
                  std::int64_t groups, std::int64_t size) {
  const Shape image{1, channels, size, size};
  return {figure,
          is_rate,
          variant,
          DType::f32,
          Op::convolution,
          image,
          {channels, channels / groups, 3, 3},
          image,
          {groups, 1, 1, 1, 1, 1, 1, 1, 1}};
}

/// Rates come before the factors that change them, and before what a call takes beside. What a cost does not depend on
/// here is not measured.
const std::vector<Trial>& trials() {
  using R = ProductRates;
  static const auto& all = *new std::vector<Trial>{
      product(&R::portable_avx512, true, "portable", DType::f32, 1, 384),
      product(&R::portable_avx2, true, "portable", DType::f32, 1, 384),
      product(&R::onednn_avx512, true, "onednn", DType::f32, 1, 384),
      product(&R::onednn_avx2, true, "onednn", DType::f32, 1, 384),
      product(&R::onednn_far, false, "onednn", DType::f32, 1, 1024),
      product(&R::onednn_call, false, "onednn", DType::f32, 64, 8),
      product(&R::libxsmm, true, "libxsmm", DType::f32, 64, 32),
      product(&R::libxsmm_call, false, "libxsmm", DType::f32, 1, 16),
      product(&R::onednn_bf16, true, "onednn", DType::bf16, 1, 384),
      product(&R::onednn_tiles_bf16, true, "onednn", DType::bf16, 1, 384),
      product(&R::onednn_tiles_bytes, true, "onednn", DType::i8, 1, 384),
      product(&R::onednn_bf16_far, false, "onednn", DType::bf16, 1, 1536),
      product(&R::pairs_bf16, true, "pairs", DType::bf16, 1, 384),
      product(&R::onednn_bytes, true, "onednn", DType::i8, 1, 384),
      product(&R::amx_f32, true, "amx", DType::f32, 1, 768),
      product(&R::amx_bf16, true, "amx", DType::bf16, 1, 768),
      product(&R::amx_bytes, true, "amx", DType::i8, 1, 1024),
      convolution(&R::convolution_amx, true, "amx", 64, 1, 28),
      convolution(&R::convolution_onednn, false, "onednn", 64, 1, 28),
      convolution(&R::convolution_winograd, false, "winograd", 64, 1, 28),
      convolution(&R::convolution_portable, true, "portable", 64, 1, 28),
      convolution(&R::convolution_depthwise, false, "depthwise", 64, 64, 56),
  };
  return all;
}

/// Its call. Operands are not zeros, with which tiles are faster.
class TrialCall {
 public:
  explicit TrialCall(const Trial& t)
      : t_(t),
        strides_{dense_strides(t.lhs), dense_strides(t.rhs), dense_strides(t.out)},
        lhs_(bytes(t.lhs)),
        rhs_(bytes(t.rhs)),
        result_(element_count(t.out) * 4) {
    fill(lhs_), fill(rhs_);
    const auto view = [](void* data, DType dtype, const Shape& sizes, const Shape& strides) {
      return TensorView{data, dtype, static_cast<std::uint8_t>(sizes.rank()), sizes.data(), strides.data()};
    };
    inputs_[0] = view(lhs_.data(), t.dtype, t.lhs, strides_[0]);
    inputs_[1] = view(rhs_.data(), t.dtype, t.rhs, strides_[1]);
    output_ = view(result_.data(), t.dtype == DType::i8 ? DType::i32 : t.dtype, t.out, strides_[2]);
  }
  CallArgs args() const { return {t_.op, inputs_, {&output_, 1}, t_.attributes, {}}; }
  /// Null where this machine has no such kernel.
  const KernelVariant* variant() const {
    const BackendCell* const cell = backend_cell(t_.op, BackendKey::cpu);
    if (cell == nullptr) return nullptr;
    for (const KernelVariant& v : cell->variants)
      if (v.name == t_.variant && v.dtypes.has(t_.dtype) && v.cost != nullptr && (v.fits == nullptr || v.fits(args())))
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
  void fill(const Scratch<std::byte>& memory) const {
    const auto size = static_cast<std::int64_t>(byte_size(t_.dtype));
    for (std::int64_t i = 0; i < memory.size() / size; ++i) {
      std::byte* const at = memory.data() + i * size;
      const auto digit = static_cast<std::uint8_t>(i * 7 % 61);
      const float number = 1 + static_cast<float>(digit) / 64;
      if (t_.dtype == DType::f32)
        std::memcpy(at, &number, sizeof(number));
      else if (t_.dtype == DType::bf16)  // the upper half of the f32
        std::memcpy(at, reinterpret_cast<const std::byte*>(&number) + 2, 2);
      else
        *at = std::byte(digit);
    }
  }
  std::int64_t bytes(const Shape& s) const { return element_count(s) * static_cast<std::int64_t>(byte_size(t_.dtype)); }
  const Trial& t_;
  const std::array<Shape, 3> strides_;
  Scratch<std::byte> lhs_, rhs_, result_;
  TensorView inputs_[2], output_;
};

/// The figure that makes the cost what was measured; as it was where no figure does.
double fitted(const Trial& t, const TrialCall& call, const KernelVariant& v, ProductRates rates) {
  const double before = rates.*t.figure;
  const auto cost = [&](double figure) {
    rates.*t.figure = figure;
    const TrialRates trial(rates);
    return v.cost(call.args());
  };
  const double one = cost(before), other = cost(before * 2);
  // Of a rate: one = rest + work, other = rest + work / 2. Of a factor: other = rest + 2 work.
  const double work = t.is_rate ? 2 * (one - other) : other - one, rest = one - work;
  if (!(work > 0)) return before;
  const double measured = call.nanoseconds(v);
  if (!(measured > rest)) return before;
  const double times = (measured - rest) / work;
  return std::clamp(t.is_rate ? before / times : before * times, before / 8, before * 8);
}

void measure(const Trial& t, ProductRates& rates) {
  const LoopsOnCaller one_core;
  const TrialCall call(t);
  if (const KernelVariant* v = call.variant()) rates.*t.figure = fitted(t, call, *v, rates);
}

/// From the largest to the smallest: the least of those from which on streaming pays.
constexpr double kStreamMib[] = {16, 8, 4};
void measure_streaming(double mebibytes, ProductRates& rates) {
  if (mebibytes == kStreamMib[0]) rates.stream_mib = 2 * mebibytes;
  if (rates.stream_mib == 2 * mebibytes && streaming_pays(static_cast<std::int64_t>(mebibytes) << 20))
    rates.stream_mib = mebibytes;
}

std::size_t measurements() { return trials().size() + std::size(kStreamMib); }
void measure(std::size_t number, ProductRates& rates) {
  if (number < trials().size())
    measure(trials()[number], rates);
  else
    measure_streaming(kStreamMib[number - trials().size()], rates);
}

std::string key() { return fmt::format("{} 4 {}", kLabel, processor_model()); }
std::string key_of_part() { return key() + " part"; }

std::optional<ProductRates> kept_rates() {
  const std::optional<std::string> text = DiskCache::instance().find(key());
  if (!text) return {};
  std::optional<ProductRates> rates = product_rates_of_text(*text);
  if (!rates) DiskCache::instance().discard(key(), "holds no rates of products");
  return rates;
}

void keep(const ProductRates& rates) { DiskCache::instance().store(key(), kLabel, to_text(rates)); }

ProductRates measure_and_keep() {
  const ProductRates rates = measure_product_rates();
  use_product_rates(rates);
  keep(rates);
  return rates;
}

/// Measuring beside what the process does: one figure at a time, so that neither the end of the process nor a kernel
/// to be compiled waits for more than that. What short processes have measured is kept for the next one.
struct Progress {
  ProductRates rates = shipped_product_rates();
  std::size_t done = 0;

  std::string text() const { return fmt::format("{}\n{}", done, to_text(rates)); }
};

Progress kept_progress() {
  const std::optional<std::string> text = DiskCache::instance().find(key_of_part());
  const std::size_t line = text ? text->find('\n') : std::string::npos;
  if (line == std::string::npos) return {};
  Progress p;
  const auto [end, error] = std::from_chars(text->data(), text->data() + line, p.done);
  const auto rates = product_rates_of_text(std::string_view(*text).substr(line + 1));
  if (error != std::errc() || end != text->data() + line || !rates || p.done >= measurements()) return {};
  p.rates = *rates;
  return p;
}

void go_on(Progress p) {
  try {
    measure(p.done, p.rates);
  } catch (const std::exception&) {}  // for lack of memory: this figure stays as it was
  join_background_at_exit();          // before what a library has made for the figure is destroyed
  ++p.done;
  DiskCache::instance().store(key_of_part(), kLabel, p.text());
  if (p.done == measurements()) return keep(p.rates);
  run_beside([p] { go_on(p); });
}

bool is_wanted() {
  const CalibrationWish wish = calibration_wish();
  return wish == CalibrationWish::always || (wish == CalibrationWish::if_unknown && !processor_is_known());
}

Calibration shown(bool measure) {
  const bool was_kept = !measure && !choices_are_held() && kept_rates().has_value();
  const ProductRates used = measure ? measure_and_keep() : product_rates();
  Calibration c{measure ? "measured now" : was_kept ? "measured before" : "shipped", {}};
  for (const ProductRateField& f : kProductRateFields)
    c.figures.push_back({std::string(f.name), shipped_product_rates().*f.field, used.*f.field});
  return c;
}

}  // namespace

std::optional<ProductRates> calibrated_product_rates() {
  if (choices_are_held()) return {};
  if (std::optional<ProductRates> kept = kept_rates()) return kept;
  if (is_wanted() && !DiskCache::instance().directory().empty()) run_beside([] { go_on(kept_progress()); });
  return {};
}

ProductRates measure_product_rates() {
  ProductRates rates = shipped_product_rates();
  for (std::size_t i = 0; i < measurements(); ++i) measure(i, rates);
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

FERMATA_KERNELS(cpu) {
  set_calibration(&shown);
  set_stream_share([] { return product_rates().stream_mib; });
}

}  // namespace fermata
