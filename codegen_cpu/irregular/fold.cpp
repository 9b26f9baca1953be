// fold: windows along an axis added up, each at its place.
//
// Threads split the lanes, which share no element: what has the same place along all other axes. Every element takes
// its terms in order of their place in the windows, so results do not depend on the number of threads.
#include <algorithm>
#include <type_traits>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/positions.h"
#include "ir/ops/convolution.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The windows [outer, windows, inner, size] of a tensor [outer, length, inner]. Steps are in elements of the axis.
struct Windows {
  explicit Windows(const CallArgs& args)
      : axis(static_cast<unsigned>(attributes_of<ops::Fold>(args).axis.value)),
        step(attributes_of<ops::Fold>(args).step.value),
        dilation(attributes_of<ops::Fold>(args).dilation.value),
        length(args.outputs[0].sizes[axis]),
        count(args.inputs[0].sizes[axis]),
        stride(args.inputs[0].strides[axis]),
        size(args.inputs[0].sizes[args.inputs[0].rank - 1u]),
        size_stride(args.inputs[0].strides[args.inputs[0].rank - 1u]),
        outer(offsets_of(args.inputs[0], 0, axis)),
        inner(offsets_of(args.inputs[0], axis + 1, args.inputs[0].rank - 1u)) {}

  std::int64_t lanes() const { return outer.size() * inner.size(); }

  const unsigned axis;
  const std::int64_t step, dilation, length, count, stride, size, size_stride;
  const Scratch<std::int64_t> outer, inner;
};

/// The lanes [from, to) of outer place o; `read` makes a number to add of an element.
template <class Sum, class Element, class Read> void add_windows(const Windows& w, const Element* in, Sum* out,
                                                                 std::int64_t o, std::int64_t from, std::int64_t to,
                                                                 Read read) {
  const std::int64_t row = w.inner.size();
  Sum* const whole = out + o * w.length * row;
  for (std::int64_t i = 0; i < w.length; ++i) std::fill(whole + i * row + from, whole + i * row + to, Sum{});
  for (std::int64_t k = 0; k < w.size; ++k) {
    const Element* const terms = in + w.outer[o] + k * w.size_stride;
    for (std::int64_t i = 0; i < w.count; ++i) {
      Sum* const sums = whole + (i * w.step + k * w.dilation) * row;
      for (std::int64_t j = from; j < to; ++j)
        sums[j] = static_cast<Sum>(sums[j] + read(terms[i * w.stride + w.inner[j]]));
    }
  }
}

template <class Sum, class Element, class Read> void fold(const Windows& w, const void* in, Sum* out, Read read) {
  const double per_lane = 0.5 * static_cast<double>(w.length) + 1.0 * static_cast<double>(w.count * w.size);
  parallel_for(0, w.lanes(), per_lane, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t o = begin / w.inner.size(), from = begin % w.inner.size();
      const std::int64_t to = std::min(from + end - begin, w.inner.size());
      add_windows(w, static_cast<const Element*>(in), out, o, from, to, read);
      begin += to - from;
    }
  });
}

/// Attributes [axis, step, dilation].
void fold_call(const CallArgs& args) {
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const std::int64_t count = out.element_count();
  if (count == 0) return;
  const Windows windows(args);
  if (in.dtype == DType::f16 || in.dtype == DType::bf16) {  // in f32, rounded once
    const Scratch<float> sums(count);
    if (in.dtype == DType::f16)
      fold<float, std::uint16_t>(windows, in.data, sums.data(), [](std::uint16_t b) { return widen_float16(b); });
    else
      fold<float, std::uint16_t>(windows, in.data, sums.data(), [](std::uint16_t b) { return widen_bfloat16(b); });
    return narrow(out.dtype, sums.data(), out.data, count);
  }
  visit_number(in.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      fold<T, T>(windows, in.data, static_cast<T*>(out.data), [](T x) { return x; });
    } else if constexpr (!std::is_same_v<T, bool>) {  // as unsigned, so that sums wrap
      using U = std::make_unsigned_t<T>;
      fold<U, U>(windows, in.data, static_cast<U*>(out.data), [](U x) { return x; });
    }
  });
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::fold, &fold_call); }

}  // namespace fermata
