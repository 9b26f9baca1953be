// See staged_columns.h.
#include "codegen_cpu/staged_columns.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "codegen_cpu/irregular/positions.h"
#include "ir/instr_operands.h"
#include "runtime/streaming.h"

namespace fermata {
namespace {

/// Shorter columns are as many streams of lines as processors follow; longer programs cost more to compute again than
/// their lines cost.
constexpr std::int64_t kFewestSteps = 64;
constexpr std::size_t kLongestProgram = 80;
/// Columns that are reduced before their results are written.
constexpr std::int64_t kMostColumns = 16384;

/// What is computed again at each point in less time than columns take that have left the second-level cache, and the
/// share of a large result that is large for it.
constexpr std::size_t kCheapProgram = 16;
constexpr std::int64_t kCheapShare = 4;
/// How often over the columns of one group may fill that cache.
constexpr double kMostNeeded = 2;

/// Rows of an operand that the second-level cache holds while a kernel goes down one group of columns: few where lines
/// of many rows share a set.
std::int64_t rows_in_cache(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  constexpr std::int64_t kCache = 1 << 20, kSets = kCache / 16, kGroup = 256;  // bytes
  const auto inner = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(kernel.reduced))) - 1;
  const std::int64_t apart = launch.strides[access * kernel.rank + inner] *
                             static_cast<std::int64_t>(byte_size(kernel.accesses[access].dtype));
  return kCache / std::max(std::gcd(apart, kSets), kGroup);
}

/// Values that depend on a reduction.
std::vector<bool> reduced_values(const Kernel& kernel) {
  std::vector<bool> depends(kernel.program.size(), false);
  for (ValueId v = 0; v < kernel.program.size(); ++v) {
    const Instr& instr = kernel.program[v];
    depends[v] = instr.prim == Prim::reduced;
    for_operands(instr, [&](ValueId id) { depends[v] = depends[v] || depends[id]; });
  }
  return depends;
}

/// The program of the map kernel: what its stores need, with the values that are handed on in place of reductions.
class Results {
 public:
  Results(const Kernel& kernel, Kernel& results)
      : kernel_(kernel),
        results_(results),
        row_level_(schedule(kernel).row_level),
        depends_(reduced_values(kernel)),
        moved_(kernel.program.size(), kNoValue),
        needed_(kernel.program.size(), false) {}

  /// Returns the values that are handed on.
  std::vector<ValueId> build() {
    for (const Store& store : kernel_.stores)
      if (is_at_each_point(kernel_, store)) needed_[store.value] = true;
    for (ValueId v = static_cast<ValueId>(kernel_.program.size()); v-- > 0;)
      if (needed_[v] && !is_handed_on(v)) for_operands(kernel_.program[v], [&](ValueId id) { needed_[id] = true; });
    for (ValueId v = 0; v < kernel_.program.size(); ++v)
      if (needed_[v]) move(v);
    for (const Store& store : kernel_.stores)
      if (is_at_each_point(kernel_, store)) results_.stores.push_back({store.access, moved_[store.value]});
    return handed_on_;
  }

 private:
  bool is_handed_on(ValueId v) const { return row_level_[v] && depends_[v]; }
  void move(ValueId v) {
    Instr instr = kernel_.program[v];
    if (is_handed_on(v)) {
      handed_on_.push_back(v);
      instr = {.prim = Prim::input, .type = instr.type, .index = static_cast<std::uint16_t>(results_.accesses.size())};
      const bool has_columns = !kernel_.is_row_kernel();
      const auto axes = static_cast<std::uint16_t>(has_columns ? 1u << (kernel_.rank - 1u) : 0u);
      results_.accesses.push_back({.dtype = instr.type, .axes = axes, .unit_stride = has_columns});
    } else {
      for (ValueId* const id : {&instr.a, &instr.b, &instr.c})
        if (*id != kNoValue) *id = moved_[*id];
    }
    moved_[v] = results_.program.add(instr);
  }

  const Kernel& kernel_;
  Kernel& results_;
  const std::vector<bool> row_level_, depends_;
  std::vector<ValueId> moved_, handed_on_;
  std::vector<bool> needed_;
};

/// One launch, row by row of what is not reduced.
class StagedLaunch {
 public:
  StagedLaunch(const Kernel& kernel, const StagedKernels& kernels, const KernelLaunch& launch)
      : kernel_(kernel),
        launch_(launch),
        accesses_(kernels.results.accesses),
        sizes_(launch.sizes, launch.sizes + kernel.rank),
        strides_(launch.strides, launch.strides + kernel.accesses.size() * kernel.rank),
        offsets_(accesses_.size(), 0),
        pointers_(accesses_.size(), nullptr) {
    for (unsigned axis = 0; axis + 1 < kernel.rank; ++axis)
      if (kernel.is_reduced(axis))
        steps_ *= sizes_[axis];
      else
        sizes_[axis] = 1;
    strides_.resize(accesses_.size() * kernel.rank, 0);
    for (std::size_t a = kernel.accesses.size(); a < accesses_.size(); ++a)
      strides_[(a + 1) * kernel.rank - 1] = 1, column_bytes_ += bytes_of(a);
  }

