// A kernel description with memory to run it on: what the tests of code generators have in common.
//
// Buffers hold awkward values (NaN, infinities, both zeros, subnormals, extremes) and have gaps that must stay as
// they are.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "ir/scalar_interpreter.h"

namespace fermata::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(bound));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class T> const T& pick(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }
  std::uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

/// Bits of a value of a dtype: an ordinary one, or with this chance an awkward one.
std::uint64_t random_value(DType dtype, Random& random, int awkward_percent);

/// Memory and strides for every access of a kernel.
class KernelCase {
 public:
  KernelCase(Kernel kernel, std::vector<std::int64_t> sizes, Random& random);

  const Kernel& kernel() const { return kernel_; }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  std::int64_t rows() const;
  std::int64_t columns() const;  // of the vector axis; 0 in row kernels
  /// A launch over everything; its pointers lead into this object.
  KernelLaunch launch();
  /// The memory of an access, gaps included.
  std::span<unsigned char> bytes(std::size_t access) { return buffers_[access].bytes; }
  /// Whether positions were out of range when it ran. A launch of no points has none.
  bool has_failed() const { return failure_.failed != 0 && rows() != 0 && (kernel_.is_row_kernel() || columns() != 0); }
  /// What differs from another case of the same kernel after both ran, or "". NaNs are equal to each other.
  std::string difference(const KernelCase& other) const;

 private:
  struct Buffer {
    std::vector<unsigned char> bytes;
    std::size_t origin = 0;  // bytes
  };
  void lay_out(std::size_t access, Random& random);
  void lay_out_gathered(Random& random);
  void fill(std::size_t access, std::int64_t before, std::int64_t elements, Random& random);

  Kernel kernel_;
  std::vector<std::int64_t> sizes_, strides_, offsets_;
  std::vector<std::uint64_t> scalars_;
  std::vector<Buffer> buffers_;
  std::vector<void*> pointers_;
  LaunchFailure failure_;
};

/// A seed from FERMATA_SEED, or `otherwise`; a count from FERMATA_FUZZ_COUNT.
std::uint64_t seed_or(std::uint64_t otherwise);
int fuzz_count_or(int otherwise);

inline bool is_nan(DType dtype, std::uint64_t bits) {
  if (!is_floating(dtype)) return false;
  const double value = std::bit_cast<double>(convert_slot(dtype, DType::f64, bits));
  return value != value;
}

inline std::uint64_t random_float(DType dtype, Random& random, int awkward_percent) {
  static const std::vector<double> awkward = {0.0,
                                              -0.0,
                                              1.0,
                                              -1.0,
                                              0.5,
                                              std::numeric_limits<double>::infinity(),
                                              -std::numeric_limits<double>::infinity(),
                                              std::numeric_limits<double>::quiet_NaN(),
                                              1e-42,
                                              -1e-42,
                                              3e38,
                                              65504.0,
                                              1e-7,
                                              88.9,
                                              2147483648.0,
                                              9.3e18,
                                              -9.3e18,
                                              255.5};
  double value = static_cast<double>(random.below(1 << 20)) / (1 << 17) - 4;
  if (random.chance(awkward_percent)) value = random.pick(awkward);
  if (random.chance(awkward_percent / 5))
    value = std::ldexp(static_cast<double>(random.below(1 << 30)), static_cast<int>(random.below(120)) - 75);
  return convert_slot(DType::f64, dtype, std::bit_cast<std::uint64_t>(value));
}

inline std::uint64_t random_value(DType dtype, Random& random, int awkward_percent) {
  const auto width = static_cast<unsigned>(8 * byte_size(dtype));
  const std::uint64_t mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  if (dtype == DType::boolean) return random.bits() & 1;
  if (is_floating(dtype)) return random_float(dtype, random, awkward_percent);
  const std::uint64_t top = std::uint64_t{1} << (width - 1);
  if (random.chance(20)) return random.bits() & mask;
  if (random.chance(awkward_percent))
    return random.pick(std::vector<std::uint64_t>{0, 1, mask, top, top - 1, width - 1, width}) & mask;
  return static_cast<std::uint64_t>(random.below(41) - 20) & mask;
}

