// See quantized_weights.h: making quantized weights and taking them apart, and the ops that read them.
#include "frontend/layouts/quantized_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/ops.h"
#include "fermata/print.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "ir/error.h"
#include "ir/float16.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kBlock = PackedWeights::kBlock;
constexpr DTypeSet kValues = DTypeSet(DType::f16) | DType::bf16 | DType::f32;
/// Rows of x from which on weights become floats once, for a product of floats, instead of in every few rows.
constexpr std::int64_t kManyRows = 128;

[[noreturn]] void fail_format(const std::string& what, const Tensor& x, Location where) {
  throw ValueError(1350, format_error(1350, "ValueError", "quantize_weight: " + what, describe(x), where));
}

/// A row of weights as codes of 8 bits and their scale.
float encode_bytes(const float* from, std::int64_t count, std::int8_t* codes) {
  float reach = 0;
  for (std::int64_t i = 0; i < count; ++i) reach = std::max(reach, std::abs(from[i]));
  const float scale = reach / 127;
  if (!(scale > 0)) return std::fill(codes, codes + count, std::int8_t{0}), 0.0f;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::int8_t>(std::clamp(std::nearbyint(from[i] / scale), -127.0f, 127.0f));
  return scale;
}
/// A group of weights as codes of 4 bits and the bits of their scale: the weight that is farthest from zero is -8.
std::uint16_t encode_nibbles(const float* from, std::int64_t count, std::uint8_t* codes) {
  float farthest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (std::abs(from[i]) > std::abs(farthest)) farthest = from[i];
  const BFloat16 stored = to_bfloat16(farthest / -8);
  const float scale = to_float(stored);
  for (std::int64_t i = 0; i < count; ++i) {
    const float code = scale == 0 ? 0.0f : std::clamp(std::nearbyint(from[i] / scale), -8.0f, 7.0f);
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(code) + 8);
  }
  return std::bit_cast<std::uint16_t>(stored);
}

/// One block of rows; `rows` of them are there.
void pack_block(const PackedWeights& form, const float* from, std::int64_t rows, std::uint8_t* to) {
  std::vector<std::int8_t> bytes(static_cast<std::size_t>(form.columns));
  std::vector<std::uint8_t> nibbles(64);
  for (std::int64_t lane = 0; lane < rows; ++lane, from += form.columns) {
    if (form.group == 0) {
      const float scale = encode_bytes(from, form.columns, bytes.data());
      std::memcpy(to + 4 * lane, &scale, sizeof scale);
      for (std::int64_t k = 0; k < form.columns; ++k)
        to[kBlock * (4 + k) + lane] = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(k)]);
      continue;
    }
    for (std::int64_t g = 0; g < form.groups(); ++g) {
      const std::int64_t begin = g * form.group, count = std::min(form.group, form.columns - begin);
      std::fill(nibbles.begin(), nibbles.end(), std::uint8_t{0});
      const std::uint16_t scale = encode_nibbles(from + begin, count, nibbles.data());
      std::uint8_t* const start = to + g * form.group_bytes();
      std::memcpy(start + 2 * lane, &scale, sizeof scale);
      for (std::int64_t p = 0; p < form.group; p += 2)
        start[kBlock * (2 + p / 8 * 4) + lane * 4 + p % 8 / 2] = static_cast<std::uint8_t>(
            nibbles[static_cast<std::size_t>(p)] | nibbles[static_cast<std::size_t>(p) + 1] << 4);
    }
  }
}

std::vector<std::uint8_t> pack(const PackedWeights& form, const float* from) {
  const std::int64_t block_bytes = form.groups() * form.group_bytes();
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(form.blocks() * block_bytes));
  parallel_for(0, form.blocks(), static_cast<double>(form.columns * kBlock) * 3,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b)
                   pack_block(form, from + b * kBlock * form.columns, std::min(kBlock, form.rows - b * kBlock),
                              bytes.data() + b * block_bytes);
               });
  return bytes;
}

Tensor number(const Tensor& x, Location where) { return astype(x, DType::f32, where); }

