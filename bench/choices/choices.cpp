// fermata_choices [--all] [--threads N] [--measured] [REGEX]: every kernel that can do a product or a convolution is
// timed at many sizes, beside the one that the table chooses. Prints the choices that cost a tenth or more.
// `--measured`: beside the one that calls use after a while, when they have been compared
// (dispatch/measured_choices.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "codegen_cpu/eager/eager.h"
#include "dispatch/kernel_table.h"
#include "dispatch/operator.h"
#include "dispatch/variant_choice.h"
#include "fermata/fermata.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using Clock = std::chrono::steady_clock;

/// A call of one op on operands of its own.
struct Call {
  std::string text;
  Op op;
  struct Operand {
    DType dtype;
    Shape sizes;
    bool is_transposed = false;     // its last two axes lie the other way in memory
    bool is_channels_last = false;  // of an image, as networks keep them between convolutions
  };
  std::vector<Operand> inputs;
  Operand output;
  std::vector<std::int64_t> attributes;
};

class Operands {
 public:
  explicit Operands(const Call& call) : call_(call) {
    std::vector<Call::Operand> all = call.inputs;
    all.push_back(call.output);
    strides_.reserve(all.size()), memory_.reserve(all.size());
    for (const Call::Operand& o : all) {
      Shape strides = dense_strides(o.sizes);
      if (o.is_transposed) {
        const std::size_t last = o.sizes.rank() - 1;
        strides[last] = o.sizes[last - 1], strides[last - 1] = 1;
      }
      if (o.is_channels_last) strides[1] = 1, strides[3] = o.sizes[1], strides[2] = o.sizes[3] * o.sizes[1];
      strides_.push_back(strides);
      memory_.emplace_back(static_cast<std::size_t>(element_count(o.sizes)) * byte_size(o.dtype) + 64);
      fill(memory_.back(), o.dtype);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Call::Operand& o = i < call_.inputs.size() ? call_.inputs[i] : call_.output;
      auto* begin = memory_[i].data();
      begin += (64 - reinterpret_cast<std::uintptr_t>(begin) % 64) % 64;
      views_.push_back({begin, o.dtype, static_cast<std::uint8_t>(o.sizes.rank()), o.sizes.data(), strides_[i].data()});
    }
  }
  CallArgs args() const {
    return {call_.op, std::span(views_).first(views_.size() - 1), {&views_.back(), 1}, call_.attributes, {}};
  }

 private:
  static void fill(std::vector<std::byte>& memory, DType dtype) {
    std::mt19937 random(1);
    if (dtype == DType::f32 || dtype == DType::f64) {
      std::uniform_real_distribution<float> uniform(-1, 1);
      for (std::size_t at = 0; at + 8 <= memory.size(); at += byte_size(dtype))
        if (const float v = uniform(random); dtype == DType::f32)
          std::memcpy(&memory[at], &v, sizeof(v));
        else if (const double wide = v; true)
          std::memcpy(&memory[at], &wide, sizeof(wide));
    } else if (dtype == DType::bf16) {
      for (std::size_t at = 0; at + 2 <= memory.size(); at += 2)
        memory[at] = std::byte(random() & 0x7f), memory[at + 1] = std::byte(0x3f);
    } else {
      for (std::byte& b : memory) b = std::byte(random() & 0x3f);
    }
  }

  Call call_;
  std::vector<Shape> strides_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> views_;
};

struct Timed {
  const KernelVariant* variant;
  double predicted, ns = 1e300;
};

/// All kernels take turns, so that other work on the machine meets all of them.
std::vector<Timed> time_variants(const Call& call) {
  const Operands operands(call);
  const CallArgs args = operands.args();
  const BackendCell* const cell = backend_cell(call.op, BackendKey::cpu);
  std::vector<Timed> timed;
  if (cell == nullptr) return timed;
  for (const KernelVariant& v : cell->variants)
    if (v.call != nullptr && v.dtypes.has(call.inputs[0].dtype) && (v.fits == nullptr || v.fits(args)))
      timed.push_back({&v, v.cost != nullptr ? v.cost(args) : 0});
  if (timed.size() < 2) return timed;
  for (Timed& t : timed) t.variant->call(args);  // the first call of a library may make its kernel
  const auto begin = Clock::now();
  for (int round = 0; round < 3 || (round < 60 && Clock::now() - begin < std::chrono::milliseconds(40)); ++round)
    for (Timed& t : timed) {
      // As many calls as take 20 us: of less the clock says little.
      const int calls = t.ns > 20'000 ? 1 : static_cast<int>(20'000 / t.ns) + 1;
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) t.variant->call(args);
      t.ns = std::min(t.ns, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls);
    }
  return timed;
}

