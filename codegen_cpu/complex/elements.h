// Elements of strided operands walked together, one result after another.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>

#include "codegen_cpu/complex/complex_loops.h"
#include "codegen_cpu/eager/loop_nest.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"
#include "runtime/thread_pool.h"

namespace fermata {

/// Where the elements of `N` operands lie that belong to one element of the result: offsets that move on together.
template <std::size_t N> class Offsets {
 public:
  Offsets(std::span<const std::int64_t> sizes, const std::array<const std::int64_t*, N>& strides, std::int64_t first)
      : sizes_(sizes), strides_(strides), position_(sizes) {
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      position_[axis] = sizes[axis] == 0 ? 0 : first % sizes[axis];
      if (sizes[axis] != 0) first /= sizes[axis];
      for (std::size_t k = 0; k < N; ++k) at[k] += position_[axis] * strides_[k][axis];
    }
  }
  void next() {
    for (std::size_t axis = sizes_.size(); axis-- > 0;) {
      for (std::size_t k = 0; k < N; ++k) at[k] += strides_[k][axis];
      if (++position_[axis] < sizes_[axis]) return;
      for (std::size_t k = 0; k < N; ++k) at[k] -= position_[axis] * strides_[k][axis];
      position_[axis] = 0;
    }
  }
  std::array<std::int64_t, N> at{};

 private:
  std::span<const std::int64_t> sizes_;
  std::array<const std::int64_t*, N> strides_;
  Shape position_;
};

/// out[i] = f(elements of the operands at i), of the given types. `ns` is what one element costs.
template <class R, class... T, class F> void for_each_element(const CallArgs& args, double ns, F&& f) {
  const TensorView& out = args.outputs[0];
  constexpr std::size_t kCount = sizeof...(T);
  std::array<const std::int64_t*, kCount> strides;
  for (std::size_t k = 0; k < kCount; ++k) strides[k] = args.inputs[k].strides;
  auto* const to = static_cast<R*>(out.data);
  const auto in_order = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (is_dense({out.sizes, out.rank}, {strides[I], out.rank}) && ...);
  };
  if (in_order(std::index_sequence_for<T...>{})) {  // which the compiler makes vectors of, where it can
    return parallel_for(0, out.element_count(), ns, [&](std::int64_t begin, std::int64_t end) {
      const auto all = [&]<std::size_t... I>(std::index_sequence<I...>) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = f(static_cast<const T*>(args.inputs[I].data)[i]...);
      };
      all(std::index_sequence_for<T...>{});
    });
  }
  parallel_for(0, out.element_count(), ns, [&](std::int64_t begin, std::int64_t end) {
    Offsets<kCount> offsets({out.sizes, out.rank}, strides, begin);
    for (std::int64_t i = begin; i < end; ++i, offsets.next())
      to[i] = [&]<std::size_t... I>(std::index_sequence<I...>) {
        return f(static_cast<const T*>(args.inputs[I].data)[offsets.at[I]]...);
      }
    (std::index_sequence_for<T...>{});
  });
}

/// A loop over operands that are all c64, in any layout.
inline void run_complex_loop(const CallArgs& args, double ns, eager::InnerLoop loop) {
  constexpr std::array<DType, 3> kWanted{DType::c64, DType::c64, DType::c64};
  const TensorView& out = args.outputs[0];
  const auto bytes = static_cast<std::int64_t>(byte_size(out.dtype));
  const eager::LoopNest nest({out.sizes, out.rank}, args.inputs, kWanted);
  nest.for_each_piece(ns, nest.all_in_place(), [&](std::int64_t begin, std::int64_t count) {
    std::array<eager::LoopNest::Buffers, 2> buffers;
    std::array<const void*, 2> in;
    std::array<bool, 2> splat;
    for (unsigned k = 0; k < nest.operand_count(); ++k) {
      const auto piece = nest.piece(k, begin, count, buffers[k]);
      in[k] = piece.data, splat[k] = piece.splat;
    }
    loop(static_cast<std::byte*>(out.data) + begin * bytes, in.data(), splat.data(), count);
  });
}

}  // namespace fermata