/// Bytes as elements of another dtype.
Tensor reinterpreted(const Tensor& bytes, DType dtype, const Shape& shape, Location where) {
  const Tensor flat = reshape(bytes, {bytes.element_count()}, where);
  return general_call<Op::unpack>({.offset = {0}, .shape = {shape}, .dtype = {dtype}}, {&flat, 1}, where);
}

/// Scales and codes of blocks, [blocks, groups, lanes] and [blocks, groups, positions, lanes].
struct Parts {
  Tensor scales, codes;
};

/// Of all lanes of a block; or, of each block, of the one that `lane` names.
Parts parts_of(const Tensor& bytes, const PackedWeights& form, const Tensor& lane, Location where) {
  const std::int64_t blocks = bytes.size(0), groups = form.groups(), lanes = lane.defined() ? 1 : kBlock;
  const bool has_bytes = form.group == 0;
  const Tensor all = has_bytes ? expand_dims(bytes, 1, where) : bytes;
  const std::int64_t wide = has_bytes ? 4 : 2, words = has_bytes ? form.depth() : form.group / 8,
                     each = has_bytes ? 1 : 4;
  const auto chosen = [&](const Tensor& x, std::int64_t axis) {
    if (!lane.defined()) return x;
    Shape sizes;
    for (unsigned i = 0; i < x.rank(); ++i) sizes.push_back(i == 0 ? blocks : 1);
    return take_along_axis(x, reshape(lane, sizes, where), axis, where);
  };
  const Tensor scale_bytes =
      chosen(reshape(slice(all, 2, 0, wide * kBlock, 1, where), {blocks, groups, kBlock, wide}, where), 2);
  const Tensor scales =
      reinterpreted(scale_bytes, has_bytes ? DType::f32 : DType::bf16, Shape{blocks, groups, lanes}, where);
  const Tensor codes = chosen(
      reshape(slice(all, 2, wide * kBlock, form.group_bytes(), 1, where), {blocks, groups, words, kBlock, each}, where),
      3);
  const Tensor wider = astype(codes, DType::i32, where);
  if (has_bytes) {
    const Tensor value = subtract({bitwise_xor({wider, where}, 128), where}, 128);
    return {number(scales, where), number(squeeze(value, 4, where), where)};
  }
  const Tensor places = multiply({iota(2, 0, device(bytes, where), where), where}, 4);
  const Tensor shifted = bitwise_right_shift({expand_dims(wider, -1, where), where}, astype(places, DType::i32, where));
  const Tensor value = subtract({bitwise_and({shifted, where}, 15), where}, 8);
  // [blocks, groups, words, lanes, bytes, places]: the lanes behind everything that is a position.
  const Tensor turned = permute(value, {0, 1, 2, 4, 5, 3}, where);
  return {number(scales, where), number(reshape(turned, {blocks, groups, form.group, lanes}, where), where)};
}

/// [blocks * lanes, columns].
Tensor rows_of(const Parts& parts, const PackedWeights& form, Location where) {
  const Tensor values = multiply({parts.codes, where}, expand_dims(parts.scales, 2, where));
  const std::int64_t blocks = values.size(0), lanes = values.size(3);
  const Tensor rows = reshape(permute(values, {0, 3, 1, 2}, where), {blocks * lanes, form.depth()}, where);
  return slice(rows, 1, 0, form.columns, 1, where);
}

}  // namespace

const WeightPayload* weight_payload(const Tensor& x) {
  return x.defined() ? dynamic_cast<const WeightPayload*>(x.impl()->payload) : nullptr;
}

Tensor make_weights(const Tensor& bytes, const PackedWeights& form, DType dtype) {
  auto payload = std::make_unique<WeightPayload>();
  payload->bytes = bytes, payload->form = form;
  return Tensor({dtype, Shape{form.rows, form.columns}},
                DispatchKeySet(bytes.node()->backend) | Functionality::quantized, std::move(payload));
}