/// The kernel that calls have settled on, and after how many of them; null if they have not, after a great many.
const KernelVariant* measured_kernel(const Call& call, const std::vector<Timed>& timed, int& calls) {
  constexpr int kMostCalls = 1000;
  const Operands operands(call);
  const CallArgs args = operands.args();
  ChosenKernel chosen{};
  for (calls = 0; calls < kMostCalls; ++calls) {
    chosen = select_call(operator_entry(call.op), BackendKey::cpu, call.inputs[0].dtype, args, {});
    if (chosen.open == nullptr) break;
    chosen.open->run(chosen.call, args);
  }
  const auto used = std::ranges::find(timed, chosen.call, [](const Timed& t) { return t.variant->call; });
  return used != timed.end() ? used->variant : nullptr;
}

std::string name_of(DType dtype) { return std::string(name(dtype)); }

void add_products(std::vector<Call>& calls) {
  struct Sizes {
    std::int64_t batches, m, k, n;
  };
  constexpr Sizes kSizes[] = {
      {1, 8, 8, 8},        {1, 16, 16, 16},     {1, 24, 40, 24},    {1, 32, 32, 32},       {1, 48, 48, 48},
      {1, 64, 64, 64},     {1, 100, 100, 100},  {1, 128, 128, 128}, {1, 192, 192, 192},    {1, 256, 256, 256},
      {1, 384, 384, 384},  {1, 500, 500, 500},  {1, 768, 768, 768}, {1, 1024, 1024, 1024}, {1, 1536, 1536, 1536},
      {1, 1, 1024, 1024},  {1, 2, 1024, 1024},  {1, 4, 1024, 4096}, {1, 8, 1024, 1024},    {1, 16, 768, 3072},
      {1, 32, 1024, 1024}, {1, 64, 1024, 4096}, {1, 128, 512, 512}, {1, 512, 64, 512},     {1, 512, 512, 64},
      {1, 1024, 16, 1024}, {1, 2048, 3, 64},    {1, 4096, 64, 16},  {1, 30000, 24, 10},    {1, 10, 30000, 10},
      {1, 64, 20000, 64},  {1, 1000, 1000, 1},  {1, 1, 4096, 37},   {1, 300, 700, 33},     {16, 64, 64, 64},
      {64, 32, 32, 32},    {256, 8, 8, 8},      {1000, 4, 4, 4},    {100, 16, 16, 16},     {96, 128, 64, 128},
      {96, 128, 128, 64},  {12, 512, 64, 512},  {12, 512, 512, 64}, {32, 1, 64, 512},      {8, 33, 65, 17},
      {500, 12, 12, 12},   {2000, 3, 3, 1},     {20, 100, 5, 100}};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i8})
    for (const Sizes& s : kSizes)
      for (const bool turned : {false, true}) {
        if (dtype == DType::i8 && s.batches > 100) continue;
        const bool is_bytes = dtype == DType::i8;
        const auto sizes = [&](std::int64_t rows, std::int64_t columns) {
          return s.batches > 1 ? Shape{s.batches, rows, columns} : Shape{rows, columns};
        };
        calls.push_back(
            {fmt::format("{} {} {} {}{}", is_bytes ? "matmul_i32" : "matmul", name_of(dtype),
                         to_string(sizes(s.m, s.k)), to_string(sizes(s.k, s.n)), turned ? " transposed" : ""),
             is_bytes ? Op::matmul_i32 : Op::matmul,
             {{dtype, sizes(s.m, s.k)}, {dtype, sizes(s.k, s.n), turned}},
             {is_bytes ? DType::i32 : dtype, sizes(s.m, s.n)},
             {}});
      }
}

