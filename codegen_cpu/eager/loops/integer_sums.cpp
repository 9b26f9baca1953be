// Sums of integers of 1, 2 and 4 bytes, and of truth values, in 64 bits: nothing is converted before it is added.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstring>
#include <utility>

#include "codegen_cpu/eager/loop_tables.h"
#include "codegen_cpu/eager/vector.h"

namespace fermata::eager::FERMATA_ISA {
namespace {

constexpr std::int64_t kBytes = kRegisterBytes;
template <class T> using Register = Raw<T, kRegisterBytes / static_cast<int>(sizeof(T))>;

template <class R> R load_register(const void* from) {
  R r;
  std::memcpy(&r, from, sizeof(r));
  return r;
}
std::uint64_t sum_of(Register<std::uint64_t> r) {
  std::uint64_t sum = 0;
  for (int i = 0; i < kRegisterBytes / 8; ++i) sum += r[i];
  return sum;
}
/// 64-bit lanes of the sums of the two 32-bit lanes in each.
Register<std::uint64_t> sums_of_halves(Register<std::uint32_t> r) {
  const auto wide = (Register<std::uint64_t>)r;
  return (wide & 0xffffffffu) + (wide >> 32);
}

/// 64-bit lanes of sums of the unsigned elements of a register.
Register<std::uint64_t> lane_sums(Register<std::uint8_t> x) {
#if defined(__AVX512F__)
  return (Register<std::uint64_t>)_mm512_sad_epu8((__m512i)x, _mm512_setzero_si512());
#elif defined(__AVX2__)
  return (Register<std::uint64_t>)_mm256_sad_epu8((__m256i)x, _mm256_setzero_si256());
#elif defined(__SSE2__)
  return (Register<std::uint64_t>)_mm_sad_epu8((__m128i)x, _mm_setzero_si128());
#else
  const auto pairs = (Register<std::uint16_t>)x;
  const auto sums = (Register<std::uint32_t>)((pairs & 0xff) + (pairs >> 8));
  return sums_of_halves((sums & 0xffff) + (sums >> 16));
#endif
}
Register<std::uint64_t> lane_sums(Register<std::uint16_t> x) {
  const auto pairs = (Register<std::uint32_t>)x;
  return sums_of_halves((pairs & 0xffff) + (pairs >> 16));
}
Register<std::uint64_t> lane_sums(Register<std::uint32_t> x) { return sums_of_halves(x); }

/// What turns the bits of a T into an unsigned number: the number plus this.
template <class T> constexpr auto kOffset =
    static_cast<std::make_unsigned_t<T>>(std::is_signed_v<T> ? std::make_unsigned_t<T>(1) << (8 * sizeof(T) - 1) : 0);

/// The first kPart bytes of a register from memory, and zeros behind them.
template <class R, std::size_t kPart> R load_first(const char* from) {
  R r{};
  std::memcpy(&r, from, kPart);
  return r;
}
/// Fewer bytes than a register has, of which those that are not there are zeros. Moves `from` behind what was read.
template <class R> R load_some(const char*& from, std::int64_t bytes) {
#if defined(__AVX512F__)
  const char* const at = std::exchange(from, from + bytes);
  return (R)_mm512_maskz_loadu_epi8((__mmask64{1} << bytes) - 1, at);
#else
  if constexpr (kRegisterBytes > 16)
    if (bytes >= 16) return load_first<R, 16>(std::exchange(from, from + 16));
  if (bytes >= 8) return load_first<R, 8>(std::exchange(from, from + 8));
  if (bytes >= 4) return load_first<R, 4>(std::exchange(from, from + 4));
  if (bytes >= 2) return load_first<R, 2>(std::exchange(from, from + 2));
  return load_first<R, 1>(from++);
#endif
}

template <class T> void sum_row(const void* x, std::int64_t n, std::uint64_t* total) {
  using U = std::make_unsigned_t<T>;
  constexpr std::int64_t kCount = kBytes / static_cast<std::int64_t>(sizeof(T));
  const char* from = static_cast<const char*>(x);
  Register<std::uint64_t> sums[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * kCount <= n; i += 2 * kCount, from += 2 * kBytes) {
    sums[0] += lane_sums(load_register<Register<U>>(from) ^ kOffset<T>);
    sums[1] += lane_sums(load_register<Register<U>>(from + kBytes) ^ kOffset<T>);
  }
  for (; i + kCount <= n; i += kCount, from += kBytes)
    sums[0] += lane_sums(load_register<Register<U>>(from) ^ kOffset<T>);
  // Zeros behind the end are elements, too.
  const char* const end = static_cast<const char*>(x) + n * static_cast<std::int64_t>(sizeof(T));
  for (; from != end; i += kCount) sums[1] += lane_sums(load_some<Register<U>>(from, end - from) ^ kOffset<T>);
  *total = sum_of(sums[0] + sums[1]) - static_cast<std::uint64_t>(i) * kOffset<T>;
}

template <class T>
void sum_rows(const void* x, std::int64_t row_bytes, std::int64_t n, std::int64_t rows, std::uint64_t* totals) {
  using U = std::make_unsigned_t<T>;
  constexpr std::int64_t kInLane = 8 / static_cast<std::int64_t>(sizeof(T)), kLanes = kBytes / 8;
  const char* from = static_cast<const char*>(x);
  std::int64_t row = 0;
  if (n == kInLane && row_bytes == 8)  // a row is a lane
    for (; row + kLanes <= rows; row += kLanes, from += kBytes) {
      const auto sums =
          lane_sums(load_register<Register<U>>(from) ^ kOffset<T>) - static_cast<std::uint64_t>(kInLane) * kOffset<T>;
      std::memcpy(totals + row, &sums, sizeof(sums));
    }
  for (; row < rows; ++row, from += row_bytes) sum_row<T>(from, n, totals + row);
}

/// A register of elements of twice the size. GCC takes elements of other sizes apart.
template <class T> auto widened(const char* from) {
  constexpr int kLanes = kRegisterBytes / (2 * static_cast<int>(sizeof(T)));
  using Wide =
      std::conditional_t<sizeof(T) == 1, std::int16_t, std::conditional_t<sizeof(T) == 2, std::int32_t, std::int64_t>>;
  using R = Raw<Wide, kLanes>;
  const auto narrow = load_register<Raw<T, kLanes>>(from);
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, std::uint8_t>) return (R)_mm512_cvtepu8_epi16((__m256i)narrow);
  if constexpr (std::is_same_v<T, std::int8_t>) return (R)_mm512_cvtepi8_epi16((__m256i)narrow);
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, std::uint8_t>) return (R)_mm256_cvtepu8_epi16((__m128i)narrow);
  if constexpr (std::is_same_v<T, std::int8_t>) return (R)_mm256_cvtepi8_epi16((__m128i)narrow);
#endif
  return __builtin_convertvector(narrow, R);
}

