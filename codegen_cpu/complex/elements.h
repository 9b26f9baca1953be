// Iterates over the elements of strided operands together, one result at a time.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>

#include "codegen_cpu/complex/complex_loops.h"
#include "codegen_cpu/eager/eager.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"
#include "runtime/thread_pool.h"

namespace fermata {

/// The offsets of the elements of `N` operands for one element of the result, advanced together.
template <std::size_t N> class ElementOffsets {
 public:
  ElementOffsets(std::span<const std::int64_t> sizes, const std::array<const std::int64_t*, N>& strides,
                 std::int64_t first)
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

/// out[i] = f(elements of the operands at i), of the given types. `ns` is the cost of one element.
template <class R, class... T, class F> void for_each_element(const CallArgs& args, double ns, F&& f) {
  const TensorView& out = args.outputs[0];
  constexpr std::size_t kCount = sizeof...(T);
  std::array<const std::int64_t*, kCount> strides;
  for (std::size_t k = 0; k < kCount; ++k) strides[k] = args.inputs[k].strides;
  auto* const to = static_cast<R*>(out.data);
  const auto in_order = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (is_dense({out.sizes, out.rank}, {strides[I], out.rank}) && ...);
  };
  if (in_order(std::index_sequence_for<T...>{})) {  // which the compiler vectorizes if it can
    return parallel_for(0, out.element_count(), ns, [&](std::int64_t begin, std::int64_t end) {
      const auto all = [&]<std::size_t... I>(std::index_sequence<I...>) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = f(static_cast<const T*>(args.inputs[I].data)[i]...);
      };
      all(std::index_sequence_for<T...>{});
    });
  }
  parallel_for(0, out.element_count(), ns, [&](std::int64_t begin, std::int64_t end) {
    ElementOffsets<kCount> offsets({out.sizes, out.rank}, strides, begin);
    for (std::int64_t i = begin; i < end; ++i, offsets.next())
      to[i] = [&]<std::size_t... I>(std::index_sequence<I...>) {
        return f(static_cast<const T*>(args.inputs[I].data)[offsets.at[I]]...);
      }
    (std::index_sequence_for<T...>{});
  });
}

/// A loop over operands that are all c64, of any layout, in pieces within a row. An operand whose rows are not
/// contiguous is copied to a buffer, unless it is a single number.
template <std::size_t N> class ComplexLoopCall {
 public:
  ComplexLoopCall(const CallArgs& args, eager::InnerLoop loop)
      : args_(args), out_(args.outputs[0]), sizes_(out_.sizes, out_.rank), loop_(loop) {
    for (std::size_t k = 0; k < N; ++k) strides_[k] = args.inputs[k].strides;
    const bool one_row = out_.rank == 0 || has_one_row();
    row_ = std::max<std::int64_t>(1, one_row ? out_.element_count() : out_.sizes[out_.rank - 1u]);
    is_short_ = !one_row && row_ < kShortRow;
    for (std::size_t k = 0; k < N; ++k) steps_[k] = one_row ? !is_one(k) : strides_[k][out_.rank - 1u];
  }
  void run(double ns) const {
    parallel_for(0, out_.element_count(), ns, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t left = is_short_ ? kPiece : row_ - begin % row_;
        const std::int64_t count = std::min({kPiece, left, end - begin});
        run_piece(begin, count);
        begin += count;
      }
    });
  }

 private:
  using Number = std::complex<float>;
  static constexpr std::int64_t kPiece = 1024, kShortRow = 64;  // shorter rows share a piece

  bool is_one(std::size_t k) const {
    for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
      if (sizes_[axis] != 1 && strides_[k][axis] != 0) return false;
    return true;
  }
  /// Operands are dense or one number.
  bool has_one_row() const {
    for (std::size_t k = 0; k < N; ++k)
      if (!is_one(k) && !is_dense(sizes_, {strides_[k], sizes_.size()})) return false;
    return true;
  }
  void run_piece(std::int64_t begin, std::int64_t count) const {
    std::array<std::array<Number, kPiece>, N> buffers;
    const void* in[N];
    bool splat[N] = {};
    ElementOffsets<N> offsets(sizes_, strides_, begin);
    const std::array<std::int64_t, N> first = offsets.at;
    if (is_short_)
      for (std::int64_t i = 0; i < count; ++i, offsets.next())
        for (std::size_t k = 0; k < N; ++k)
          buffers[k].data()[i] = static_cast<const Number*>(args_.inputs[k].data)[offsets.at[k]];
    for (std::size_t k = 0; k < N; ++k) {
      in[k] = buffers[k].data();
      if (is_short_) continue;
      const Number* const from = static_cast<const Number*>(args_.inputs[k].data) + first[k];
      const std::int64_t stride = steps_[k];
      if (stride != 0 && stride != 1)
        for (std::int64_t i = 0; i < count; ++i) buffers[k].data()[i] = from[i * stride];
      else
        in[k] = from, splat[k] = stride == 0;
    }
    loop_(static_cast<std::byte*>(out_.data) + begin * static_cast<std::int64_t>(byte_size(out_.dtype)), in, splat,
          count);
  }

  const CallArgs& args_;
  const TensorView& out_;
  const std::span<const std::int64_t> sizes_;
  const eager::InnerLoop loop_;
  std::array<const std::int64_t*, N> strides_;
  std::array<std::int64_t, N> steps_{};  // within a row
  std::int64_t row_ = 1;
  bool is_short_ = false;
};

}  // namespace fermata
