// See fermata/quantized.h and quantized_tensor.h: making quantized tensors and taking them apart.
#include "fermata/quantized.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/print.h"
#include "fermata/reductions.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/layouts/quantized_tensor.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata {
namespace {

struct ByteRange {
  std::int64_t low, high, middle;
};
ByteRange range_of(DType dtype) { return dtype == DType::qi8 ? ByteRange{-128, 127, 0} : ByteRange{0, 255, 128}; }

void require_quantized_dtype(std::string_view function, const Tensor& x, DType dtype, Location where) {
  if (is_quantized(dtype)) return;
  throw DTypeError(1150, format_error(1150, "DTypeError",
                                      fmt::format("{}: the result must be qi8 or qu8, not {}", function, name(dtype)),
                                      describe(x), where));
}

[[noreturn]] void throw_value(std::string_view function, const std::string& what, const Tensor& x, Location where) {
  throw ValueError(1350, format_error(1350, "ValueError", fmt::format("{}: {}", function, what), describe(x), where));
}

/// Scale and zero point as the tensors that a payload holds; checks what can be checked without reading.
class Numbers {
 public:
  Numbers(std::string_view function, const Tensor& x, DType dtype, std::optional<std::int64_t> axis, Location where)
      : function_(function), x_(x), dtype_(dtype), where_(where) {
    if (axis) axis_ = normalize_axis(function, *axis, type_of(x), where);
  }

  Quantization take(const Operand& scale, const Operand& zero_point) {
    return {scale_tensor(scale), zero_tensor(zero_point), axis_};
  }
  bool centered() const { return centered_; }

 private:
  Tensor scale_tensor(const Operand& scale) {
    if (scale.is_tensor()) {
      require_defined(function_, scale.tensor(), where_);
      if (!is_floating(scale.tensor().dtype())) refuse("scale", scale.tensor(), "floating");
      return shaped("scale", astype(scale.tensor(), DType::f32, where_));
    }
    const double value = scale.scalar().as_double();
    if (!(value > 0) || !std::isfinite(static_cast<float>(value)) || static_cast<float>(value) == 0)
      throw_value(function_, fmt::format("a scale must be positive and finite, not {}", value), x_, where_);
    return shaped("scale", tensor(value, DType::f32, where_));
  }
  Tensor zero_tensor(const Operand& zero) {
    if (zero.is_tensor()) {
      require_defined(function_, zero.tensor(), where_);
      if (!is_integer(zero.tensor().dtype())) refuse("zero_point", zero.tensor(), "an integer");
      return shaped("zero_point", astype(zero.tensor(), DType::i32, where_));
    }
    const ByteRange range = range_of(dtype_);
    const double value = zero.scalar().as_double();
    if (value != std::rint(value) || value < static_cast<double>(range.low) || value > static_cast<double>(range.high))
      throw_value(
          function_,
          fmt::format("a zero point of {} must be {} to {}, not {}", name(dtype_), range.low, range.high, value), x_,
          where_);
    centered_ = value == static_cast<double>(range.middle);
    return shaped("zero_point", tensor(static_cast<std::int64_t>(value), DType::i32, where_));
  }
  Tensor shaped(std::string_view label, const Tensor& numbers) {
    const Shape wanted = axis_ ? Shape{x_.size(*axis_)} : Shape{};
    if (numbers.shape() == wanted) return numbers;
    if (numbers.rank() == 0) return broadcast_to(numbers, wanted, where_);
    throw ShapeError(
        1050, format_error(1050, "ShapeError", fmt::format("{}: the shape of {} does not match", function_, label),
                           {{"x", to_string(x_.dtype(), x_.shape()), ""},
                            {label, to_string(numbers.dtype(), numbers.shape()),
                             axis_ ? fmt::format("should be [{}]", wanted[0]) : "should have no axes"}},
                           where_, axis_ ? "" : "per-channel numbers need an axis"));
  }
  [[noreturn]] void refuse(std::string_view label, const Tensor& given, std::string_view wanted) {
    throw DTypeError(
        1150,
        format_error(
            1150, "DTypeError", fmt::format("{}: {} must be {}, not {}", function_, label, wanted, name(given.dtype())),
            {{"x", to_string(x_.dtype(), x_.shape()), ""}, {label, to_string(given.dtype(), given.shape()), ""}},
            where_));
  }

