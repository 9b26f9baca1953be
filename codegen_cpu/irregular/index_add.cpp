// index_add: rows added to x at given positions, in order of positions for every element (rows_by_target.h).
#include <type_traits>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/added_rows.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/rows_by_target.h"

namespace fermata {
namespace {

const AddRowsTable& add_rows_table() {
  static const AddRowsTable& best = FERMATA_TABLE(kAddRows);
  return best;
}

template <class T> struct Sums : AddedRows<T> {
  std::int64_t outer;

  /// kWidth: the elements of a row where it is known to be short, so that the loop over it is no loop; or 0.
  template <int kWidth>
  void add(std::int64_t o, std::int64_t i, std::int64_t ahead, std::int64_t begin, std::int64_t end) const {
    T* const to = this->out + (o * this->size + this->positions[i]) * this->inner;
    const T* const from = this->source + (o * this->count + i) * this->inner;
    if (ahead >= 0)  // rows lie anywhere
      __builtin_prefetch(this->out + (o * this->size + this->positions[ahead]) * this->inner + begin, 1);
    if constexpr (kWidth != 0) {
      T sums[kWidth];
      for (int j = 0; j < kWidth; ++j) sums[j] = static_cast<T>(to[j] + from[j]);
      for (int j = 0; j < kWidth; ++j) to[j] = sums[j];
    } else {
      for (std::int64_t j = begin; j < end; ++j) to[j] = static_cast<T>(to[j] + from[j]);
    }
  }
  TargetRows rows() const {
    return {.outer = outer,
            .size = this->size,
            .inner = this->inner,
            .count = this->count,
            .positions = this->positions,
            .shared = true,
            .element_bytes = sizeof(T)};
  }
  template <int kWidth> void run_with() const {
    for_rows_by_target(rows(), kNsPerElement,
                       [this](std::int64_t o, std::int64_t i, std::int64_t ahead, std::int64_t begin,
                              std::int64_t end) { add<kWidth>(o, i, ahead, begin, end); });
  }
  void run() const {  // rows this short are never split
    if (this->inner == 1) return run_with<1>();
    if constexpr (kHasVectors) {
      switch (this->inner) {
        case 2: return run_with<2>();
        case 3: return run_with<3>();
        case 4: return run_with<4>();
        default: break;
      }
      const auto add_rows = static_cast<const AddRows<T>&>(add_rows_table()).add;
      for_ranges_by_target(rows(), kNsPerElement, [&](const TargetRange& range) { add_rows(*this, range); });
    } else {
      run_with<0>();
    }
  }
  static constexpr bool kHasVectors = std::is_base_of_v<AddRows<T>, AddRowsTable>;
  static constexpr double kNsPerElement = kHasVectors ? 0.015 * sizeof(T) : 0.3;
};

template <class T> void add_all(const GatherShape& shape, const std::int64_t* positions, T* out, const T* source) {
  Sums<T>{{out, source, positions, shape.size, shape.positions, shape.inner}, shape.outer}.run();
}

template <class T> void index_add(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const DenseElements from(source);
  if (out.data != x.data) copy_elements(out, x);
  add_all(gather_shape(args), positions, static_cast<T*>(out.data), static_cast<const T*>(from.data()));
}

/// Sums in a separate f32 buffer, rounded once at the end.
void index_add_half(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const Scratch<float> sums = widened_elements(x), wide_source = widened_elements(source);
  add_all<float>(gather_shape(args), positions, sums.data(), wide_source.data());
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
