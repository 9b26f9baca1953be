// Matrix products of bf16 by pairs (bf16_pairs.h).
#include <algorithm>
#include <optional>
#include <vector>

#include "codegen_cpu/library/bf16_pairs.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "runtime/thread_pool.h"

namespace fermata {

#if defined(__x86_64__)
namespace {

/// A block of the left side stays in the second-level cache while panels pass by.
constexpr std::int64_t kBlockBytes = 256 << 10;
/// Columns that a task packs together where panels are not shared, and after which what follows the product is called:
/// they are still in the second-level cache.
constexpr std::int64_t kColumnsTogether = 256;
/// Rows of a task, at least: few share no panel, and at most where each task packs its own.
constexpr std::int64_t kLeastRows = 4 * kPairRows, kMostRows = 1024;
/// Multiply-adds of a task that is not cut further to have one for every thread: about 5 us.
constexpr double kFewest = 1e6;
/// Bytes of panels that tasks share.
constexpr double kMostPanelBytes = 128 << 20;
/// Rows up to which packing the right side is a part of the product that is noticed: panels are kept if it comes again.
constexpr std::int64_t kMostRowsOfKept = 1024;

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }
std::int64_t whole(std::int64_t size, std::int64_t step) { return parts(size, step) * step; }

std::int64_t rows_of_block(const MatmulProblem& p) {
  return std::max(kBlockBytes / (2 * p.k) / kPairRows * kPairRows, kLeastRows);
}

MatmulTiles cut_into_tiles(const MatmulProblem& p, bool shares_panels) {
  const std::int64_t most_rows = shares_panels ? rows_of_block(p) : kMostRows;
  MatmulTiles t{p.m, p.n, parts(p.m, most_rows), 1};
  const std::int64_t threads = thread_count(), wanted = threads == 1 ? 1 : parts(2 * threads, p.batches);
  const auto most = static_cast<std::int64_t>(p.multiply_adds() / static_cast<double>(p.batches) / kFewest);
  if (t.down < std::min(wanted, most)) {
    const std::int64_t tasks = std::min(wanted, most);
    t.across = std::clamp(parts(tasks, t.down), std::int64_t{1}, parts(p.n, 2 * kPairColumns));
    t.down = std::clamp(parts(tasks, t.across), t.down, std::max(t.down, parts(p.m, kLeastRows)));
  }
  t.rows = parts(p.m, t.down), t.down = parts(p.m, t.rows);
  t.columns = std::min(p.n, whole(parts(p.n, t.across), 2 * kPairColumns)), t.across = parts(p.n, t.columns);
  return t;
}

void pack(const MatmulProblem& p, const PairPanels& layout, std::int64_t batch, std::int64_t first, std::int64_t end,
          std::byte* to) {
  layout.pack({.from = p.rhs_of(batch),
               .column_stride = p.rhs.column_stride,
               .k_stride = p.rhs.row_stride,
               .stretch_stride = 0},
              first, end, to);
}

/// Panels of the whole right side, if several tasks read the same ones or they are kept with it.
class SharedPanels {
 public:
  SharedPanels(const MatmulProblem& p, const PairPanels& layout) : layout_(layout) {
    const auto bytes = static_cast<std::size_t>(layout.bytes());
    if (p.batches == 1 && p.m <= kMostRowsOfKept && p.k * p.n >= kLeastKept) {
      static constexpr std::byte kLayout{};
      kept_ =
          PrepackedWeights::find(p.rhs.buffer, key_of_rhs(p, &kLayout), bytes, [&](std::byte* to) { pack_all(p, to); });
      if (kept_ != nullptr) panels_ = static_cast<const std::byte*>(kept_->data);
    }
    const double all = static_cast<double>(bytes) * static_cast<double>(p.batches);
    if (kept_ != nullptr || p.m <= rows_of_block(p) || all > kMostPanelBytes) return;
    pack_all(p, held_.emplace(layout.bytes() * p.batches).data());
    panels_ = held_->data();
  }
  SharedPanels(const SharedPanels&) = delete;
  explicit operator bool() const { return panels_ != nullptr; }
  const std::byte* at(std::int64_t batch, std::int64_t column) const {
    return panels_ + batch * layout_.bytes() + column / kPairColumns * layout_.panel_bytes;
  }

 private:
  void pack_all(const MatmulProblem& p, std::byte* to) const {
    const std::int64_t blocks = parts(p.n, kColumnsTogether);
    parallel_for(0, p.batches * blocks, static_cast<double>(kColumnsTogether * p.k) * 0.1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t task = begin; task < end; ++task) {
                     const std::int64_t batch = task / blocks, first = task % blocks * kColumnsTogether;
                     pack(p, layout_, batch, first, std::min(first + kColumnsTogether, p.n),
                          to + batch * layout_.bytes() + first / kPairColumns * layout_.panel_bytes);
                   }
                 });
  }
  const PairPanels& layout_;
  std::optional<Scratch<std::byte>> held_;
  StoragePtr kept_;
  const std::byte* panels_ = nullptr;
};