  std::string_view function_;
  const Tensor& x_;
  DType dtype_;
  Location where_;
  std::optional<std::int64_t> axis_;
  bool centered_ = false;
};

/// The largest and smallest along all axes but the channels', if any.
struct Extremes {
  Tensor low, high;
};
Extremes extremes_of(const Tensor& x, std::optional<std::int64_t> axis, Location where) {
  if (!axis) return {min(x, {}, false, where), max(x, {}, false, where)};
  Shape others;
  for (unsigned i = 0; i < x.rank(); ++i)
    if (i != *axis) others.push_back(i);
  if (others.empty()) return {x, x};
  return {min(x, others, false, where), max(x, others, false, where)};
}

}  // namespace

const QuantizedPayload* quantized_payload(const Tensor& x) {
  return x.defined() ? dynamic_cast<const QuantizedPayload*>(x.impl()->payload) : nullptr;
}

const QuantizedPayload& require_quantized(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  if (const QuantizedPayload* payload = quantized_payload(x)) return *payload;
  throw DTypeError(1151, format_error(1151, "DTypeError", fmt::format("{}: not a quantized tensor", function),
                                      describe(x), where, "create one with quantize()"));
}

Tensor make_quantized(const Tensor& bytes, const Quantization& how, bool centered, const GradEdge& history) {
  auto payload = std::make_unique<QuantizedPayload>();
  payload->bytes = bytes, payload->how = how, payload->centered = centered, payload->history = history;
  const DType dtype = bytes.dtype() == DType::i8 ? DType::qi8 : DType::qu8;
  return Tensor({dtype, bytes.shape()}, DispatchKeySet(bytes.node()->backend) | Functionality::quantized,
                std::move(payload));
}

Tensor along_channels(const Tensor& numbers, const Quantization& how, unsigned rank, Location where) {
  if (!how.axis) return numbers;
  Shape sizes;
  for (unsigned i = 0; i < rank; ++i) sizes.push_back(i == *how.axis ? numbers.shape()[0] : 1);
  return reshape(numbers, sizes, where);
}

Tensor with_nondifferentiable_history(const Tensor& value, const GradEdge& history) {
  return history ? with_history(value, history) : value;
}

Tensor quantize(const Tensor& x, const Operand& scale, const Operand& zero_point, DType dtype,
                std::optional<std::int64_t> axis, Location where) {
  require_defined("quantize", x, where);
  require_quantized_dtype("quantize", x, dtype, where);
  if (!is_floating(x.dtype()) && quantized_payload(x) == nullptr)
    throw DTypeError(
        1150, format_error(1150, "DTypeError", fmt::format("quantize: x must be floating, not {}", name(x.dtype())),
                           describe(x), where, "quantized() wraps bytes without conversion"));
  Numbers numbers("quantize", x, dtype, axis, where);
  const Quantization how = numbers.take(scale, zero_point);
  const Tensor operands[] = {x, how.scale, how.zero_point};
  const Shape shape = x.shape();
  const QuantizeAttributes attributes{
      .axis = {how.axis.value_or(-1)}, .centered = {numbers.centered()}, .shape = {shape}, .dtype = {dtype}};
  return general_call(Op::quantize, attributes, operands, where);
}

Tensor quantize(const Tensor& x, const Quantization& how, DType dtype, Location where) {
  return quantize(x, {how.scale, where}, {how.zero_point, where}, dtype, how.axis, where);
}

