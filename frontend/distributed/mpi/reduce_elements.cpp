// See reduce_elements.h. Loops over blocks that stay in the L1 cache, so that the result of two ranks is there when
// the others are added. Transfers from the caches of other ranks limit the speed, not arithmetic.
#include "frontend/distributed/mpi/reduce_elements.h"

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata::distributed {
namespace {

template <class T> using Wide = std::conditional_t<(std::is_integral_v<T>), std::uint64_t, T>;

struct Add {
  template <class T> static T of(T a, T b) { return static_cast<T>(Wide<T>(a) + Wide<T>(b)); }  // integers wrap
};
struct Multiply {
  template <class T> static T of(T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b)); }
};
/// A NaN of any rank is the result. `a != a` has no branch that would keep a loop from being vectorized.
struct Max {
  template <class T> static T of(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
};
struct Min {
  template <class T> static T of(T a, T b) { return ((a < b) | (a != a)) ? a : b; }
};

/// What is made of an element after the last source.
struct Keep {
  template <class T> static T of(T x, std::size_t) { return x; }
};
struct Divide {
  template <class T> static T of(T x, std::size_t ranks) { return x / static_cast<T>(ranks); }
};

template <class T, class Op, class Last>
void reduce_range(std::span<const void* const> sources, void* to, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 8192 / static_cast<std::int64_t>(sizeof(T));
  const auto source = [&](std::size_t r) { return static_cast<const T*>(sources[r]); };
  const std::size_t ranks = sources.size();
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    T* __restrict const result = static_cast<T*>(to) + at;
    const T* __restrict const a = source(0) + at;
    const T* __restrict const b = source(1) + at;
    if (ranks == 2) {
      for (std::int64_t i = 0; i < n; ++i) result[i] = Last::template of<T>(Op::template of<T>(a[i], b[i]), ranks);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i) result[i] = Op::template of<T>(a[i], b[i]);
    for (std::size_t r = 2; r < ranks; ++r) {
      const T* __restrict const c = source(r) + at;
      if (r + 1 < ranks)
        for (std::int64_t i = 0; i < n; ++i) result[i] = Op::template of<T>(result[i], c[i]);
      else
        for (std::int64_t i = 0; i < n; ++i)
          result[i] = Last::template of<T>(Op::template of<T>(result[i], c[i]), ranks);
    }
  }
}

template <class T, class Op, class Last = Keep>
void reduce_all(std::span<const void* const> sources, void* to, std::int64_t count) {
  if (sources.size() == 1) {
    std::memcpy(to, sources[0], static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  constexpr double kNsPerByte = 0.1;
  parallel_for(0, count, kNsPerByte * sizeof(T) * static_cast<double>(sources.size()),
               [&](std::int64_t b, std::int64_t e) { reduce_range<T, Op, Last>(sources, to, b, e); });
}

/// f.operator()<T>() with the type of the elements.
template <class F> void visit_numbers(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return f.template operator()<std::uint8_t>();
    case DType::u16: return f.template operator()<std::uint16_t>();
    case DType::u32: return f.template operator()<std::uint32_t>();
    case DType::u64: return f.template operator()<std::uint64_t>();
    case DType::i8: return f.template operator()<std::int8_t>();
    case DType::i16: return f.template operator()<std::int16_t>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    default: throw_internal("this dtype cannot be reduced");
  }
}

}  // namespace

void reduce_elements(DType dtype, CollectiveReduction how, std::span<const void* const> sources, void* to,
                     std::int64_t count) {
  const bool is_sum = how == CollectiveReduction::sum;
  if (how == CollectiveReduction::mean) {
    switch (dtype) {
      case DType::f32: return reduce_all<float, Add, Divide>(sources, to, count);
      case DType::f64: return reduce_all<double, Add, Divide>(sources, to, count);
      case DType::c64: return reduce_all<float, Add, Divide>(sources, to, 2 * count);
      case DType::c128: return reduce_all<double, Add, Divide>(sources, to, 2 * count);
      default: throw_internal("a mean of other than floating numbers");
    }
  }
  if (dtype == DType::c64 && is_sum) return reduce_all<float, Add>(sources, to, 2 * count);
  if (dtype == DType::c128 && is_sum) return reduce_all<double, Add>(sources, to, 2 * count);
  if (dtype == DType::c64) return reduce_all<std::complex<float>, Multiply>(sources, to, count);
  if (dtype == DType::c128) return reduce_all<std::complex<double>, Multiply>(sources, to, count);
  visit_numbers(dtype, [&]<class T>() {
    switch (how) {
      case CollectiveReduction::sum: return reduce_all<T, Add>(sources, to, count);
      case CollectiveReduction::prod: return reduce_all<T, Multiply>(sources, to, count);
      case CollectiveReduction::max: return reduce_all<T, Max>(sources, to, count);
      case CollectiveReduction::min: return reduce_all<T, Min>(sources, to, count);
      case CollectiveReduction::mean: break;
    }
    throw_internal("a mean of numbers of all dtypes");
  });
}

}  // namespace fermata::distributed
