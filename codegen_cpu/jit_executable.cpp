// See jit_executable.h.
#include "codegen_cpu/jit_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen_cpu/arranged_operands.h"
#include "codegen_cpu/exchanged_axes.h"
#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/joined_rows.h"
#include "codegen_cpu/kernel_parts.h"
#include "codegen_cpu/loader.h"
#include "codegen_cpu/narrowed_kernel.h"
#include "codegen_cpu/repeated_code.h"
#include "codegen_cpu/staged_columns.h"
#include "codegen_cpu/turned_rows.h"
#include "dispatch/kernel_cache.h"
#include "runtime/background.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"
#include "runtime/warm_up.h"

namespace fermata {
namespace {

/// Values of the integer scalars of a kernel.
using Numbers = std::vector<std::uint64_t>;

class VariableExecutable final : public LoadedExecutable {
 public:
  enum class Code : std::uint8_t { quick, narrowed_wide };
  VariableExecutable(std::string_view bytes, const Kernel& kernel, std::string_view target, Code code)
      : LoadedExecutable(bytes, KernelNameScope::current()),
        kernel_(kernel),
        turned_(turned_kernel(kernel)),
        longest_turned_(turned_ ? longest_turned_row(kernel) : 0),
        joined_(joined_kernel(kernel)),
        staged_(staged_kernels(kernel)),
        may_exchange_axes_(may_exchange_axes(kernel)),
        may_lie_across_(accesses_to_arrange(kernel)),
        is_wide_(code == Code::narrowed_wide),
        may_narrow_(code == Code::quick && may_narrow(kernel)),
        target_(target),
        name_(KernelNameScope::current()),
        repeated_(target_, name_) {}

  void launch(const KernelLaunch& launch) const override {
    if (!may_exchange_axes_) return LoadedExecutable::launch(launch);
    launch_exchanged(kernel_, launch, [this](const KernelLaunch& exchanged) { LoadedExecutable::launch(exchanged); });
  }

  void arranged(const KernelLaunch& launch, FunctionRef<void(const KernelLaunch&)> run) const override {
    if (may_lie_across_ == 0 || points_of(launch) < kFewestArranged || turns(launch)) return run(launch);
    const AccessSet across = accesses_across(kernel_, may_lie_across_, launch);
    if (across == 0) return run(launch);
    JitVariant wanted = layout_of(launch);
    wanted.in_order |= across;
    if (arranged_for(wanted, points_of(launch)) == nullptr) return run(launch);
    run_arranged(kernel_, across, launch, run);
  }

  bool in_parts(const KernelLaunch& launch,
                FunctionRef<void(const Executable&, const KernelLaunch&)> run) const override {
    if (kernel_.reduced == 0 || !is_shared_by_few(kernel_, launch) || parts().empty()) return false;
    const Executable* parted = variants_->parted.load(std::memory_order_acquire);
    constexpr std::int64_t kSaved = 8;  // half the time of several passes, or more
    if (parted == nullptr && is_worth_widening(points_of(launch) * kSaved)) {
      parted = &variant({.streamed = 0, .wide = true, .parted = true});
      if (parted == this) return false;
    }
    return parted != nullptr && parted->in_parts(launch, run);
  }

  const Executable* repeated(std::span<const Carried> carried, std::int64_t steps) const override {
    return repeated_.find(kernel_, carried, steps);
  }

  const Executable& variant_for(const KernelLaunch& launch, bool may_stream) const override {
    const std::int64_t points = points_of(launch);
    const bool is_turned = turns(launch);
    if (may_lie_across_ != 0 && points >= kFewestArranged && !is_turned)
      if (const Executable* const arranged = arranged_for(layout_of(launch), points))
        return arranged->variant_for(launch, may_stream);
    if (may_narrow_)
      if (const Executable* const narrowed = narrowed_for(launch, points, may_stream)) return *narrowed;
    if (joined_ && has_rows_to_join(kernel_, launch)) {
      if (const Executable* const joined = variants_->joined.load(std::memory_order_acquire)) return *joined;
      return is_worth_widening(saved_by_filling(launch, 1)) ? variant({.streamed = 0, .wide = true, .joined = true})
                                                            : *this;
    }
    if (is_turned) {
      if (const Executable* const turned = variants_->turned.load(std::memory_order_acquire)) return *turned;
      const std::int64_t blocks = kernel_.reduced != 0 ? reduction_blocks(kernel_, launch.sizes) : 1;
      return is_worth_widening(saved_by_filling(launch, blocks))
                 ? variant({.streamed = 0, .wide = true, .turned = true})
                 : *this;
    }
    if (staged_ && may_stream && has_tall_columns(kernel_, *staged_, launch)) {
      if (const Executable* const staged = variants_->staged.load(std::memory_order_acquire)) return *staged;
      constexpr std::int64_t kSaved = 8;  // a point takes 1 to 2 ns less
      return is_worth_widening(points * kSaved) ? variant({.streamed = 0, .wide = true, .staged = true}) : *this;
    }
    constexpr std::int64_t kLargestElement = 8;
    const bool is_large = may_stream && points * kLargestElement >= stream_threshold();
    const StreamedStores streamed = is_large ? stores_to_stream(kernel_, launch) & streamable() : 0;
    if (streamed == 0) {
      if (is_wide_) return *this;
      if (const Executable* const wide = variants_->wide.load(std::memory_order_acquire)) return *wide;
      if (!is_worth_widening(points)) return *this;
    }
    return variant({streamed, true});
  }

