// Convolutions and their gradients as `call` kernels: oneDNN, and our own by way of matrix products and of AMX tiles.
//
// Operands have any strides. How the work is cut depends on sizes only, never on the number of threads, so neither do
// the bits; sums over images are added up in order. f16 and bf16 accumulate in f32 and are rounded once.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// oneDNN: f32, f16 and bf16; one primitive for some images at a time, single-threaded inside our pool.
void convolution_onednn(const CallArgs& args);
bool convolution_onednn_fits(const CallArgs& args);
double convolution_onednn_cost(const CallArgs& args);
inline constexpr const char* kConvolutionOnednnFits =
    "f32, f16 or bf16, up to three spatial axes, no empty axis, and no window without an element of the image";

/// Our own by AMX tiles: f32, one or two spatial axes, windows that move by one place; not the weight gradient.
void convolution_amx(const CallArgs& args);
bool convolution_amx_fits(const CallArgs& args);
double convolution_amx_cost(const CallArgs& args);
inline constexpr const char* kConvolutionAmxFits =
    "f32, one or two spatial axes, strides of 1, adjacent columns, no empty axis, and padding below the windows' reach in the gradient";

/// Our own for filters that each read one channel, a plane at a time: f32 and f64.
void convolution_depthwise(const CallArgs& args);
bool convolution_depthwise_fits(const CallArgs& args);
double convolution_depthwise_cost(const CallArgs& args);
inline constexpr const char* kConvolutionDepthwiseFits =
    "one channel in each group, one or two spatial axes, adjacent columns or channels, no empty axis; in the gradient one filter in each group and strides of 1";

/// The same for bf16, summed in f32: one filter for each channel, not the gradients.
void convolution_depthwise_bf16(const CallArgs& args);
bool convolution_depthwise_bf16_fits(const CallArgs& args);
double convolution_depthwise_bf16_cost(const CallArgs& args);
inline constexpr const char* kConvolutionDepthwiseBf16Fits =
    "one channel and one filter in each group, one or two spatial axes, no empty axis";

/// Our own by Winograd's algorithm: f32, filters of 3x3 that move by one place.
void convolution_winograd(const CallArgs& args);
bool convolution_winograd_fits(const CallArgs& args);
double convolution_winograd_cost(const CallArgs& args);
inline constexpr const char* kConvolutionWinogradFits =
    "f32, filters of 3x3, strides and dilations of 1, one group, at least 16 channels and 16 filters, no empty axis";

/// Our own products of matrices, for windows of one element: f32, and bf16 by AMX tiles.
void convolution_product(const CallArgs& args);
bool convolution_product_fits(const CallArgs& args);
double convolution_product_cost(const CallArgs& args);
inline constexpr const char* kConvolutionProductFits =
    "f32, or bf16 with AMX, windows of one element, no padding, one group, at least 16 channels and 16 filters, no empty axis; in the gradient strides of 1";

/// Our own by pairs of bf16 (bf16_pairs.h): not the weight gradient.
void convolution_bf16_pairs(const CallArgs& args);
bool convolution_bf16_pairs_fits(const CallArgs& args);
double convolution_bf16_pairs_cost(const CallArgs& args);
inline constexpr const char* kConvolutionBf16PairsFits =
    "up to three spatial axes, no empty axis, at least 8 filters, an even number of channels in each of several groups; in the gradient strides of 1 and padding below the windows' reach";

/// Our own: windows as columns of a matrix, which the filters are multiplied with. Every floating dtype.
void convolution_portable(const CallArgs& args);
double convolution_portable_cost(const CallArgs& args);

}  // namespace fermata
