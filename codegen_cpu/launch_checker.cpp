// See launch_checker.h.
#include "codegen_cpu/launch_checker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

namespace fermata {
namespace {

/// Of the code that called: some KiB above here.
bool is_on_stack(const std::byte* address) {
  const std::byte here{};
  const auto from = reinterpret_cast<std::uintptr_t>(&here), at = reinterpret_cast<std::uintptr_t>(address);
  return at > from && at - from < 1u << 17;
}

}  // namespace

LaunchChecker::LaunchChecker(const Kernel& kernel, const jit::ObjectInfo& info, const KernelLaunch& launch,
                             void* scratch)
    : jit::BoundsChecker{&check_adjacent, &check_scattered}, kernel_(kernel), launch_(launch), scratch_(scratch) {
  const std::span<const std::int64_t> sizes(launch.sizes, kernel.rank);
  const LaunchPoints points{sizes,          kernel.reduced,      launch.row_begin,
                            launch.row_end, launch.column_begin, launch.column_end};
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    std::vector<std::int64_t> strides(kernel.rank, 0);
    for (unsigned axis = 0; axis < kernel.rank; ++axis)
      if ((kernel.accesses[a].axes >> axis & 1u) != 0) strides[axis] = launch.strides[a * kernel.rank + axis];
    const std::size_t bytes = byte_size(kernel.accesses[a].dtype);
    reaches_.push_back(reach_of(points, strides, bytes));
    Reach& reach = reaches_.back();
    if (reach.begin == reach.end) continue;
    if (kernel.accesses[a].gathered) {
      const std::optional<std::int64_t> behind = gathered_reach(kernel, static_cast<std::uint16_t>(a), launch);
      if (!behind) reach = {};
      reach.extend(behind.value_or(0) * static_cast<std::int64_t>(bytes));
    }
    if (kernel.accesses[a].half == Half::real) reach.end += static_cast<std::int64_t>(bytes);
    if (kernel.accesses[a].half == Half::imaginary) reach.begin -= static_cast<std::int64_t>(bytes);
  }
  if (info.scratch_slots != 0) of_scratch_.end = static_cast<std::int64_t>(jit::scratch_bytes(info, launch));
  if (launch.partials != nullptr)
    of_partials_.end =
        reduction_blocks(kernel, launch.sizes) * static_cast<std::int64_t>(jit::block_bytes(info, launch));
}

void LaunchChecker::check_adjacent(const BoundsChecker* self, std::uint64_t subject, const std::byte* first,
                                   std::uint64_t element_bytes, std::uint64_t mask) {
  if (mask == 0) return;
  const auto begin = static_cast<unsigned>(std::countr_zero(mask)),
             end = 64 - static_cast<unsigned>(std::countl_zero(mask));
  static_cast<const LaunchChecker*>(self)->check(subject, first + begin * element_bytes, (end - begin) * element_bytes);
}
void LaunchChecker::check_scattered(const BoundsChecker* self, std::uint64_t subject, const std::byte* const* elements,
                                    std::uint64_t element_bytes, std::uint64_t mask) {
  for (; mask != 0; mask &= mask - 1)
    static_cast<const LaunchChecker*>(self)->check(subject, elements[std::countr_zero(mask)], element_bytes);
}

void LaunchChecker::check(std::uint64_t subject, const std::byte* address, std::uint64_t bytes) const {
  const std::uint64_t number = subject & kSubject;
  const bool is_access = number != kScratch && number != kPartials;
  const void* const origin = is_access ? launch_.pointers[number] : number == kScratch ? scratch_ : launch_.partials;
  const Reach& reach = is_access ? reaches_[number] : number == kScratch ? of_scratch_ : of_partials_;
  const std::int64_t from = address - static_cast<const std::byte*>(origin);
  if (reach.holds(from, from + static_cast<std::int64_t>(bytes))) return;
  if ((subject & kOrStack) != 0 && is_on_stack(address)) return;
  const std::string what = is_access ? fmt::format("access {}, {}", number, name(kernel_.accesses[number].dtype))
                                     : std::string(number == kScratch ? "kept values" : "partial results");
  const std::span<const std::int64_t> sizes(launch_.sizes, kernel_.rank);
  fmt::print(stderr,
             "fermata: out-of-bounds access by a kernel: it {} bytes [{}, {}) of {}; the launch may access [{}, {})\n"
             "sizes [{}], rows [{}, {}), columns [{}, {})\n{}",
             (subject & kStores) != 0 ? "stores" : "loads", from, from + static_cast<std::int64_t>(bytes), what,
             reach.begin, reach.end, fmt::join(sizes, ", "), launch_.row_begin, launch_.row_end, launch_.column_begin,
             launch_.column_end, to_string(kernel_));
  std::abort();
}
}  // namespace fermata