 private:
  /// A variant, or this as long as there is none.
  const Executable& variant(const JitVariant& wanted) const {
    const std::lock_guard lock(variants_->mutex);
    const auto [at, is_new] = variants_->ready.try_emplace(wanted);
    if (is_new) variants_->keep(wanted, found_or_started(wanted));
    return at->second != nullptr ? *at->second : *this;
  }

  std::int64_t points_of(const KernelLaunch& launch) const {
    std::int64_t points = 1;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis) points *= launch.sizes[axis];
    return points;
  }

  /// Whether a launch has short rows, which are brought in order tile by tile.
  bool turns(const KernelLaunch& launch) const { return turned_ && has_short_rows(kernel_, launch, longest_turned_); }

  /// Points whose time is saved where rows of a few blocks fill vectors: a block of a short row costs what one does
  /// that fills all lanes, and more.
  static std::int64_t saved_by_filling(const KernelLaunch& launch, std::int64_t blocks) {
    constexpr std::int64_t kSaved = 8 * std::int64_t{kReductionLanes};
    return (launch.row_end - launch.row_begin) * blocks * kSaved;
  }

  /// Smaller launches take less than finding out how their operands lie.
  static constexpr std::int64_t kFewestArranged = std::int64_t{1} << 14;

  /// Code for operands that lie as a launch has them; null where there is none, or not yet. It is compiled once
  /// launches had points enough to save its time.
  const Executable* arranged_for(const JitVariant& wanted, std::int64_t points) const {
    constexpr std::int64_t kEnough = std::int64_t{1} << 19;  // each saves one to three nanoseconds
    if (wanted.in_order == 0 && wanted.stretched == 0) return nullptr;
    const std::lock_guard lock(variants_->mutex);
    if (const auto at = variants_->ready.find(wanted); at != variants_->ready.end()) return at->second.get();
    constexpr std::size_t kMostVariants = 16;
    points_apart_ += points;
    if ((points_apart_ < kEnough && !is_warming_up) || variants_->ready.size() >= kMostVariants) return nullptr;
    variants_->keep(wanted, found_or_started(wanted));
    return variants_->ready[wanted].get();
  }
  JitVariant layout_of(const KernelLaunch& launch) const {
    return {.wide = true,
            .in_order = accesses_in_order(kernel_, may_lie_across_, launch),
            .stretched = accesses_stretched(kernel_, may_lie_across_, launch)};
  }

  /// Code for a kernel with some numbers. Without an executable it is being compiled, or there is none.
  struct Narrowed {
    Numbers numbers;
    std::atomic<const Executable*> ready{nullptr};
    std::atomic<bool> is_made{false};
    std::shared_ptr<const Executable> executable;
    void keep(std::shared_ptr<const Executable> made) {
      executable = std::move(made);
      ready.store(executable.get(), std::memory_order_release);
      is_made.store(true, std::memory_order_release);
    }
  };

