// Signals: windows, short-time Fourier transforms, cosine transforms. See fermata/fft.h for the Fourier transforms.
#pragma once

#include <optional>

#include "fermata/fft.h"
#include "runtime/tensor.h"

namespace fermata {

// ---- Windows
//
// [n] numbers for a frame of n samples. `periodic` windows repeat after n samples, as spectra want them; others are
// symmetric, as filters want them. Sources: SciPy, scipy.signal.windows; PyTorch, torch.signal.windows.
// Errors   ValueError FM1414 unless n is 0 or more.

/// Raised cosines: 0 and 0.08 at the ends.
Tensor hann_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                   Location where = Location::current());
Tensor hamming_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                      Location where = Location::current());
/// Of three cosines, with the coefficients 0.42, 0.5 and 0.08.
Tensor blackman_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());
/// A triangle, 0 at the ends.
Tensor bartlett_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());
/// i0(beta sqrt(1 - t^2)) / i0(beta) for t from -1 to 1.
Tensor kaiser_window(std::int64_t n, double beta = 12, bool periodic = true, DType dtype = DType::f32,
                     Location where = Location::current());
/// exp(-(t / deviation)^2 / 2), t counted in samples from the middle.
Tensor gaussian_window(std::int64_t n, double deviation, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());

// ---- Short-time Fourier transforms

struct StftOptions {
  std::optional<std::int64_t> hop{};  // samples from frame to frame; by default a quarter of the frame
  Tensor window{};                    // [m], m at most the frame: padded with zeros on both sides; by default ones
  bool center = true;                 // frame t has sample t hop in its middle: the ends are reflected
  bool normalized = false;            // times the root of 1 / frame
};
/// Spectra of overlapping frames of a signal.
///
/// Shapes   x [..B, N] real, frames of `frame` samples -> [..B, frame / 2 + 1, T], complex.
/// Errors   ValueError FM1415 for a frame, hop or window that does not fit; DTypeError for complex numbers.
/// Source   PyTorch, torch.stft.
Tensor stft(const Tensor& x, std::int64_t frame, const StftOptions& options = {}, Location where = Location::current());
/// The signal that has these spectra: the least-squares estimate of D. W. Griffin and J. S. Lim (1984). With `length`
/// of so many samples.
Tensor istft(const Tensor& spectra, std::int64_t frame, const StftOptions& options = {},
             std::optional<std::int64_t> length = {}, Location where = Location::current());

// ---- Cosine transforms

/// The discrete cosine transform of a type 1 to 4 along an axis: for type 2 the sums of 2 x_j cos(pi k (2 j + 1) / (2
/// n)). With Norm::ortho it is orthogonal; Norm::forward divides by 2 n (2 n - 2 for type 1).
///
/// Errors   ValueError FM1416 for another type, or for fewer than two elements of type 1; DTypeError for complex
/// numbers. Source   SciPy, scipy.fft.dct.
Tensor dct(const Tensor& x, int type = 2, std::int64_t axis = -1, fft::Norm norm = fft::Norm::backward,
           Location where = Location::current());
/// The inverse of dct with the same type and norm.
Tensor idct(const Tensor& x, int type = 2, std::int64_t axis = -1, fft::Norm norm = fft::Norm::backward,
            Location where = Location::current());

}  // namespace fermata
