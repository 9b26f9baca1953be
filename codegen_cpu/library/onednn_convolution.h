// One convolution, or one of its gradients, of a part of the images as a oneDNN primitive, kept per thread: what the
// oneDNN kernels of convolutions share. See onednn_product.h for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "codegen_cpu/library/convolution_problem.h"

namespace fermata::onednn {

using Dims = dnnl::memory::dims;

/// One operand of a part: sizes and strides as oneDNN has them, filters with an axis of groups.
struct Layout {
  Dims sizes, strides;
  bool operator==(const Layout&) const = default;
};
Layout layout_of(const TensorView& view);

struct ConvolutionKey {
  Op op;
  DType dtype;
  Layout x, weight, y;
  Dims strides, dilation, padding, padding_end;
  bool operator==(const ConvolutionKey&) const = default;
  std::size_t hash() const;
};

/// A memory object in the caller's layout, and one in the library's where that differs.
struct Side {
  dnnl::memory given, used;
  dnnl::reorder reorder;
  std::size_t bytes = 0;  // of `used`, 0 where both are one

  Side(const dnnl::memory::desc& as_given, const dnnl::memory::desc& as_used, bool is_result);
  const dnnl::memory& operand() const { return bytes == 0 ? given : used; }
  /// Sets where the elements are; gives the scratch memory behind what it takes.
  std::byte* place(const void* data, std::byte* scratch);
};

/// A primitive with everything an execution needs but the pointers. Used by one thread at a time. The convolution
/// itself computes on images whose channels lie innermost, however operands lie; gradients as the library likes.
class Convolution {
 public:
  explicit Convolution(const ConvolutionKey& key);
  /// `constant`: the buffer of weights that may be kept as the library likes them.
  void run(const void* x, const void* weight, const void* y, Storage* constant);

 private:
  template <class Description> void finish(const Description& d, const dnnl::memory::desc& x,
                                           const dnnl::memory::desc& used_x, const dnnl::memory::desc& weight,
                                           const dnnl::memory::desc& used_weight, const dnnl::memory::desc& y,
                                           const dnnl::memory::desc& used_y);
  StoragePtr kept_weights(const void* weight, Storage* constant);

  const ConvolutionKey key_;
  std::vector<std::int64_t> weight_numbers_;  // what decides the bytes of weights as the library likes them
  dnnl::primitive primitive_;
  std::vector<Side> sides_;  // x, weight, y
  dnnl::memory scratch_;
  std::size_t result_ = 0, scratch_bytes_ = 0;
  dnnl::stream stream_;
};

/// The thread's primitive for a key, made if need be; the least recently used one goes.
Convolution& convolution_for(const ConvolutionKey& key);

/// bf16 as it is only where the processor multiplies it; else, and for f16, in f32.
bool convolves_natively(DType dtype);

}  // namespace fermata::onednn