  /// Code for the numbers of a launch; null where there is none.
  const Executable* narrowed_for(const KernelLaunch& launch, std::int64_t points, bool may_stream) const {
    for (const auto& narrowed : variants_->narrowed) {
      const Narrowed* const n = narrowed.load(std::memory_order_acquire);
      if (n == nullptr) {
        if (!narrows_now(launch, points)) return nullptr;
        narrow(launch);
        return narrowed_for(launch, 0, may_stream);
      }
      if (!has_numbers(launch, n->numbers)) continue;
      if (const Executable* const ready = n->ready.load(std::memory_order_acquire))
        return &ready->variant_for(launch, may_stream);
      return n->is_made.load(std::memory_order_acquire) ? nullptr : this;
    }
    return nullptr;
  }
  /// Whether work that is worth compiling for keeps coming with the same numbers. Small launches are not asked: threads
  /// with one kernel do not write one cache line in turns.
  bool narrows_now(const KernelLaunch& launch, std::int64_t points) const {
    constexpr std::uint32_t kTimes = 3;
    if (is_warming_up) [[unlikely]]
      return true;
    if (is_small(points) || !is_worth_widening(points)) return false;
    std::uint64_t hash = 0;
    for (const std::uint64_t number : numbers_of(launch)) hash = (hash ^ number) * 0x9e3779b97f4a7c15u;
    const bool is_same = last_numbers_.exchange(hash, std::memory_order_relaxed) == hash;
    if (!is_same) times_.store(0, std::memory_order_relaxed);
    return is_same && times_.fetch_add(1, std::memory_order_relaxed) >= kTimes;
  }
  template <class F> void for_numbers(const KernelLaunch& launch, F&& f) const {
    for (std::size_t i = 0; i < kernel_.scalars.size(); ++i) {
      if (!is_integer(kernel_.scalars[i])) continue;
      const auto width = 8 * byte_size(kernel_.scalars[i]);
      f(launch.scalars[i] & (~std::uint64_t{0} >> (64 - width)));
    }
  }
  Numbers numbers_of(const KernelLaunch& launch) const {
    Numbers numbers;
    for_numbers(launch, [&](std::uint64_t number) { numbers.push_back(number); });
    return numbers;
  }
  bool has_numbers(const KernelLaunch& launch, const Numbers& numbers) const {
    std::size_t at = 0;
    bool same = true;
    for_numbers(launch, [&](std::uint64_t number) { same = same && number == numbers[at++]; });
    return same;
  }
  void narrow(const KernelLaunch& launch) const {
    const std::lock_guard lock(variants_->mutex);
    auto& entries = variants_->narrowed_entries;
    const bool is_there =
        std::ranges::any_of(entries, [&](const auto& entry) { return has_numbers(launch, entry->numbers); });
    if (is_there || entries.size() == variants_->narrowed.size()) return;
    Narrowed* const made = entries.emplace_back(std::make_unique<Narrowed>()).get();
    made->numbers = numbers_of(launch);
    const std::optional<Kernel> kernel = narrowed_kernel(kernel_, launch.scalars);
    const bool waits = !target_.empty() || thread_count() == 1;
    if (!kernel || (!waits && !JitCompiler::instance().load()))
      made->keep(nullptr);
    else if (waits)
      made->keep(narrowed(*kernel, name_ + "_narrowed", target_));
    else
      run_in_background([variants = variants_, made, kernel = *kernel, name = name_ + "_narrowed"] {
        made->keep(narrowed(kernel, name, {}));
      });
    variants_->narrowed[entries.size() - 1].store(made, std::memory_order_release);
  }
  static std::shared_ptr<const Executable> narrowed(const Kernel& kernel, const std::string& name,
                                                    const std::string& target) {
    try {
      const KernelNameScope scope(name);
      return std::make_shared<VariableExecutable>(object_of(kernel, {.streamed = 0, .wide = true}, target), kernel,
                                                  target, Code::narrowed_wide);
    } catch (const std::exception&) { return nullptr; }
  }
  /// From the disk if it is there.
  static std::string object_of(const Kernel& kernel, const JitVariant& wanted, const std::string& target) {
    JitCompiler& compiler = JitCompiler::instance();
    if (!target.empty()) return compiler.object_for(kernel, nullptr, target, wanted);
    if (auto found = compiler.found_object(kernel, wanted)) return *std::move(found);
    return compiler.kept_object(kernel, wanted);
  }

  bool is_small(std::int64_t points) const {
    constexpr std::int64_t kSmall = std::int64_t{1} << 18;
    return points * static_cast<std::int64_t>(kernel_.program.size()) < kSmall;
  }