Tensor quantize_weight(const Tensor& weight, const WeightFormat& format, Location where) {
  require_defined("quantize_weight", weight, where);
  if (weight_payload(weight) != nullptr) return weight;
  if (format.bits != 4 && format.bits != 8)
    fail_format(fmt::format("weights must have 8 or 4 bits, not {}", format.bits), weight, where);
  if (format.bits == 4 && format.group != 32 && format.group != 64)
    fail_format(fmt::format("groups of 4-bit weights must have 32 or 64 elements, not {}", format.group), weight,
                where);
  if (weight.rank() != 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", "quantize_weight: a matrix must have two axes",
                                        describe(weight), where));
  if (!kValues.has(weight.dtype()))
    throw DTypeError(1150, format_error(1150, "DTypeError",
                                        fmt::format("quantize_weight: weights must be f16, bf16 or f32, not {}",
                                                    name(weight.dtype())),
                                        describe(weight), where));
  const PackedWeights form{weight.size(0), weight.size(1), format.bits == 8 ? 0 : format.group};
  const KeyGuard now({}, DispatchKeySet(Functionality::capture) | Functionality::autograd);
  const HostElements elements(astype(weight.detach(), DType::f32, where), "quantize_weight", where);
  const auto* const values = static_cast<const float*>(elements.data());
  for (std::int64_t i = 0; i < elements.count(); ++i)
    if (!std::isfinite(values[i]))
      throw ValueError(
          1350, format_error(1350, "ValueError", "quantize_weight: weights must be finite", describe(weight), where));
  const std::vector<std::uint8_t> bytes = pack(form, values);
  const Tensor held = from_buffer(bytes.data(), DType::u8, form.shape(), where);
  return make_weights(to(held, device(weight, where), where), form, weight.dtype());
}

std::vector<Tensor> quantize_weights(std::span<const Tensor> parameters, const WeightFormat& format, Location where) {
  std::vector<Tensor> all;
  for (const Tensor& x : parameters) {
    const bool is_matrix = x.defined() && x.rank() == 2 && kValues.has(x.dtype());
    all.push_back(is_matrix ? quantize_weight(x, format, where) : x);
  }
  return all;
}

bool has_quantized_weights(const Tensor& x, Location where) {
  require_defined("has_quantized_weights", x, where);
  return weight_payload(x) != nullptr;
}

Tensor unpacked_weights(const Tensor& bytes, const PackedWeights& form, Location where) {
  if (form.rows == 0 || form.columns == 0) return zeros({form.rows, form.columns}, DType::f32, where);
  return slice(rows_of(parts_of(bytes, form, {}, where), form, where), 0, 0, form.rows, 1, where);
}

Tensor linear_with_weights(std::span<const Tensor> x, Location where) {
  const WeightPayload& weights = *weight_payload(x[1]);
  const PackedWeights& form = weights.form;
  if (weight_payload(x[0]) != nullptr || is_quantized(x[0].dtype()))
    throw UnsupportedError(2141, format_error(2141, "UnsupportedError", "linear: x and weight are both quantized",
                                              describe(x[0], x[1]), where, "dequantize() one of them"));
  const auto dtype = promote(x[0].dtype(), x[1].dtype()).value_or(x[1].dtype());
  const std::int64_t rows = form.columns == 0 ? 0 : x[0].element_count() / form.columns;
  Tensor product;
  if (rows >= kManyRows || !kValues.has(dtype)) {
    const Tensor matrix = astype(unpacked_weights(weights.bytes, form, where), dtype, where);
    product = matmul(astype(x[0], dtype, where), transpose(matrix, 0, 1, where), where);
  } else {
    const Tensor operands[] = {astype(x[0], dtype, where), weights.bytes};
    product = general_call<Op::matmul_weights>({.columns = {form.rows}}, operands, where);
  }
  return x.size() > 2 ? add({product, where}, x[2]) : product;
}

