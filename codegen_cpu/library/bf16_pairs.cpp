// See bf16_pairs.h.
#include "codegen_cpu/library/bf16_pairs.h"

#include <algorithm>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/library/matmul_amx_kernels.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fermata {

#if defined(__x86_64__)

bool has_bf16_pairs() {
  static const bool has = [] {
    constexpr unsigned kPairs = 1u << 5;  // avx512_bf16
    unsigned a, b, c, d;
    return eager::instruction_set() == "avx512" && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kPairs) != 0;
  }();
  return has;
}

PairPanels::PairPanels(std::int64_t columns, std::int64_t stretches, std::int64_t depth)
    : columns(columns),
      stretches(stretches),
      depth(depth),
      pairs((depth + 1) / 2),
      stretch_bytes((depth + amx_step(AmxKind::bf16) - 1) / amx_step(AmxKind::bf16) * amx_step_bytes(AmxKind::bf16)),
      panel_bytes(stretches * stretch_bytes) {
  static_assert(kAmxLines == kPairColumns);
}

void PairPanels::pack(const Source& s, std::int64_t first, std::int64_t end, std::byte* to) const {
  for (std::int64_t i = 0; i < stretches; ++i)
    kAmxKernels.pack_rhs[static_cast<std::size_t>(AmxKind::bf16)](
        {.from = s.from + 2 * (first * s.column_stride + i * s.stretch_stride),
         .line_stride = s.column_stride,
         .k_stride = s.k_stride,
         .lines = end - first,
         .k = depth,
         .panels = to + i * stretch_bytes,
         .panel_bytes = panel_bytes,
         .largest = nullptr});
}

void multiply(const PairPanels& layout, const PairBlock& b) {
  const std::int64_t element = b.is_wide ? 4 : 2;
  Bf16PairsRun run{.x = {},
                   .x_row = b.x_row,
                   .stretches = b.stretches.data(),
                   .stretch_count = layout.stretches,
                   .pairs = layout.pairs,
                   .stretch_bytes = layout.stretch_bytes,
                   .panel = b.panels,
                   .out = {},
                   .out_row = b.out_row,
                   .rows = 0,
                   .columns = 0,
                   .is_wide = b.is_wide,
                   .ahead = {nullptr, b.wanted_next.data()},
                   .ahead_step = {}};
  // The next panel arrives while this one is used.
  const std::int64_t steps = layout.stretches * layout.pairs;
  constexpr std::int64_t kLine = 64;
  const std::int64_t runs = static_cast<std::int64_t>(b.rows.size()),
                     all_steps = steps * runs * ((b.columns + kPairColumns - 1) / kPairColumns);
  const auto wanted = static_cast<std::int64_t>(b.wanted_next.size());
  run.ahead_step[0] = layout.panel_bytes / (steps * runs);
  run.ahead_step[1] = std::min((wanted + all_steps - 1) / all_steps, kLine);
  for (std::int64_t j = 0; j < b.columns; j += kPairColumns, run.panel += layout.panel_bytes) {
    run.columns = std::min(kPairColumns, b.columns - j);
    run.ahead[0] = run.panel + layout.panel_bytes;
    for (const PairRows& rows : b.rows) {
      for (int half = 0; half < 2; ++half)
        run.x[half] = b.x + rows.x[half], run.out[half] = b.out + rows.out[half] + j * element;
      run.rows = rows.rows;
      kBf16PairsKernels.multiply(run);
      for (int i = 0; i < 2; ++i) run.ahead[i] += run.ahead_step[i] * steps;
    }
  }
}

#else

bool has_bf16_pairs() { return false; }

#endif

}  // namespace fermata