/// Of so many rows, sums of elements fit into twice their size. Those of 4 bytes fit anyway.
template <class T> constexpr std::int64_t kMostRows = sizeof(T) == 1 ? 128 : std::int64_t{1} << 15;

/// Columns [0, kCount) in lanes of twice their size.
template <class T, int kCount>
void sum_columns_of(const char* x, std::int64_t row_bytes, std::int64_t rows, std::uint64_t* totals, bool is_first) {
  constexpr int kLanes = kRegisterBytes / (2 * static_cast<int>(sizeof(T))), kVectors = kCount / kLanes;
  decltype(widened<T>(x)) sums[kVectors] = {};
  for (std::int64_t r = 0; r < rows; ++r, x += row_bytes)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v] += widened<T>(x + v * kLanes * static_cast<int>(sizeof(T)));
  for (int i = 0; i < kCount; ++i) {
    const auto sum = static_cast<std::uint64_t>(static_cast<std::int64_t>(sums[i / kLanes][i % kLanes]));
    totals[i] = is_first ? sum : totals[i] + sum;
  }
}
template <class T> void sum_columns(const void* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t columns,
                                    std::uint64_t* totals) {
  constexpr int kCount = 2 * kRegisterBytes / static_cast<int>(sizeof(T));
  const char* from = static_cast<const char*>(x);
  if (rows == 0) std::memset(totals, 0, static_cast<std::size_t>(columns) * sizeof(*totals));
  for (std::int64_t done = 0; done < rows; done += kMostRows<T>, from += kMostRows<T> * row_bytes) {
    const std::int64_t count = rows - done < kMostRows<T> ? rows - done : kMostRows<T>;
    std::int64_t c = 0;
    for (; c + kCount <= columns; c += kCount)
      sum_columns_of<T, kCount>(from + c * static_cast<std::int64_t>(sizeof(T)), row_bytes, count, totals + c,
                                done == 0);
    for (; c < columns; ++c) {
      std::uint64_t sum = done == 0 ? 0 : totals[c];
      for (std::int64_t r = 0; r < count; ++r) {
        T element;
        std::memcpy(&element, from + r * row_bytes + c * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(element));
      }
      totals[c] = sum;
    }
  }
}

template <class T> constexpr WideSum kWideSum{&sum_row<T>, &sum_rows<T>, &sum_columns<T>};

}  // namespace

void add_integer_sums(LoopTables& tables) {
  const auto put = [&](DType t, const WideSum& sum) { tables.wide_sum[static_cast<std::size_t>(t)] = sum; };
  put(DType::boolean, kWideSum<std::uint8_t>);
  put(DType::u8, kWideSum<std::uint8_t>), put(DType::i8, kWideSum<std::int8_t>);
  put(DType::u16, kWideSum<std::uint16_t>), put(DType::i16, kWideSum<std::int16_t>);
  put(DType::u32, kWideSum<std::uint32_t>), put(DType::i32, kWideSum<std::int32_t>);
}

}  // namespace fermata::eager::FERMATA_ISA
