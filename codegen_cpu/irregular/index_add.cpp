// index_add: rows added to x at given positions, in order of positions for every element (rows_by_target.h).
#include <type_traits>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/rows_by_target.h"

namespace fermata {
namespace {

/// In units of elements; `source` is dense: [outer, positions, inner]. Integers are added as unsigned, so they wrap.
template <class T> struct Sums {
  static constexpr std::int64_t kLine = 64 / sizeof(T);
  GatherShape shape;
  const std::int64_t* positions;
  T* out;
  const T* source;

  /// kWidth: the elements of a row where it is known to be short, so that the loop over it is no loop; or 0.
  template <int kWidth>
  void add(std::int64_t outer, std::int64_t i, std::int64_t ahead, std::int64_t begin, std::int64_t end) const {
    T* const to = out + (outer * shape.size + positions[i]) * shape.inner;
    const T* const from = source + (outer * shape.positions + i) * shape.inner;
    if (ahead >= 0) {  // rows lie anywhere
      const T* const next = out + (outer * shape.size + positions[ahead]) * shape.inner;
      if constexpr (kWidth != 0)
        __builtin_prefetch(next, 1);
      else
        for (std::int64_t j = begin; j < end; j += kLine) __builtin_prefetch(next + j, 1);
    }
    if constexpr (kWidth != 0) {
      T sums[kWidth];
      for (int j = 0; j < kWidth; ++j) sums[j] = static_cast<T>(to[j] + from[j]);
      for (int j = 0; j < kWidth; ++j) to[j] = sums[j];
    } else {
      for (std::int64_t j = begin; j < end; ++j) to[j] = static_cast<T>(to[j] + from[j]);
    }
  }
  template <int kWidth> void run_with() const {
    for_rows_by_target({.outer = shape.outer,
                        .size = shape.size,
                        .inner = shape.inner,
                        .count = shape.positions,
                        .positions = positions,
                        .shared = true,
                        .element_bytes = sizeof(T)},
                       0.3, [this](std::int64_t o, std::int64_t i, std::int64_t ahead, std::int64_t b, std::int64_t e) {
                         add<kWidth>(o, i, ahead, b, e);
                       });
  }
  void run() const {  // rows this short are never split
    switch (shape.inner) {
      case 1: return run_with<1>();
      case 2: return run_with<2>();
      case 3: return run_with<3>();
      case 4: return run_with<4>();
      case 8: return run_with<8>();
      case 16: return run_with<16>();
      default: return run_with<0>();
    }
  }
};

template <class T> void index_add(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const DenseElements from(source);
  if (out.data != x.data) copy_elements(out, x);
  Sums<T>{gather_shape(args), positions, static_cast<T*>(out.data), static_cast<const T*>(from.data())}.run();
}

/// Sums in a separate f32 buffer, rounded once at the end.
void index_add_half(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const Scratch<float> sums = widened_elements(x), wide_source = widened_elements(source);
  Sums<float>{gather_shape(args), positions, sums.data(), wide_source.data()}.run();
  narrow(x.dtype, sums.data(), out.data, sums.size());
}

/// Attributes [axis]. Elements that meet are added in order of their positions; f16 and bf16 are added in f32 and
/// rounded once. Positions as in take.
void index_add_call(const CallArgs& args) {
  const Positions positions = positions_of(args);
  if (args.inputs[0].element_count() == 0) return;
  const DType dtype = args.inputs[0].dtype;
  if (is_floating(dtype) && byte_size(dtype) == 2) return index_add_half(args, positions.data());
  visit_number(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      index_add<typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type>(
          args, positions.data());
  });
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::index_add, &index_add_call); }

}  // namespace fermata
