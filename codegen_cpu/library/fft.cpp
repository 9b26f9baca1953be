// Discrete Fourier transforms as `call` kernels: lines along one axis of tensors in any strides.
//
// Lines of f32 whose length is a power of two are transformed in f32 (fft_powers.h), all others in f64 whatever their
// dtype, by the header-only kissfft where their length has small factors only, and else as a convolution (Bluestein,
// 1970). Results do not depend on the number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <vector>

#include "codegen_cpu/library/fft_powers.h"
#include "dispatch/kernel_files.h"
#include "ir/error.h"

#ifdef FERMATA_KISSFFT_FOUND
#include <kissfft.hh>

#include "ir/fork.h"
#include "ir/op_traits.h"
#include "ir/ops/linalg.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"
#endif

namespace fermata {

#ifdef FERMATA_KISSFFT_FOUND
namespace {

using Number = std::complex<double>;

/// A factor beyond this is the length of a sum for every result.
constexpr std::int64_t kLargestFactor = 31;

bool has_small_factors(std::int64_t n) {
  for (std::int64_t p = 2; p <= kLargestFactor; ++p)
    while (n % p == 0) n /= p;
  return n == 1;
}

/// Transforms of one length and direction; shared by threads, which each bring their buffers.
class Transform {
 public:
  Transform(std::int64_t n, bool inverse)
      : n_(static_cast<std::size_t>(n)), plain_(n == 1 ? nullptr : make_plain(n, inverse)) {
    if (n > 1 && plain_ == nullptr) prepare_convolution(inverse);
  }
  /// `work` is scratch memory.
  void run(const Number* from, Number* to, std::vector<Number>& work) const {
    if (n_ == 1)
      *to = *from;
    else if (plain_ != nullptr)
      plain_->transform(from, to);
    else
      convolve(from, to, work);
  }

 private:
  static std::unique_ptr<const kissfft<double>> make_plain(std::int64_t n, bool inverse) {
    if (!has_small_factors(n)) return nullptr;
    return std::make_unique<const kissfft<double>>(static_cast<std::size_t>(n), inverse);
  }

  /// With jk = (j^2 + k^2 - (k - j)^2) / 2 a transform is a convolution with a chirp.
  void prepare_convolution(bool inverse) {
    length_ = std::bit_ceil(2 * n_ - 1);
    forward_ = std::make_unique<const kissfft<double>>(length_, false);
    backward_ = std::make_unique<const kissfft<double>>(length_, true);
    chirp_.resize(n_);
    for (std::size_t k = 0; k < n_; ++k) {
      const std::size_t square = k * k % (2 * n_);  // the angle without its whole turns
      const double angle = std::numbers::pi * static_cast<double>(square) / static_cast<double>(n_);
      chirp_[k] = std::polar(1.0, inverse ? angle : -angle);
    }
    std::vector<Number> filter(length_);
    for (std::size_t k = 0; k < n_; ++k) filter[k] = filter[(length_ - k) % length_] = std::conj(chirp_[k]);
    spectrum_.resize(length_);
    forward_->transform(filter.data(), spectrum_.data());
    for (Number& z : spectrum_) z /= static_cast<double>(length_);
  }
  void convolve(const Number* from, Number* to, std::vector<Number>& work) const {
    work.assign(2 * length_, Number(0));
    Number *const padded = work.data(), *const turned = padded + length_;
    for (std::size_t k = 0; k < n_; ++k) padded[k] = from[k] * chirp_[k];
    forward_->transform(padded, turned);
    for (std::size_t k = 0; k < length_; ++k) turned[k] *= spectrum_[k];
    backward_->transform(turned, padded);
    for (std::size_t k = 0; k < n_; ++k) to[k] = padded[k] * chirp_[k];
  }

