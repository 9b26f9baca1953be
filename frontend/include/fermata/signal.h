// Signal processing: windows, short-time Fourier transforms and cosine transforms. fermata/fft.h has Fourier
// transforms.
#pragma once

#include <optional>

#include "fermata/fft.h"
#include "runtime/tensor.h"

namespace fermata {

// ---- Windows
//
// Windows [n] for a frame of n samples. `periodic` windows have period n, for spectra; others are symmetric, for
// filters. Sources: SciPy, scipy.signal.windows; PyTorch, torch.signal.windows.
// Errors   ValueError FM1414 unless n is 0 or more.

/// Raised cosines; 0 (Hann) and 0.08 (Hamming) at the ends.
Tensor hann_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                   Location where = Location::current());
Tensor hamming_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                      Location where = Location::current());
/// A sum of three cosines with the coefficients 0.42, 0.5 and 0.08.
Tensor blackman_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());
/// Triangular, 0 at the ends.
Tensor bartlett_window(std::int64_t n, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());
/// i0(beta sqrt(1 - t^2)) / i0(beta) for t from -1 to 1.
Tensor kaiser_window(std::int64_t n, double beta = 12, bool periodic = true, DType dtype = DType::f32,
                     Location where = Location::current());
/// exp(-(t / deviation)^2 / 2), with t in samples from the center.
Tensor gaussian_window(std::int64_t n, double deviation, bool periodic = true, DType dtype = DType::f32,
                       Location where = Location::current());

// ---- Short-time Fourier transforms

struct StftOptions {
  std::optional<std::int64_t> hop{};  // samples between frames; by default a quarter of the frame
  Tensor window{};                    // [m] with m <= frame, padded with zeros on both sides; by default ones
  bool center = true;                 // frame t is centered at sample t * hop; the ends are reflected
  bool normalized = false;            // scales by 1 / sqrt(frame)
};
/// Spectra of overlapping frames of a signal.
///
/// Shapes   x [..B, N] real, frames of `frame` samples -> [..B, frame / 2 + 1, T], complex.
/// Errors   ValueError FM1415 for a frame, hop or window that is out of range; DTypeError for complex numbers.
/// Source   PyTorch, torch.stft.
Tensor stft(const Tensor& x, std::int64_t frame, const StftOptions& options = {}, Location where = Location::current());
/// Inverse of stft: the least-squares estimate of D. W. Griffin and J. S. Lim (1984). `length` sets the number of
/// samples.
Tensor istft(const Tensor& spectra, std::int64_t frame, const StftOptions& options = {},
             std::optional<std::int64_t> length = {}, Location where = Location::current());

// ---- Cosine transforms

/// Discrete cosine transform of type 1 to 4 along an axis. Type 2 sums 2 x_j cos(pi k (2 j + 1) / (2 n)). Norm::ortho
/// makes it orthogonal; Norm::forward divides by 2 n (2 n - 2 for type 1).
///
/// Errors   ValueError FM1416 for any other type, or for fewer than two elements with type 1; DTypeError for complex
///          numbers.
/// Source   SciPy, scipy.fft.dct.
Tensor dct(const Tensor& x, int type = 2, std::int64_t axis = -1, fft::Norm norm = fft::Norm::backward,
           Location where = Location::current());
/// Inverse of dct with the same type and norm.
Tensor idct(const Tensor& x, int type = 2, std::int64_t axis = -1, fft::Norm norm = fft::Norm::backward,
            Location where = Location::current());

}  // namespace fermata