  void run(const Executable& reductions, const Executable& results) {
    const std::int64_t most = std::min(kMostColumns, launch_.column_end - launch_.column_begin);
    const Scratch<char> handed_on(most * column_bytes_);
    for (std::int64_t row = launch_.row_begin; row < launch_.row_end; ++row) {
      point_at(row);
      for (std::int64_t begin = launch_.column_begin; begin < launch_.column_end; begin += most) {
        char* place = handed_on.data();
        for (std::size_t a = kernel_.accesses.size(); a < accesses_.size(); ++a) {
          pointers_[a] = place - begin * bytes_of(a);
          place += most * bytes_of(a);
        }
        KernelLaunch part = launch_;
        part.pointers = pointers_.data(), part.sizes = sizes_.data();
        part.strides = strides_.data(), part.offsets = offsets_.data();
        part.row_begin = 0, part.row_end = 1;
        part.column_begin = begin, part.column_end = std::min(begin + most, launch_.column_end);
        reductions.launch(part);
        part.row_end = steps_;
        results.variant_for(part).launch(part);
      }
    }
  }

 private:
  std::int64_t bytes_of(std::size_t access) const {
    return static_cast<std::int64_t>(byte_size(accesses_[access].dtype));
  }
  /// The elements of the given accesses at a row.
  void point_at(std::int64_t row) {
    for (std::size_t a = 0; a < kernel_.accesses.size(); ++a) {
      std::int64_t distance = 0, rest = row;
      for (unsigned axis = kernel_.rank - 1u; axis-- > 0;) {
        if (kernel_.is_reduced(axis)) continue;
        if ((accesses_[a].axes >> axis & 1u) != 0)
          distance += rest % launch_.sizes[axis] * launch_.strides[a * kernel_.rank + axis];
        rest /= launch_.sizes[axis];
      }
      if (accesses_[a].address_only)
        offsets_[a] = launch_.offsets[a] + distance;
      else
        pointers_[a] = static_cast<char*>(launch_.pointers[a]) + distance * bytes_of(a);
    }
  }

  const Kernel& kernel_;
  const KernelLaunch& launch_;
  const std::vector<Access>& accesses_;
  std::vector<std::int64_t> sizes_, strides_, offsets_;
  std::vector<void*> pointers_;
  std::int64_t steps_ = 1, column_bytes_ = 0;
};

class StagedExecutable final : public Executable {
 public:
  StagedExecutable(const Kernel& kernel, const StagedKernels& kernels, std::shared_ptr<const Executable> reductions,
                   std::shared_ptr<const Executable> results)
      : kernel_(kernel), kernels_(kernels), reductions_(std::move(reductions)), results_(std::move(results)) {}
  void launch(const KernelLaunch& launch) const override {
    StagedLaunch(kernel_, kernels_, launch).run(*reductions_, *results_);
  }
  std::size_t code_bytes() const override { return reductions_->code_bytes() + results_->code_bytes(); }

 private:
  const Kernel kernel_;
  const StagedKernels kernels_;
  const std::shared_ptr<const Executable> reductions_, results_;
};

}  // namespace

PointResults point_results(const Kernel& kernel) {
  PointResults results;
  results.map.rank = kernel.rank, results.map.accesses = kernel.accesses, results.map.scalars = kernel.scalars;
  results.handed_on = Results(kernel, results.map).build();
  return results;
}

std::optional<StagedKernels> staged_kernels(const Kernel& kernel) {
  if (kernel.reduced == 0 || kernel.is_row_kernel() || kernel.program.size() > kLongestProgram) return std::nullopt;
  if (std::ranges::none_of(kernel.stores, [&](const Store& s) { return is_at_each_point(kernel, s); }))
    return std::nullopt;
  if (has_positions(kernel)) return std::nullopt;  // they are checked once, and are what they are computed from
  auto [results, handed_on] = point_results(kernel);
  if (handed_on.empty()) return std::nullopt;
  StagedKernels staged{.reductions = kernel, .results = std::move(results)};
  Kernel& reductions = staged.reductions;
  std::erase_if(reductions.stores, [&](const Store& s) { return is_at_each_point(kernel, s); });
  for (std::size_t i = 0; i < handed_on.size(); ++i) {
    const auto access = static_cast<std::uint16_t>(kernel.accesses.size() + i);
    reductions.accesses.push_back(staged.results.accesses[access]);
    reductions.stores.push_back({access, handed_on[i]});
  }
  return staged;
}

bool has_tall_columns(const Kernel& kernel, const StagedKernels& kernels, const KernelLaunch& launch) {
  std::int64_t steps = 1;
  for (unsigned axis = 0; axis + 1 < kernel.rank; ++axis)
    if (kernel.is_reduced(axis)) steps *= launch.sizes[axis];
  if (steps < kFewestSteps) return false;
  const bool is_cheap = kernels.results.program.size() <= kCheapProgram;
  const std::int64_t large = is_cheap ? stream_threshold() / kCheapShare : stream_threshold();
  double needed = 0;
  bool is_large = false;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    if ((access.axes & kernel.reduced) == 0 || !access.is_in_order()) continue;
    needed += static_cast<double>(steps) / static_cast<double>(rows_in_cache(kernel, launch, a));
    const bool is_stored = std::ranges::any_of(kernel.stores, [&](const Store& s) { return s.access == a; });
    const std::int64_t bytes =
        steps * launch.sizes[kernel.rank - 1u] * static_cast<std::int64_t>(byte_size(access.dtype));
    is_large = is_large || (is_stored && bytes >= large);
  }
  return is_large || (is_cheap && needed >= kMostNeeded);
}

std::shared_ptr<const Executable> staged_executable(const Kernel& kernel, const StagedKernels& kernels,
                                                    std::shared_ptr<const Executable> reductions,
                                                    std::shared_ptr<const Executable> results) {
  return std::make_shared<StagedExecutable>(kernel, kernels, std::move(reductions), std::move(results));
}

}  // namespace fermata