inline std::uint64_t seed_or(std::uint64_t otherwise) {
  const char* const text = std::getenv("FERMATA_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
inline int fuzz_count_or(int otherwise) {
  const char* const text = std::getenv("FERMATA_FUZZ_COUNT");
  return text == nullptr ? otherwise : std::atoi(text);
}

inline KernelCase::KernelCase(Kernel kernel, std::vector<std::int64_t> sizes, Random& random)
    : kernel_(std::move(kernel)),
      sizes_(std::move(sizes)),
      strides_(kernel_.accesses.size() * kernel_.rank),
      offsets_(kernel_.accesses.size()),
      buffers_(kernel_.accesses.size()) {
  for (std::size_t a = 0; a < kernel_.accesses.size(); ++a) lay_out(a, random);
  lay_out_gathered(random);
  for (const DType t : kernel_.scalars) scalars_.push_back(random_value(t, random, 25));
}

/// Axes get their strides in a random order (the vector axis first where it has unit stride), some with gaps, some
/// running backwards. Elements that are only read are sometimes windows that overlap, or stretched.
inline void KernelCase::lay_out(std::size_t access, Random& random) {
  const Access& description = kernel_.accesses[access];
  const bool is_written = std::ranges::any_of(kernel_.stores, [&](const Store& s) { return s.access == access; });
  const bool overlaps = !is_written && random.chance(30);
  std::vector<unsigned> order;
  for (unsigned axis = 0; axis < kernel_.rank; ++axis)
    if ((description.axes >> axis & 1u) != 0) order.push_back(axis);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  if (description.unit_stride) std::iter_swap(order.begin(), std::ranges::find(order, kernel_.rank - 1u));
  std::int64_t extent = 1, origin = 0;
  for (const unsigned axis : order) {
    const bool unit = description.unit_stride && axis == kernel_.rank - 1u;
    const std::int64_t steps = std::max<std::int64_t>(sizes_[axis] - 1, 0);
    std::int64_t stride = extent * (unit || random.chance(70) ? 1 : 1 + random.below(3));
    if (overlaps && !unit && random.chance(70)) {
      stride = random.below(6);
      extent += stride * steps;
    } else {
      extent = overlaps ? extent + stride * steps : stride * (steps + 1);
    }
    if (!unit && random.chance(15)) {
      origin += stride * steps;
      stride = -stride;
    }
    strides_[access * kernel_.rank + axis] = stride;
  }
  if (description.address_only) {
    offsets_[access] = random.below(1000);
    return;
  }
  fill(access, origin, extent, random);
}

/// Elements and a margin around them, the origin after so many of them.
inline void KernelCase::fill(std::size_t access, std::int64_t before, std::int64_t elements, Random& random) {
  constexpr std::size_t kMargin = 3;
  const DType dtype = kernel_.accesses[access].dtype;
  const std::size_t bytes = byte_size(dtype);
  Buffer& buffer = buffers_[access];
  buffer.bytes.clear();
  const int awkward_percent = random.chance(50) ? 25 : 0;  // long reductions would only ever see NaN
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements) + 2 * kMargin; ++i) {
    const std::uint64_t value = random_value(dtype, random, awkward_percent);
    const auto* const raw = reinterpret_cast<const unsigned char*>(&value);
    buffer.bytes.insert(buffer.bytes.end(), raw, raw + bytes);
  }
  buffer.origin = (kMargin + static_cast<std::size_t>(before)) * bytes;
}

/// Short axes to gather along, in either direction, and memory behind or before every element for them.
inline void KernelCase::lay_out_gathered(Random& random) {
  for (const Instr& instr : kernel_.program.instrs()) {
    if (instr.prim != Prim::gather) continue;
    const GatheredAxis axis = gathered_axis(kernel_, instr).value();
    offsets_[kernel_.program[axis.size].index] = 1 + random.below(9);
    if (axis.step != kNoValue) offsets_[kernel_.program[axis.step].index] = random.below(5) - 1;
    const std::int64_t reach = gathered_reach(kernel_, instr.index, launch()).value();
    const std::size_t bytes = byte_size(instr.type);
    const Buffer& buffer = buffers_[instr.index];
    fill(instr.index, static_cast<std::int64_t>(buffer.origin / bytes) + std::max<std::int64_t>(-reach, 0),
         static_cast<std::int64_t>(buffer.bytes.size() / bytes) + std::abs(reach), random);
  }
}

inline std::int64_t KernelCase::rows() const {
  std::int64_t rows = 1;
  for (unsigned axis = 0; axis < kernel_.rank; ++axis)
    if (!kernel_.is_reduced(axis) && (kernel_.is_row_kernel() || axis != kernel_.rank - 1u)) rows *= sizes_[axis];
  return rows;
}
inline std::int64_t KernelCase::columns() const { return kernel_.is_row_kernel() ? 0 : sizes_.back(); }

inline KernelLaunch KernelCase::launch() {
  pointers_.clear();
  for (std::size_t a = 0; a < buffers_.size(); ++a)
    pointers_.push_back(kernel_.accesses[a].address_only ? nullptr : buffers_[a].bytes.data() + buffers_[a].origin);
  failure_ = {};
  return {pointers_.data(), sizes_.data(), strides_.data(), offsets_.data(), scalars_.data(), 0, rows(), 0,
          columns(),        nullptr,       &failure_};
}

inline std::string KernelCase::difference(const KernelCase& other) const {
  if (has_failed() != other.has_failed()) return "one of them has failed";
  for (std::size_t a = 0; a < buffers_.size(); ++a) {
    const DType dtype = kernel_.accesses[a].dtype;
    const std::size_t bytes = byte_size(dtype);
    for (std::size_t at = 0; at + bytes <= buffers_[a].bytes.size(); at += bytes) {
      const std::uint64_t mine = load_slot(dtype, &buffers_[a].bytes[at]),
                          theirs = load_slot(dtype, &other.buffers_[a].bytes[at]);
      if (mine == theirs || (is_nan(dtype, mine) && is_nan(dtype, theirs))) continue;
      return fmt::format("access {} ({}) differs {} elements from its origin: {:#x} and {:#x}", a, name(dtype),
                         (static_cast<std::int64_t>(at) - static_cast<std::int64_t>(buffers_[a].origin)) /
                             static_cast<std::int64_t>(bytes),
                         mine, theirs);
    }
  }
  return {};
}

}  // namespace fermata::test