void multiply(const MatmulProblem& p, TileEpilogue epilogue) {
  const PairPanels layout(p.n, 1, p.k);
  const SharedPanels shared(p, layout);
  const MatmulTiles tiles = cut_into_tiles(p, static_cast<bool>(shared));
  const std::int64_t element = static_cast<std::int64_t>(byte_size(p.result)), block = rows_of_block(p);
  static constexpr std::int64_t kStretch = 0;
  const double ns =
      200 + static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / product_rates().pairs_bf16;
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t together = std::min(tiles.columns, kColumnsTogether);
    const Scratch<std::byte> packed(shared ? 0 : parts(together, kPairColumns) * layout.panel_bytes);
    std::vector<PairRows> runs;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      const std::int64_t last = std::min(i + tiles.rows, p.m), last_column = std::min(j + tiles.columns, p.n);
      for (std::int64_t c = j; c < last_column; c += together) {
        const std::int64_t columns = std::min(together, last_column - c);
        if (!shared) pack(p, layout, batch, c, c + columns, packed.data());
        for (std::int64_t row = i; row < last; row += block) {
          runs.clear();
          add_runs({.x = row * p.lhs.row_stride * 2,
                    .x_row = p.lhs.row_stride * 2,
                    .out = row * p.n * element,
                    .out_row = p.n * element,
                    .rows = std::min(block, last - row)},
                   runs);
          multiply(layout, {.x = p.lhs_of(batch),
                            .x_row = p.lhs.row_stride * 2,
                            .stretches = {&kStretch, 1},
                            .rows = runs,
                            .panels = shared ? shared.at(batch, c) : packed.data(),
                            .out = p.out_of(batch) + c * element,
                            .out_row = p.n * element,
                            .columns = columns,
                            .is_wide = element == 4});
        }
        epilogue({batch * p.m + i, batch * p.m + last, c, c + columns});
      }
    }
  });
}

}  // namespace

void matmul_bf16_pairs(const CallArgs& args, TileEpilogue epilogue) {
  MatmulProblem p = decode_matmul(args);
  const auto refuse = [](const MatrixSide&, std::int64_t, std::int64_t) { return false; };
  if (p.lhs.column_stride != 1 &&
      split_calls(args, refuse, [&](const CallArgs& one) { matmul_bf16_pairs(one, epilogue); }))
    return;
  // Any right side is packed as it lies, and a left one is read where pairs lie together.
  const auto accepts = [&](const MatrixSide& side, std::int64_t, std::int64_t) {
    return &side == &p.rhs || side.column_stride == 1;
  };
  const PackedOperands packed(p, accepts);
  multiply(p, epilogue);
}

bool matmul_bf16_pairs_fits(const CallArgs& args) {
  if (!has_bf16_pairs() || args.inputs[0].dtype != DType::bf16) return false;
  const MatmulProblem p = decode_matmul(args);
  return p.batches * p.m * p.n != 0 && p.k != 0 && p.k % 2 == 0;
}

double matmul_bf16_pairs_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  const auto rounded = [](std::int64_t size, std::int64_t step) { return static_cast<double>(whole(size, step)); };
  // Few rows wait for each other's sums, and narrow panels for loads.
  constexpr std::int64_t kEnoughRows = 7, kHalf = kPairColumns / 2;
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k), n = static_cast<double>(p.n);
  const double columns = rounded(p.n, kHalf) + (p.n % kPairColumns != 0 && p.n % kPairColumns <= kHalf ? kHalf / 2 : 0);
  const double work = std::max(m, static_cast<double>(kEnoughRows)) * columns * k / product_rates().pairs_bf16;
  const bool may_be_kept = p.batches == 1 && p.m <= kMostRowsOfKept && p.k * p.n >= kLeastKept;
  const double packing = n * k * (may_be_kept ? 0.03 : p.rhs.column_stride == 1 ? 0.05 : 0.08);
  const double copying = p.lhs.column_stride == 1 ? 0 : m * k * 0.15;
  return 250 + static_cast<double>(p.batches) * (60 + work + packing + copying);
}

#else

void matmul_bf16_pairs(const CallArgs&, TileEpilogue) {}
bool matmul_bf16_pairs_fits(const CallArgs&) { return false; }
double matmul_bf16_pairs_cost(const CallArgs&) { return 0; }

#endif

void matmul_bf16_pairs(const CallArgs& args) { matmul_bf16_pairs(args, tile_epilogue_of(args)); }

FERMATA_KERNELS(cpu) {
  if (!has_bf16_pairs()) return;
  KernelVariant variant{.name = "pairs",
                        .form = KernelForm::library,
                        .dtypes = DType::bf16,
                        .call = &matmul_bf16_pairs,
                        .fits = &matmul_bf16_pairs_fits,
                        .cost = &matmul_bf16_pairs_cost,
                        .fits_text = kMatmulBf16PairsFits,
                        .epilogue = EpilogueForm::tiles,
                        .ships = Ships::nowhere};
  add_variant(Op::matmul_f32, BackendKey::cpu, variant);
  variant.in_batches = variant.by_rows = true;
  add_variant(Op::matmul, BackendKey::cpu, std::move(variant));
}

}  // namespace fermata