  /// Counts the work of a launch: wide code takes some milliseconds to compile and saves a fifth. Launches on several
  /// threads at once may be counted as one. Of small launches one in some dozens is counted, for all of those: threads
  /// with one kernel do not write one cache line in turns.
  bool is_worth_widening(std::int64_t points) const {
    if (is_warming_up) [[unlikely]]
      return true;
    const auto size = static_cast<std::int64_t>(kernel_.program.size());
    constexpr std::int64_t kOneIn = 64;
    static constinit thread_local std::uint32_t random = 1;  // a period of the program must not hide a kernel
    const bool small = is_small(points);
    if (small) random = random * 1664525 + 1013904223;
    std::int64_t work = work_.load(std::memory_order_relaxed);
    if (!small || random >> 26 == 0) {
      work += points * size * (small ? kOneIn : 1);
      work_.store(work, std::memory_order_relaxed);
    }
    // About 25 ms, in the background if there are several threads, which is what so much work takes. One thread waits
    // for the compiler, 0.2 ms for each primitive of a kernel with several stages (AVX2), and has to save that.
    constexpr std::int64_t kEnough = std::int64_t{1} << 29, kEnoughStages = std::int64_t{1} << 31,
                           kEnoughPoints = std::int64_t{1} << 26;
    const bool waits = thread_count() == 1 && kernel_.reduced != 0;
    return work >= (waits ? std::max(kEnoughStages, kEnoughPoints * size) : kEnough);
  }

  /// Code that is on the disk; else null, and compiling begins in the background: the bits are the same meanwhile.
  std::shared_ptr<const Executable> found_or_started(const JitVariant& wanted) const {
    if (wanted.staged) return staged_or_started();
    if (wanted.parted) return parted_or_started();
    if (wanted.in_order != 0 || wanted.stretched != 0) return arranged_or_started(wanted);
    JitCompiler& compiler = JitCompiler::instance();
    const Kernel& kernel = wanted.turned ? *turned_ : wanted.joined ? *joined_ : kernel_;
    if (!target_.empty() || thread_count() == 1)
      return of_kernel(kernel_, wanted, compiled(kernel, name_of(wanted), target_, wanted));
    try {
      if (const auto object = compiler.found_object(kernel, wanted))
        return of_kernel(kernel_, wanted, executable_from_object(*object, name_of(wanted)));
    } catch (const NoMemoryForObject&) { return nullptr; } catch (const ObjectError&) {
      // Damaged: compiling finds that out again, and reports it.
    }
    if (!compiler.load()) return nullptr;
    run_in_background([variants = variants_, whole = kernel_, kernel, name = name_of(wanted), wanted] {
      auto made = of_kernel(whole, wanted, compiled(kernel, name, {}, wanted));
      const std::lock_guard lock(variants->mutex);
      variants->keep(wanted, std::move(made));
    });
    return nullptr;
  }

  std::shared_ptr<const Executable> staged_or_started() const {
    if (!target_.empty() || thread_count() == 1) return staged(kernel_, *staged_, name_, target_);
    if (!JitCompiler::instance().load()) return nullptr;
    run_in_background([variants = variants_, kernel = kernel_, kernels = *staged_, name = name_] {
      auto made = staged(kernel, kernels, name, {});
      const std::lock_guard lock(variants->mutex);
      variants->keep({.streamed = 0, .wide = true, .staged = true}, std::move(made));
    });
    return nullptr;
  }
  static std::shared_ptr<const Executable> staged(const Kernel& kernel, const StagedKernels& kernels,
                                                  const std::string& name, const std::string& target) {
    try {
      const std::string results = name + "_results";
      const KernelNameScope scope(results);
      return staged_executable(
          kernel, kernels,
          executable_from_object(object_of(kernels.reductions, {.streamed = 0, .wide = true}, target),
                                 name + "_reductions"),
          variable_executable(object_of(kernels.results, {}, target), kernels.results, target));
    } catch (const std::exception&) { return nullptr; }
  }

  /// Found when a launch first asks: few do.
  const std::vector<Kernel>& parts() const {
    std::call_once(parts_found_, [this] { parts_ = kernel_parts(kernel_); });
    return parts_;
  }
  std::shared_ptr<const Executable> parted_or_started() const {
    if (!target_.empty()) return parted(kernel_, parts(), name_, target_);
    if (!JitCompiler::instance().load()) return nullptr;
    run_in_background([variants = variants_, kernel = kernel_, parts = parts(), name = name_] {
      auto made = parted(kernel, parts, name, {});
      const std::lock_guard lock(variants->mutex);
      variants->keep({.streamed = 0, .wide = true, .parted = true}, std::move(made));
    });
    return nullptr;
  }
  static std::shared_ptr<const Executable> parted(const Kernel& kernel, const std::vector<Kernel>& parts,
                                                  const std::string& name, const std::string& target) {
    try {
      std::vector<std::shared_ptr<const Executable>> code;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string of_part = fmt::format("{}_part_{}", name, i);
        const KernelNameScope scope(of_part);
        code.push_back(
            parts[i].reduced == 0
                ? variable_executable(object_of(parts[i], {}, target), parts[i], target)
                : executable_from_object(object_of(parts[i], {.streamed = 0, .wide = true}, target), of_part));
      }
      return parted_executable(kernel, parts, std::move(code));
    } catch (const std::exception&) { return nullptr; }
  }