Quantization fit_quantization(const Tensor& x, DType dtype, std::optional<std::int64_t> axis, bool symmetric,
                              Location where) {
  require_defined("fit_quantization", x, where);
  require_quantized_dtype("fit_quantization", x, dtype, where);
  if (axis) axis = normalize_axis("fit_quantization", *axis, type_of(x), where);
  const ByteRange range = range_of(dtype);
  const Extremes extremes = extremes_of(astype(x.detach(), DType::f32, where), axis, where);
  // Zero is always one of the values, so that padding and relu are exact.
  const Tensor high = maximum({extremes.high, where}, 0), low = minimum({extremes.low, where}, 0);
  const Tensor reach = symmetric ? maximum({high, where}, negative({low, where})) : subtract({high, where}, low);
  const Tensor step = divide({reach, where}, symmetric ? 127 : 255);
  const Tensor scale = fermata::where({greater({step, where}, 0), where}, step, 1.0f);
  const auto zero = [&] {
    if (symmetric) return full(scale.shape(), range.middle, DType::i32, where);
    const Tensor position =
        subtract({round({divide({negative({low, where}), where}, scale), where}), where}, -range.low);
    return astype(clip({position, where}, range.low, range.high), DType::i32, where);
  };
  return {scale, zero(), axis};
}

Tensor dequantize(const Tensor& x, Location where) {
  if (weight_payload(x) == nullptr) require_quantized("dequantize", x, where);
  return general_call(Op::dequantize, {&x, 1}, {}, where);
}

Tensor quantized(const Tensor& bytes, const Operand& scale, const Operand& zero_point, std::optional<std::int64_t> axis,
                 Location where) {
  require_defined("quantized", bytes, where);
  if (bytes.dtype() != DType::i8 && bytes.dtype() != DType::u8)
    throw DTypeError(1150, format_error(1150, "DTypeError",
                                        fmt::format("quantized: bytes must be i8 or u8, not {}", name(bytes.dtype())),
                                        describe(bytes), where));
  Numbers numbers("quantized", bytes, bytes.dtype() == DType::i8 ? DType::qi8 : DType::qu8, axis, where);
  const Quantization how = numbers.take(scale, zero_point);
  // Another identity of the same bytes: a write through the caller's does not change the tensor.
  return make_quantized(bytes.detach(), how, numbers.centered(), {});
}

Tensor int_repr(const Tensor& x, Location where) { return require_quantized("int_repr", x, where).bytes.detach(); }

Quantization quantization_of(const Tensor& x, Location where) {
  return require_quantized("quantization_of", x, where).how;
}

Tensor quantized_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point,
                        DType dtype, Location where) {
  require_quantized("quantized_matmul", lhs, where), require_quantized("quantized_matmul", rhs, where);
  return quantize(matmul(lhs, rhs, where), scale, zero_point, dtype, {}, where);
}

Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Operand& scale,
                        const Operand& zero_point, DType dtype, Location where) {
  require_quantized("quantized_linear", x, where), require_quantized("quantized_linear", weight, where);
  return quantize(linear(x, weight, bias, where), scale, zero_point, dtype, {}, where);
}

Tensor quantized_add(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point, DType dtype,
                     Location where) {
  require_quantized("quantized_add", lhs, where), require_quantized("quantized_add", rhs, where);
  return quantize(add({lhs, where}, {rhs, where}), scale, zero_point, dtype, {}, where);
}

std::string quantized_to_string(const Tensor& x, Location where) {
  const QuantizedPayload& payload = require_quantized("printing", x, where);
  std::string text = to_string(dequantize(x, where), where);
  text.resize(text.size() - std::string_view("f32)").size());
  const auto list = [&]<class T>(const Tensor& numbers, T) {
    const std::vector<T> values = numbers.to_vector<T>(where);
    return numbers.rank() == 0 ? fmt::format("{}", values[0]) : fmt::format("[{}]", fmt::join(values, ", "));
  };
  text += fmt::format("{}, scale={}, zero_point={}", name(x.dtype()), list(payload.how.scale, 0.0f),
                      list(payload.how.zero_point, 0));
  return text + (payload.how.axis ? fmt::format(", axis={})", *payload.how.axis) : ")");
}

}  // namespace fermata
