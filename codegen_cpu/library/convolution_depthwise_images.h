// Depthwise convolutions of images whose channels lie innermost: see convolution_depthwise.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/transpose.h"
#include "codegen_cpu/library/convolution_depthwise_kernels.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "ir/channels_last.h"
#include "runtime/thread_pool.h"

namespace fermata {

/// Of vectors that channels fill.
template <class E> DepthwiseRow<E> depthwise_row(std::int64_t channels) {
  const auto of = [](const DepthwiseKernels& kernels) {
    if constexpr (std::is_same_v<E, float>)
      return kernels.row_f32;
    else
      return kernels.row_bf16;
  };
#if defined(__x86_64__)
  if (eager::instruction_set() == "avx512" && channels >= 16) return of(kDepthwiseAvx512);
  if (eager::instruction_set() != "baseline" && channels >= 8) return of(kDepthwiseAvx2);
#else
  static_cast<void>(channels);
#endif
  return of(kDepthwiseBaseline);
}

/// Of an element of the result.
inline double depthwise_ns(std::int64_t taps) {
  return eager::instruction_set() == "avx512" ? 0.1 + 0.012 * static_cast<double>(taps)
                                              : 0.15 + 0.02 * static_cast<double>(taps);
}

inline bool has_adjacent_channels(const TensorView& view) {
  return is_channels_last({view.sizes, view.rank}, {view.strides, view.rank});
}

/// The filters of f32, dense.
template <class E> class FilterElements {
 public:
  explicit FilterElements(const TensorView& weight) : wide_(widened_elements(weight)) {}
  const float* data() const { return wide_.data(); }

 private:
  const Scratch<float> wide_;
};
template <> class FilterElements<float> {
 public:
  explicit FilterElements(const TensorView& weight) : dense_(weight) {}
  const float* data() const { return static_cast<const float*>(dense_.data()); }

 private:
  const DenseElements dense_;
};

/// Images whose channels lie innermost, row by row.
template <class E> class DepthwiseImages {
 public:
  DepthwiseImages(const ConvolutionProblem& problem, const Epilogue* epilogue)
      : p_(problem),
        epilogue_(epilogue),
        channels_(p_.x.sizes[1]),
        copied_(has_adjacent_channels(p_.x) ? 0 : p_.x.element_count()),
        taps_((p_.window() + 1) * channels_) {
    const unsigned axes = p_.x.rank - 2u;
    for (unsigned i = 0; i < axes; ++i) {
      const unsigned at = 2 - axes + i;
      shape_.window[at] = p_.weight.sizes[i + 2], shape_.dilation[at] = p_.attributes.dilation[i];
      shape_.step[at] = p_.attributes.strides[i], shape_.padding[at] = p_.attributes.padding[i];
    }
    shape_.from = static_cast<const E*>(p_.x.data);
    if (copied_.size() != 0) {
      const Shape strides = channels_last_strides({p_.x.sizes, p_.x.rank});
      TensorView to = p_.x;
      to.data = copied_.data(), to.strides = strides.data();
      copy_elements(to, p_.x);
      shape_.from = copied_.data();
    }
    const FilterElements<E> weight(p_.weight);
    transpose_kernels().of_bytes[sizeof(float)]({.to = taps_.data(),
                                                 .from = weight.data(),
                                                 .to_line = channels_,
                                                 .from_line = p_.window(),
                                                 .lines = p_.window(),
                                                 .columns = channels_,
                                                 .streams = false});
    float* const zeros = taps_.data() + p_.window() * channels_;  // whose bits are zeros of any dtype
    std::fill_n(zeros, channels_, 0.0f);
    shape_.taps = taps_.data(), shape_.zeros = reinterpret_cast<const E*>(zeros);
    shape_.height = axes == 2 ? p_.x.sizes[2] : 1, shape_.width = p_.x.sizes[axes + 1];
    shape_.channels = channels_, shape_.columns = p_.y.sizes[axes + 1];
  }

  void run() const {
    const DepthwiseRow<E> run_row = depthwise_row<E>(channels_);
    const std::int64_t rows = p_.x.rank == 4 ? p_.y.sizes[2] : 1, row = shape_.columns * channels_;
    // What an epilogue takes over is still in the first cache, or nearly so.
    const std::int64_t together = std::max<std::int64_t>(1, (24 << 10) / (static_cast<std::int64_t>(sizeof(E)) * row));
    parallel_for(0, p_.images() * rows, static_cast<double>(row) * depthwise_ns(p_.window()),
                 [&](std::int64_t begin, std::int64_t end) {
                   const Scratch<const E*> room(p_.window() * kDepthwisePlaces);
                   const bool is_elsewhere = epilogue_ != nullptr && epilogue_->takes_tiles_elsewhere;
                   const Scratch<E> tile(is_elsewhere ? together * row : 0);
                   for (std::int64_t first = begin; first < end; first += together) {
                     const std::int64_t last = std::min(first + together, end);
                     for (std::int64_t i = first; i < last; ++i) {
                       DepthwiseImage<E> one = image(i / rows, rows);
                       if (is_elsewhere) one.to = tile.data() + (i - first - i % rows) * row;
                       run_row(one, i % rows, room.data());
                     }
                     if (epilogue_ != nullptr)
                       epilogue_->on_tile({first * shape_.columns, last * shape_.columns, 0, channels_,
                                           is_elsewhere ? reinterpret_cast<const std::byte*>(tile.data()) : nullptr});
                   }
                 });
  }

 private:
  DepthwiseImage<E> image(std::int64_t number, std::int64_t rows) const {
    DepthwiseImage<E> one = shape_;
    one.from += number * shape_.height * shape_.width * channels_;
    one.to = static_cast<E*>(p_.y.data) + number * rows * shape_.columns * channels_;
    return one;
  }

  const ConvolutionProblem& p_;
  const Epilogue* const epilogue_;
  const std::int64_t channels_;
  const Scratch<E> copied_;
  const Scratch<float> taps_;
  DepthwiseImage<E> shape_{nullptr, 1, 1, 1, nullptr, 1, nullptr, nullptr, {1, 1}, {1, 1}, {1, 1}, {0, 0}};
};

}  // namespace fermata
