// Discrete Fourier transforms as `call` kernels: lines along one axis of tensors in any strides.
//
// Lines are transformed in their own dtype. Those of f32 whose length is a power of two have loops of their own
// (fft_powers.h); fft_transform.h takes all others. A real line of even length is transformed as one of half the
// length, of its even and odd elements as real and imaginary parts (Sorensen et al., IEEE TASSP 35, 1987). Results do
// not depend on the number of threads, nor on the lines beside one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/library/fft_powers.h"
#include "codegen_cpu/library/fft_transform.h"
#include "dispatch/kernel_files.h"
#include "ir/op_traits.h"
#include "ir/ops/linalg.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

template <class T> class Call {
 public:
  explicit Call(const CallArgs& args)
      : op_(args.op),
        axis_(static_cast<unsigned>(axis_of(args.op, args.attributes))),
        inverse_(op_ == Op::irfft || (op_ == Op::fft && attributes_of<ops::Fft>(args).inverse.value)),
        n_(std::max(args.inputs[0].sizes[axis_], args.outputs[0].sizes[axis_])),
        halved_(op_ != Op::fft && n_ % 2 == 0),
        size_(halved_ ? n_ / 2 : n_),
        given_{args.inputs[0].sizes[axis_], op_ == Op::rfft ? 1 : 2},
        wanted_{args.outputs[0].sizes[axis_], op_ == Op::irfft ? 1 : 2},
        x_(static_cast<const T*>(args.inputs[0].data)),
        y_(static_cast<T*>(args.outputs[0].data)),
        from_(args.inputs[0], axis_),
        to_(args.outputs[0], axis_),
        kept_(kept_transform<T>(size_)) {}

  void run() const {
    if (!kept_->transform.is_long())
      run_lanes();
    else
      share_long_lines(to_.count(), line_ns(), [this](std::int64_t line) { run_line(line); });
  }

 private:
  struct Numbers {
    std::int64_t count, width;
  };

  double line_ns() const { return static_cast<double>(size_) * (1 + 0.2 * std::log2(static_cast<double>(size_))); }

  // ---- Short lines, as many at a time as a vector has lanes

  void run_lanes() const {
    const FftLanes<T>& lanes = fft_lanes<T>(to_.count());
    const std::int64_t groups = (to_.count() + lanes.lanes - 1) / lanes.lanes;
    parallel_for(0, groups, line_ns() * static_cast<double>(lanes.lanes), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t room = 2 * lanes.lanes * std::max(kept_->transform.room(), size_ + 1);
      const Scratch<T> scratch(2 * room);
      for (std::int64_t group = begin; group < end; ++group)
        run_group(lanes, group * lanes.lanes, scratch.data(), scratch.data() + room);
    });
  }
  void run_group(const FftLanes<T>& lanes, std::int64_t first_line, T* first, T* second) const {
    const std::int64_t lines = std::min(lanes.lanes, to_.count() - first_line);
    std::int64_t starts[kMostFftLanes], ends[kMostFftLanes];
    for (std::int64_t l = 0; l < lanes.lanes; ++l) {
      const std::int64_t line = first_line + std::min(l, lines - 1);
      starts[l] = from_[line], ends[l] = to_[line];
    }
    const LaneLines in{starts, from_.stride(), given_.count, given_.width, lines},
        out{ends, to_.stride(), wanted_.count, wanted_.width, lines};
    const T* const roots = kept_->roots.data();
    const std::int64_t row = halved_ ? 1 : 2;  // from one real number to the next
    if (op_ == Op::rfft) {
      if (!halved_) std::fill(first, first + 2 * n_ * lanes.lanes, T{0});
      lanes.load(x_, in, first, row);
    } else if (op_ == Op::irfft && halved_) {
      lanes.load(x_, in, second, 1);
      lanes.from_real(second, size_, roots, first);
    } else {
      lanes.load(x_, in, first, 1);
      if (op_ == Op::irfft) mirror(lanes.lanes, first);
    }
    T* const result = kept_->transform.run_lanes(lanes, first, second, inverse_);
    T* const other = result == first ? second : first;
    if (op_ == Op::rfft && halved_) {
      lanes.to_real(result, size_, roots, other);
      lanes.store(other, 1, y_, out);
    } else {
      lanes.store(result, op_ == Op::irfft ? row : 1, y_, out);
    }
  }
  /// Conjugates where the elements of a real line's transform are not given; `width` numbers of each part.
  void mirror(std::int64_t width, T* x) const {
    std::fill(x + width, x + 2 * width, T{0});
    for (std::int64_t k = 1; k < given_.count; ++k)
      for (std::int64_t i = 0; i < width; ++i) {
        const T *const from = x + 2 * width * k, *const imaginary = from + width;
        T* const to = x + 2 * width * (n_ - k);
        to[i] = from[i], to[width + i] = -imaginary[i];
      }
  }

  // ---- Long lines, one at a time

  void run_line(std::int64_t line) const {
    const T* const x = x_ + from_[line] * given_.width;
    T* const y = y_ + to_[line] * wanted_.width;
    const bool is_prepared = from_.stride() == 1 && (op_ == Op::fft || (op_ == Op::rfft && halved_)),
               is_result = to_.stride() == 1 && (op_ == Op::fft || (op_ == Op::irfft && halved_));
    const Scratch<T> prepared(is_prepared ? 0 : 2 * size_ + 2), result(is_result ? 0 : 2 * size_ + 2);
    if (!is_prepared) prepare(x, prepared.data());
    T* const z = is_result ? y : result.data();
    kept_->transform.run_line(is_prepared ? x : prepared.data(), z, inverse_);
    if (!is_result) finish(z, y);
  }
  /// Reads the line as pairs.
  void prepare(const T* x, T* z) const {
    const std::int64_t width = given_.width, step = op_ == Op::rfft && !halved_ ? 2 : width;
    const bool is_spectrum = op_ == Op::irfft && halved_;
    const Scratch<T> spectrum(is_spectrum && from_.stride() != 1 ? 2 * size_ + 2 : 0);
    T* const to = is_spectrum ? spectrum.data() : z;
    if (step != width) std::fill(z, z + 2 * size_, T{0});
    if (!is_spectrum || from_.stride() != 1)
      for (std::int64_t k = 0; k < given_.count; ++k)
        for (std::int64_t c = 0; c < width; ++c) to[k * step + c] = x[k * from_.stride() * width + c];
    if (is_spectrum)
      fft_lanes<T>().line_from_real(from_.stride() == 1 ? x : to, size_, kept_->roots.data(), z);
    else if (op_ == Op::irfft)
      mirror(1, z);
  }
  void finish(const T* z, T* y) const {
    const std::int64_t width = wanted_.width, step = op_ == Op::irfft && !halved_ ? 2 : width;
    const bool is_spectrum = op_ == Op::rfft && halved_;
    const Scratch<T> spectrum(is_spectrum && to_.stride() != 1 ? 2 * size_ + 2 : 0);
    T* const from = to_.stride() == 1 ? y : spectrum.data();
    if (is_spectrum) fft_lanes<T>().line_to_real(z, size_, kept_->roots.data(), from);
    if (is_spectrum && to_.stride() == 1) return;
    const T* const numbers = is_spectrum ? from : z;
    for (std::int64_t k = 0; k < wanted_.count; ++k)
      for (std::int64_t c = 0; c < width; ++c) y[k * to_.stride() * width + c] = numbers[k * step + c];
  }

  const Op op_;
  const unsigned axis_;
  const bool inverse_;
  const std::int64_t n_;
  const bool halved_;
  const std::int64_t size_;
  const Numbers given_, wanted_;  // in a line
  const T* const x_;
  T* const y_;
  const LineStarts from_, to_;
  const std::shared_ptr<const KeptTransform<T>> kept_;
};

void fft_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  if (byte_size(real_dtype(args.inputs[0].dtype)) == 8)
    Call<double>(args).run();
  else if (!transform_powers_of_two(args))
    Call<float>(args).run();
}

}  // namespace

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::fft, Op::rfft, Op::irfft})
    add_variant(op, BackendKey::cpu,
                {.name = "stages",
                 .form = KernelForm::library,
                 .dtypes = op == Op::rfft ? DTypeSet(DType::f32) | DType::f64 : kComplex,
                 .call = &fft_call,
                 .ships = Ships::with_math});
}

}  // namespace fermata