  std::shared_ptr<const Executable> arranged_or_started(const JitVariant& wanted) const {
    const std::string name = name_ + "_arranged";
    Kernel kernel = arranged_kernel(kernel_, wanted.in_order, wanted.stretched);
    if (!target_.empty() || thread_count() == 1) return arranged_code(kernel, name, target_);
    if (!JitCompiler::instance().load()) return nullptr;
    run_in_background([variants = variants_, wanted, kernel = std::move(kernel), name] {
      auto made = arranged_code(kernel, name, {});
      const std::lock_guard lock(variants->mutex);
      variants->keep(wanted, std::move(made));
    });
    return nullptr;
  }
  static std::shared_ptr<const Executable> arranged_code(const Kernel& kernel, const std::string& name,
                                                         const std::string& target) {
    try {
      const KernelNameScope scope(name);
      return variable_executable(object_of(kernel, {}, target), kernel, target);
    } catch (const std::exception&) { return nullptr; }
  }

  static std::shared_ptr<const Executable> of_kernel(const Kernel& kernel, const JitVariant& variant,
                                                     std::shared_ptr<const Executable> made) {
    if (made == nullptr) return nullptr;
    if (variant.turned) return turned_executable(kernel, std::move(made));
    if (variant.joined) return joined_executable(kernel, std::move(made));
    return may_exchange_axes(kernel) ? exchanging_executable(kernel, std::move(made)) : made;
  }

  std::string name_of(const JitVariant& variant) const {
    return name_ +
           (variant.turned   ? "_turned"
            : variant.joined ? "_joined"
            : variant.wide   ? "_wide"
                             : "") +
           (variant.streamed != 0 ? "_streamed" : "");
  }

  /// Null where there is none: it would only have been faster.
  static std::shared_ptr<const Executable> compiled(const Kernel& kernel, const std::string& name,
                                                    const std::string& target, const JitVariant& wanted) {
    try {
      JitCompiler& compiler = JitCompiler::instance();
      return executable_from_object(
          target.empty() ? compiler.kept_object(kernel, wanted) : compiler.object_for(kernel, nullptr, target, wanted),
          name);
    } catch (const std::exception&) { return nullptr; }
  }

  struct Variants {
    std::mutex mutex;
    std::map<JitVariant, std::shared_ptr<const Executable>> ready;  // null: being compiled, or failed
    std::atomic<const Executable*> wide{nullptr};                   // the one that does not stream, once it is there
    std::atomic<const Executable*> turned{nullptr}, joined{nullptr}, staged{nullptr}, parted{nullptr};
    std::array<std::atomic<const Narrowed*>, 4> narrowed{};  // in order; null: no more yet
    std::vector<std::unique_ptr<Narrowed>> narrowed_entries;
    void keep(const JitVariant& variant, std::shared_ptr<const Executable> made) {
      auto& first = variant.turned   ? turned
                    : variant.joined ? joined
                    : variant.staged ? staged
                    : variant.parted ? parted
                                     : wide;
      if (variant.streamed == 0 && variant.in_order == 0 && variant.stretched == 0)
        first.store(made.get(), std::memory_order_release);
      ready[variant] = std::move(made);
    }
  };
  const Kernel kernel_;
  const std::optional<Kernel> turned_;
  const std::int64_t longest_turned_;
  const std::optional<Kernel> joined_;
  const std::optional<StagedKernels> staged_;
  mutable std::once_flag parts_found_;
  mutable std::vector<Kernel> parts_;
  const bool may_exchange_axes_;
  const AccessSet may_lie_across_;
  const bool is_wide_, may_narrow_;
  const std::string target_, name_;
  const RepeatedCode repeated_;
  const std::shared_ptr<Variants> variants_ = std::make_shared<Variants>();
  mutable std::atomic<std::int64_t> work_{0};  // operations so far
  mutable std::int64_t points_apart_ = 0;      // under the mutex
  mutable std::atomic<std::uint64_t> last_numbers_{0};
  mutable std::atomic<std::uint32_t> times_{0};  // of large launches in a row that had the same numbers
};

}  // namespace

std::shared_ptr<const Executable> executable_from_object(std::string_view object, std::string_view name) {
  return std::make_shared<LoadedExecutable>(object, name);
}

std::shared_ptr<const Executable> variable_executable(std::string_view object, const Kernel& kernel,
                                                      std::string_view target) {
  return std::make_shared<VariableExecutable>(object, kernel, target, VariableExecutable::Code::quick);
}

}  // namespace fermata
