// A convolution call taken apart, the same for the convolution and its two gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/convolution.h"
#include "runtime/function_ref.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// x [N, C, spatial ..], weight [O, C / groups, spatial ..], y [N, O, spatial ..]; one of them is the result, which is
/// dense: row-major, or y with its channels innermost (docs/adr/036-channels-innermost.md).
struct ConvolutionProblem {
  explicit ConvolutionProblem(const CallArgs& args);

  Op op;
  DType dtype;
  ConvolutionAttributes attributes;
  TensorView x, weight, y;

  std::int64_t images() const { return x.sizes[0]; }
  std::int64_t groups() const { return attributes.groups; }
  std::int64_t channels() const { return weight.sizes[1]; }                     // of a group
  std::int64_t filters() const { return weight.sizes[0] / attributes.groups; }  // of a group
  std::int64_t window() const { return spatial(weight); }
  std::int64_t places() const { return spatial(y); }
  const TensorView& result() const;
  bool is_empty() const { return x.element_count() == 0 || weight.element_count() == 0 || y.element_count() == 0; }
  double multiply_adds() const;

 private:
  static std::int64_t spatial(const TensorView& view);
};

/// Zeros the result: there is nothing to add up.
void fill_zero(const ConvolutionProblem& problem);

/// Runs an epilogue, if there is one, on planes [first, first + count) of a result [N, C, spatial ..], counted over
/// images and channels.
void run_on_planes(const Epilogue* epilogue, const TensorView& result, std::int64_t first, std::int64_t count);

/// Whether the channels of a result lie innermost. Strides of axes of one element tell, too, so that an epilogue meets
/// the loops that it was made for.
bool has_channels_last(const TensorView& result);
/// Some rows of some channels of a result [N, C, rows, ..].
struct ResultRows {
  std::int64_t image, images, channel, channels, row, rows;
  const std::byte* data = nullptr;  // where they lie, all channels of each place, if not in the result; of one image
};
/// Runs an epilogue on them where channels lie innermost; the first one is a multiple of 64.
void run_on_rows(const Epilogue& epilogue, const TensorView& result, const ResultRows& rows);

/// Calls `run` with a result whose channels lie innermost and the epilogue that it runs: with the call's own, or with
/// one beside it, which is then copied and followed by the epilogue plane by plane.
void run_channels_last(const CallArgs& args, FunctionRef<void(const TensorView& result, Epilogue* epilogue)> run);

/// Images are worked through in parts of equal size, about as many as keep every processor busy.
struct ImageParts {
  explicit ImageParts(std::int64_t images);
  std::int64_t size, count;
};

/// Calls `run` with the problem in f32, of which the result is rounded to f16 or bf16 afterwards.
void run_widened(const CallArgs& args, FunctionRef<void(const CallArgs&)> run);

/// Adds `parts` results of `count` numbers each up, in order.
template <class T> void add_parts(const T* parts, std::int64_t number, std::int64_t count, T* out);

}  // namespace fermata