  std::size_t n_, length_ = 0;
  std::unique_ptr<const kissfft<double>> plain_, forward_, backward_;
  std::vector<Number> chirp_, spectrum_;
};

/// The transforms used last: their tables cost as much as several lines.
std::shared_ptr<const Transform> transform_of(std::int64_t n, bool inverse) {
  constexpr std::size_t kKept = 32;
  static ForkSafeMutex mutex;
  static std::map<std::pair<std::int64_t, bool>, std::shared_ptr<const Transform>> kept;
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find({n, inverse}); found != kept.end()) return found->second;
  if (kept.size() >= kKept) kept.clear();
  return kept[{n, inverse}] = std::make_shared<const Transform>(n, inverse);
}

/// All axes but the one that is transformed, and the offset of each line.
struct Lines {
  Lines(const TensorView& view, unsigned axis) : stride(view.strides[axis]), size(view.sizes[axis]) {
    for (unsigned i = 0; i < view.rank; ++i)
      if (i != axis) sizes.push_back(view.sizes[i]), strides.push_back(view.strides[i]);
  }
  std::int64_t offset(std::int64_t line) const {
    std::int64_t at = 0;
    for (unsigned i = sizes.rank(); i-- > 0;) {
      at += line % sizes[i] * strides[i];
      line /= sizes[i];
    }
    return at;
  }
  Shape sizes, strides;
  std::int64_t stride, size;
};

/// T: f32 or f64. `From` and `To` are complex, or real for the real side of a real transform.
template <class From, class To> void transform_lines(const CallArgs& args) {
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  const bool to_real = std::is_floating_point_v<To>,
             inverse = to_real || (args.op == Op::fft && attributes_of<ops::Fft>(args).inverse.value);
  const Lines in(args.inputs[0], axis), out(args.outputs[0], axis);
  const std::int64_t n = to_real ? out.size : in.size;
  const std::shared_ptr<const Transform> transform = transform_of(n, inverse);
  const auto* const x = static_cast<const From*>(args.inputs[0].data);
  auto* const y = static_cast<To*>(args.outputs[0].data);
  const double cost = static_cast<double>(n) * 3 * (2 + std::log2(static_cast<double>(n)));
  parallel_for(0, element_count(in.sizes), cost, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Number> line(static_cast<std::size_t>(n)), result(line.size()), work;
    for (std::int64_t i = begin; i < end; ++i) {
      const From* const from = x + in.offset(i);
      for (std::int64_t k = 0; k < n; ++k) {
        const auto at = static_cast<std::size_t>(k);
        if constexpr (std::is_floating_point_v<From>)
          line[at] = static_cast<double>(from[k * in.stride]);
        else if (k < in.size)
          line[at] = Number(from[k * in.stride]);
        else
          line[at] = std::conj(Number(from[(n - k) * in.stride]));
      }
      if (to_real) {  // a real line: the ends stand for themselves
        line[0] = line[0].real();
        if (n % 2 == 0) line[static_cast<std::size_t>(n / 2)] = line[static_cast<std::size_t>(n / 2)].real();
      }
      transform->run(line.data(), result.data(), work);
      To* const to = y + out.offset(i);
      for (std::int64_t k = 0; k < out.size; ++k) {
        const Number z = result[static_cast<std::size_t>(k)];
        if constexpr (std::is_floating_point_v<To>)
          to[k * out.stride] = static_cast<To>(z.real());
        else
          to[k * out.stride] =
              To(static_cast<typename To::value_type>(z.real()), static_cast<typename To::value_type>(z.imag()));
      }
    }
  });
}

constexpr const char* kVariant = "kissfft";

void fft_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  const bool wide = byte_size(real_dtype(args.inputs[0].dtype)) == 8;
  if (!wide && transform_powers_of_two(args)) return;
  const auto run = [&]<class T>() {
    if (args.op == Op::rfft)
      transform_lines<T, std::complex<T>>(args);
    else if (args.op == Op::irfft)
      transform_lines<std::complex<T>, T>(args);
    else
      transform_lines<std::complex<T>, std::complex<T>>(args);
  };
  if (wide)
    run.template operator()<double>();
  else
    run.template operator()<float>();
}

}  // namespace

#else
namespace {

constexpr const char* kVariant = "missing";

void fft_call(const CallArgs& args) {
  throw UnsupportedError(2071, format_error(2071, "UnsupportedError",
                                            fmt::format("{}: this build has no Fourier transforms", name(args.op)), {},
                                            args.where, "install libkissfft-dev, and build again"));
}

}  // namespace
#endif

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::fft, Op::rfft, Op::irfft})
    add_variant(op, BackendKey::cpu,
                {.name = kVariant,
                 .form = KernelForm::library,
                 .dtypes = op == Op::rfft ? DTypeSet(DType::f32) | DType::f64 : kComplex,
                 .call = &fft_call});
}

}  // namespace fermata