Tensor take_of_weights(const WeightPayload& weights, DType dtype, const Tensor& index, Location where) {
  const PackedWeights& form = weights.form;
  // Nothing but the check of positions: a tensor of zeros that occupies one element.
  const Tensor nothing = broadcast_to(zeros({1}, DType::i64, where), {form.rows}, where);
  const Tensor checked = take(to(nothing, device(weights.bytes, where), where), index, 0, where);
  const Tensor wide = astype(index, DType::i64, where);
  const Tensor positions =
      add({fermata::where({less({wide, where}, 0), where}, add({wide, where}, form.rows), wide), where}, checked);
  const Tensor flat = reshape(positions, {positions.element_count()}, where);
  Shape shape = index.shape();
  shape.push_back(form.columns);
  if (element_count(shape) == 0) return zeros(shape, dtype, where);
  const Tensor blocks = take(weights.bytes, bitwise_right_shift({flat, where}, 5), 0, where);
  const Parts parts = parts_of(blocks, form, bitwise_and({flat, where}, kBlock - 1), where);
  return astype(reshape(rows_of(parts, form, where), shape, where), dtype, where);
}

Tensor view_of_weights(const Call& call, const Tensor& x, const Attributes& attributes) {
  const auto refuse = [&](const std::string& what, std::string_view hint) {
    throw UnsupportedError(2140, format_error(2140, "UnsupportedError", fmt::format("{}: {}", call.entry.name, what),
                                              describe(x), call.where, hint));
  };
  if (call.entry.op == Op::permute)
    refuse("quantized weights cannot be permuted", "linear(x, w) multiplies by the transpose of w");
  if (call.entry.op != Op::slice) refuse("quantized weights do not support this view", "dequantize() returns floats");
  const WeightPayload& weights = *weight_payload(x);
  const PackedWeights& form = weights.form;
  const auto given = attributes_of<ops::Slice>(attributes);
  const Shape& wanted = attributes.wanted.shape;
  const std::int64_t start = given.start.value[0], end = start + wanted[0];
  const bool keeps_order = (wanted[0] < 2 || given.step.value[0] == 1) && (wanted[1] < 2 || given.step.value[1] == 1);
  const bool is_whole = wanted[1] == form.columns && start % kBlock == 0 && (end % kBlock == 0 || end == form.rows);
  if (!keeps_order || !is_whole)
    refuse("quantized weights can be sliced only between blocks of 32 rows", "dequantize() returns floats");
  const Tensor bytes = slice(weights.bytes, 0, start / kBlock, (end + kBlock - 1) / kBlock, 1, call.where);
  return make_weights(bytes, {wanted[0], form.columns, form.group}, x.dtype());
}

std::string weights_to_string(const Tensor& x, Location where) {
  const std::int64_t group = weight_payload(x)->form.group;
  std::string text = to_string(dequantize(x, where), where);
  text.pop_back();
  return text + (group == 0 ? ", 8 bits)" : fmt::format(", 4 bits in groups of {})", group));
}

std::string weights_note(const Tensor& weights) {
  const PackedWeights& form = weight_payload(weights)->form;
  return fmt::format("{} {} {} {}", name(weights.dtype()), form.rows, form.columns, form.group);
}

std::optional<Tensor> weights_of_note(const Tensor& bytes, std::string_view note) {
  const std::size_t space = note.find(' ');
  const auto dtype = dtype_from_name(note.substr(0, space));
  std::array<std::int64_t, 3> numbers{};
  const char *at = note.data() + std::min(space, note.size()), *const end = note.data() + note.size();
  for (std::int64_t& n : numbers) {
    if (at == end || *at != ' ') return {};
    const auto [next, error] = std::from_chars(at + 1, end, n);
    if (error != std::errc()) return {};
    at = next;
  }
  const auto form = PackedWeights::of(bytes.shape(), numbers[0], numbers[1]);
  const bool fits =
      at == end && dtype && kValues.has(*dtype) && bytes.dtype() == DType::u8 && form && form->group == numbers[2];
  if (!fits) return {};
  return make_weights(bytes, *form, *dtype);
}

namespace vjp {

VjpTensor unpacked(const VjpTensor& bytes, const PackedWeights& form) {
  return unpacked_weights(bytes.tensor(), form, current_line);
}

}  // namespace vjp
}  // namespace fermata