void add_convolutions(std::vector<Call>& calls) {
  struct Sizes {
    std::int64_t images, in, out, groups, size, taps, stride;
  };
  constexpr Sizes kSizes[] = {{1, 3, 64, 1, 224, 7, 2},     {1, 64, 64, 1, 56, 1, 1},    {1, 64, 64, 1, 56, 3, 1},
                              {1, 64, 256, 1, 56, 1, 1},    {1, 256, 64, 1, 56, 1, 1},   {1, 256, 128, 1, 56, 1, 1},
                              {1, 128, 128, 1, 56, 3, 2},   {1, 128, 128, 1, 28, 3, 1},  {1, 512, 1024, 1, 28, 1, 2},
                              {1, 256, 256, 1, 14, 3, 1},   {1, 1024, 512, 1, 14, 1, 1}, {1, 512, 512, 1, 7, 3, 1},
                              {16, 64, 64, 1, 56, 3, 1},    {8, 256, 256, 1, 14, 3, 1},  {8, 16, 32, 1, 28, 5, 1},
                              {32, 1, 8, 1, 28, 5, 1},      {1, 32, 32, 32, 112, 3, 1},  {8, 96, 96, 96, 56, 3, 1},
                              {8, 96, 96, 96, 56, 3, 2},    {1, 960, 960, 960, 7, 3, 1}, {4, 32, 64, 4, 28, 3, 1},
                              {2, 480, 480, 480, 14, 5, 1}, {1, 24, 144, 1, 56, 1, 1},   {1, 960, 160, 1, 7, 1, 1}};
  for (const Sizes& s : kSizes)
    for (const bool is_last : {false, true}) {
      const std::int64_t padding = s.taps / 2, result = (s.size + 2 * padding - s.taps) / s.stride + 1;
      const Shape x{s.images, s.in, s.size, s.size}, w{s.out, s.in / s.groups, s.taps, s.taps},
          y{s.images, s.out, result, result};
      calls.push_back({fmt::format("conv f32 {} {} /{} groups {}{}", to_string(x), to_string(w), s.stride, s.groups,
                                   is_last ? " channels last" : ""),
                       Op::convolution,
                       {{DType::f32, x, false, is_last}, {DType::f32, w}},
                       {DType::f32, y, false, is_last},
                       {s.groups, s.stride, s.stride, padding, padding, padding, padding, 1, 1}});
    }
}

int run(int count, char** arguments) {
  bool all = false, is_measured = false;
  std::regex only(".*");
  for (int i = 1; i < count; ++i)
    if (std::strcmp(arguments[i], "--all") == 0)
      all = true;
    else if (std::strcmp(arguments[i], "--measured") == 0)
      is_measured = true;
    else if (std::strcmp(arguments[i], "--threads") == 0 && i + 1 < count)
      set_thread_count(std::atoi(arguments[++i]));
    else
      only = std::regex(arguments[i]);

  std::vector<Call> calls;
  add_products(calls), add_convolutions(calls);
  fmt::print("{}, {} thread{}; times in us, in brackets what the table predicts\n\n", eager::instruction_set(),
             thread_count(), thread_count() == 1 ? "" : "s");
  int compared = 0, within = 0, calls_of_all = 0, most_calls = 0;
  double lost = 0;
  for (const Call& call : calls) {
    if (!std::regex_search(call.text, only)) continue;
    const std::vector<Timed> timed = time_variants(call);
    if (timed.size() < 2) continue;
    const Operands operands(call);
    const KernelVariant* chosen =
        cheapest_variant(backend_cell(call.op, BackendKey::cpu)->variants, call.inputs[0].dtype, operands.args());
    if (int calls = 0; is_measured) {
      if (const KernelVariant* const measured = measured_kernel(call, timed, calls)) chosen = measured;
      calls_of_all += calls, most_calls = std::max(most_calls, calls);
    }
    const auto best = std::ranges::min_element(timed, {}, &Timed::ns);
    const auto used = std::ranges::find(timed, chosen, &Timed::variant);
    const double ratio = used->ns / best->ns;
    ++compared, within += ratio < 1.1;
    lost += std::log(ratio);
    if (!all && ratio < 1.1) continue;
    fmt::print("{:<52} {:.2f}  ", call.text, ratio);
    for (const Timed& t : timed)
      fmt::print("{}{} {:.4g} ({:.4g})", &t == timed.data() ? "" : ", ",
                 t.variant == chosen ? "*" + t.variant->name : t.variant->name, t.ns / 1000, t.predicted / 1000);
    fmt::print("\n");
    std::fflush(stdout);
  }
  fmt::print("\n{} of {} choices cost less than a tenth more than the best kernel; {:.3f} of its time in the mean\n",
             within, compared, std::exp(lost / std::max(compared, 1)));
  if (is_measured)
    fmt::print("settled after {:.1f} calls in the mean, {} at most\n",
               static_cast<double>(calls_of_all) / std::max(compared, 1), most_calls);
  return 0;
}

}  // namespace
}  // namespace fermata

int main(int count, char** arguments) { return fermata::run(count, arguments); }
