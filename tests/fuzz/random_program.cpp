// See random_program.h.
#include "tests/fuzz/random_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fermata/convolution.h"
#include "fermata/indexing.h"
#include "fermata/pooling.h"
#include "ir/float16.h"
#include "ir/op.h"

namespace fermata::testing {
namespace {

/// Larger values are not made: a program should spend its time on structure.
constexpr std::int64_t kMaxElements = 6000;

constexpr DType kDTypes[] = {DType::f32,     DType::f32, DType::f32, DType::f64, DType::f16, DType::bf16,
                             DType::boolean, DType::u8,  DType::u16, DType::u32, DType::u64, DType::i8,
                             DType::i16,     DType::i32, DType::i64, DType::f32};

using Unary = Tensor (*)(const Operand&);
constexpr Unary kUnary[] = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) [](const Operand& x) { return name(x); },
#include "ir/ops.def"
};
using Binary = Tensor (*)(const Operand&, const Operand&);
constexpr Binary kBinary[] = {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  [](const Operand& a, const Operand& b) { return name(a, b); },
#include "ir/ops.def"
};
using Reduce = Tensor (*)(const Tensor&, const IntegerList&, bool);
constexpr Reduce kReduce[] = {
#define FERMATA_REDUCE(name, rule, vjp, doc) \
  [](const Tensor& x, const IntegerList& axes, bool keep) { return name(x, axes, keep); },
#include "ir/ops.def"
};
// The ops that the functions above call.
constexpr Op kUnaryOps[] = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) Op::name,
#include "ir/ops.def"
};
constexpr Op kBinaryOps[] = {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) Op::name,
#include "ir/ops.def"
};
constexpr Op kReduceOps[] = {
#define FERMATA_REDUCE(name, rule, vjp, doc) Op::name,
#include "ir/ops.def"
};
template <class Table> auto pick(const Table& table, std::uint32_t choice) { return table[choice % std::size(table)]; }

Scalar some_scalar(std::uint32_t choice) {
  constexpr double kReals[] = {0.5, -1.25, 2.0, 3.0, 0.0, -0.75, 1.0, 1e-3};
  switch (choice % 3) {
    case 0: return static_cast<std::int64_t>(choice / 3 % 9) - 4;
    default: return kReals[choice / 3 % std::size(kReals)];
  }
}

/// One element: mostly small numbers, among them whole ones and zero, now and then a special one.
void store(DType dtype, std::mt19937_64& random, bool special, std::byte* to) {
  const std::uint64_t bits = random();
  double real = static_cast<double>(static_cast<std::int64_t>(bits % 257) - 128) / 32;
  if (bits >> 32 & 1) real = std::nearbyint(real);
  if (special && (bits >> 40) % 8 == 0) {
    constexpr double kSpecial[] = {INFINITY, -INFINITY, NAN, -0.0, 1e30, -1e-30};
    real = kSpecial[(bits >> 48) % std::size(kSpecial)];
  }
  const auto put = [&](auto element) { std::memcpy(to, &element, sizeof(element)); };
  switch (dtype) {
    case DType::f16: return put(to_float16(real));
    case DType::bf16: return put(to_bfloat16(real));
    case DType::f32: return put(static_cast<float>(real));
    case DType::f64: return put(real);
    case DType::boolean: return put((bits & 1) != 0);
    default: break;
  }
  // Two's complement, so that the low bytes are the number at any width.
  const std::uint64_t small = bits % 23 - (info(dtype).kind == DTypeKind::signed_integer ? 11 : 0);
  const std::uint64_t whole = special && (bits >> 40) % 4 == 0 ? bits : small;
  std::memcpy(to, &whole, byte_size(dtype));
}

/// The choices of a step that looks at neighbors.
enum class WindowOp : std::uint8_t { max_pool, average, convolution, product, largest, sorted, fold, roll, diff };
WindowOp window_op(const Step& s) { return static_cast<WindowOp>(s.choices[0] % 9); }

std::vector<std::int64_t> shuffled_axes(unsigned rank, std::uint32_t choice) {
  std::vector<std::int64_t> axes(rank);
  for (unsigned i = 0; i < rank; ++i) axes[i] = i;
  for (unsigned i = rank; i > 1; --i, choice /= 5) std::swap(axes[i - 1], axes[choice % i]);
  return axes;
}
std::int64_t axis_of(const Tensor& x, std::uint32_t choice) { return x.rank() == 0 ? 0 : choice % x.rank(); }

/// Axes out of a bit mask; none where it has none.
std::vector<std::int64_t> axes_of(const Tensor& x, std::uint32_t choice) {
  std::vector<std::int64_t> axes;
  for (unsigned i = 0; i < x.rank(); ++i)
    if (choice >> i & 1) axes.push_back(i);
  return axes;
}

/// Positions below `count`, which depends on sizes only, so that its error comes in every mode.
Tensor positions(const Tensor& x, std::int64_t count) {
  if (count == 0) throw ValueError(0, "there is nothing to take");
  return remainder(astype(x, DType::i64), count);
}

}  // namespace

Tensor Execution::input(const Step& s) {
  const DType dtype = pick(kDTypes, s.choices[0]);
  std::vector<std::int64_t> sizes;
  for (std::uint32_t i = 0; i < s.choices[1] % 4; ++i) {
    const std::uint32_t axis = s.choices[2] >> (4 * i) & 15;
    sizes.push_back(axis < 13 ? sizes_[axis % 4] : 1);
  }
  const std::uint32_t layout = s.choices[3] % 8;
  if (layout == 1 && !sizes.empty()) sizes.back() = 2 * sizes.back() + 1;  // to be sliced
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::mt19937_64 random(s.choices[4]);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * byte_size(dtype));
  for (std::size_t at = 0; at < bytes.size(); at += byte_size(dtype))
    store(dtype, random, s.choices[5] % 5 == 0, &bytes[at]);
  Tensor x = from_buffer(bytes.data(), dtype, sizes).to(device_);
  if (layout == 1 && !sizes.empty())
    return slice(x, -1, s.choices[6] % 2 == 0 ? 1 : -2, kNone, s.choices[6] % 2 == 0 ? 2 : -2);
  if (layout == 2) return permute(x, shuffled_axes(x.rank(), s.choices[6]));
  if (layout == 3 && x.rank() > 0) return flip(x, axis_of(x, s.choices[6]));
  if (layout >= 6) return views_of(x, s.choices[6], s.choices[7]);
  return x;
}

Tensor Execution::generate(const Step& s) {
  const std::vector<std::int64_t> sizes{sizes_[s.choices[1] % 4], sizes_[s.choices[2] % 4]};
  if (device_ != BackendKey::cpu) {
    Execution here(sizes_);
    here.generator_ = generator_;
    const Tensor made = here.generate(s);
    generator_ = here.generator_;
    return made.to(device_);
  }
  switch (s.choices[0] % 5) {
    case 0:
      return uniform(sizes, -1, 2, pick(std::array{DType::f32, DType::f64, DType::f16}, s.choices[3]), generator_);
    case 1: return normal(sizes, 0, 1, DType::f32, generator_);
    case 2: return iota(sizes, s.choices[3] % 2);
    case 3: return full(sizes, some_scalar(s.choices[3]), pick(kDTypes, s.choices[4]));
    default: return arange(sizes_[s.choices[1] % 4]);
  }
}

Tensor Execution::composite(const Step& s) {
  const Tensor& x = value(s, 0);
  const std::int64_t axis = axis_of(x, s.choices[1]);
  switch (s.choices[0] % 7) {
    case 0: return softmax(x, axis);
    case 1: return log_softmax(x, axis);
    case 2: return layer_norm(x);
    case 3: return rms_norm(x);
    case 4: return mean(x, axes_of(x, s.choices[1]), s.choices[2] % 2 == 0);
    case 5: return var(x, axes_of(x, s.choices[1]), s.choices[2] % 2 == 0);
    default: return logsumexp(x, axes_of(x, s.choices[1]), s.choices[2] % 2 == 0);
  }
}

Tensor Execution::order(const Step& s) {
  const Tensor& x = value(s, 0);
  const std::int64_t axis = axis_of(x, s.choices[1]);
  const bool flag = s.choices[2] % 2 == 0;
  switch (s.choices[0] % 9) {
    case 0: return cumulative_sum(x, axis, flag);
    case 1: return cumulative_prod(x, axis);
    case 2: return cumulative_max(x, axis, flag);
    case 3: return cumulative_min(x, axis);
    case 4: return sort(x, axis, flag);
    case 5: return argsort(x, axis, flag);
    case 6: return topk(x, x.size(axis) / 2, axis, flag).values;
    case 7: return searchsorted(sort(reshape(x, -1)), value(s, 1), flag ? Side::left : Side::right);
    default: return flatnonzero(x, sizes_[s.choices[2] % 4]);
  }
}

/// A view by numbers that say which.
Tensor Execution::view_of(const Tensor& x, std::uint32_t kind, std::uint32_t which, std::uint32_t how) {
  const std::int64_t axis = axis_of(x, which);
  const Shape shape = x.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  const auto at = static_cast<std::size_t>(axis);
  const std::uint32_t a = how % 16, b = how / 16 % 16, c = how / 256 % 16;
  switch (kind % 13) {
    case 0: return reshape(x, -1);
    case 1:  // two neighbors become one axis
      if (at + 1 < sizes.size()) sizes[at] *= sizes[at + 1], sizes.erase(sizes.begin() + axis + 1);
      return reshape(x, sizes);
    case 2: {  // one axis becomes two
      const std::int64_t part = a % 2 == 0 ? 2 : 3;
      if (!sizes.empty() && sizes[at] % part == 0) sizes[at] /= part, sizes.insert(sizes.begin() + axis + 1, part);
      return reshape(x, sizes);
    }
    case 3: return permute(x, shuffled_axes(x.rank(), how));
    case 4: return slice(x, axis, a % 4, b % 2 == 0 ? kNone : -1, 1 + c % 3);
    case 5: return slice(x, axis, -1 - std::int64_t{a % 2}, kNone, -1 - std::int64_t{c % 2});
    case 6: return expand_dims(x, a % (x.rank() + 1));
    case 7: return squeeze(x);
    case 8:  // axes of size 1 stretched, a new one in front
      for (std::int64_t& size : sizes)
        if (size == 1) size = sizes_[a % 4];
      if (b % 2 == 0) sizes.insert(sizes.begin(), sizes_[c % 4]);
      return broadcast_to(x, sizes);
    case 9:  // one element of an axis, stretched over the whole of it
      return broadcast_to(x.rank() == 0 ? x : slice(x, axis, 0, 1), sizes);
    case 10: return select(x, axis, -1);
    default: return unfold(x, axis, 1 + a % 9, 1 + b % 4, 1 + c / 12);
  }
}

/// Up to four views of each other.
Tensor Execution::views_of(Tensor x, std::uint32_t kinds, std::uint32_t hows) {
  for (std::uint32_t left = kinds % 2 == 0 ? 1 : 2 + kinds / 2 % 3; left > 0; --left) {
    kinds = kinds / 13 ^ hows % 9973;
    x = view_of(x, kinds, hows, hows / 16);
    hows = hows / 3 ^ kinds % 9973;
    if (x.element_count() > kMaxElements) break;  // which is rejected
  }
  return x;
}

Tensor Execution::view(const Step& s) {
  if (s.choices[6] % 3 == 0) return views_of(value(s, 0), s.choices[0], s.choices[2]);
  return view_of(value(s, 0), s.choices[0], s.choices[1], s.choices[2]);
}

/// What looks at neighbors, most of it through windows that overlap.
Tensor Execution::windowed(const Step& s) {
  const Tensor& x = value(s, 0);
  const auto size = 1 + static_cast<std::int64_t>(s.choices[1] % 5), step = 1 + std::int64_t{s.choices[2] % 3};
  const std::int64_t axis = axis_of(x, s.choices[3]);
  const auto planes = [&] { return reshape(x, {1, 1, -1}); };
  const auto kernel = [&] { return slice(reshape(value(s, 1), -1), 0, 0, size); };
  switch (window_op(s)) {
    case WindowOp::max_pool: return max_pool1d(planes(), size, step);
    case WindowOp::average: return avg_pool1d(planes(), size, step);
    case WindowOp::convolution: return conv1d(planes(), reshape(kernel(), {1, 1, -1}), {}, step);
    case WindowOp::product: return matmul(unfold(x, axis, size, step), kernel());
    case WindowOp::largest: return max(unfold(x, axis, size, step), -1);
    case WindowOp::sorted: return sort(unfold(x, axis, size, step), axis);
    case WindowOp::fold: return fold(unfold(x, axis, size, step), axis, x.size(axis), step);
    case WindowOp::roll: return roll(x, 1 - size, axis);
    case WindowOp::diff: break;
  }
  return diff(x, 1, axis);
}

Tensor Execution::join(const Step& s) {
  const Tensor parts[] = {value(s, 0), value(s, 1), value(s, 2)};
  const auto some = std::span(parts).first(1 + s.choices[0] % 3);
  return s.choices[1] % 3 == 0 ? stack(some, axis_of(parts[0], s.choices[2]))
                               : concat(some, axis_of(parts[0], s.choices[2]));
}

void Execution::write(const Step& s) {
  Tensor x = value(s, 0);
  const Tensor& tensor = value(s, 1);
  const Scalar scalar = some_scalar(s.choices[1]);
  const Operand other = s.choices[2] % 3 == 0 ? Operand(scalar) : Operand(tensor);
  switch (s.choices[0] % 4) {
    case 0: x += other; break;
    case 1: x *= other; break;
    case 2: x -= other; break;
    default: x.assign(other);
  }
}

Tensor Execution::call(const Step& s) {
  switch (s.kind) {
    case StepKind::input: return input(s);
    case StepKind::generate: return generate(s);
    case StepKind::unary: return pick(kUnary, s.choices[0])(value(s, 0));
    case StepKind::binary: {
      const Binary op = pick(kBinary, s.choices[0]);
      const Scalar scalar = some_scalar(s.choices[2]);
      if (s.choices[1] % 5 == 0) return op(value(s, 0), scalar);
      if (s.choices[1] % 10 == 1) return op(scalar, value(s, 0));
      return op(value(s, 0), value(s, 1));
    }
    case StepKind::ternary: {
      const Scalar scalar = some_scalar(s.choices[2]);
      if (s.choices[1] % 3 == 0) return where(value(s, 0), scalar, value(s, 2));
      return where(value(s, 0), value(s, 1), value(s, 2));
    }
    case StepKind::cast:
      return s.choices[1] % 8 == 0 ? copy(value(s, 0)) : astype(value(s, 0), pick(kDTypes, s.choices[0]));
    case StepKind::reduce:
      return pick(kReduce, s.choices[0])(value(s, 0), axes_of(value(s, 0), s.choices[1]), s.choices[2] % 2 == 0);
    case StepKind::composite: return composite(s);
    case StepKind::view: return view(s);
    case StepKind::join: return join(s);
    case StepKind::take: {
      const std::int64_t axis = axis_of(value(s, 0), s.choices[0]);
      const Tensor at = positions(value(s, 1), value(s, 0).size(axis));
      return s.choices[2] % 3 == 0 ? take_along_axis(value(s, 0), at, axis) : take(value(s, 0), at, axis);
    }
    case StepKind::index_add: {
      const std::int64_t axis = axis_of(value(s, 0), s.choices[0]);
      if (s.choices[2] % 6 == 1) {
        const Tensor at = broadcast_to(positions(value(s, 1), value(s, 0).size(axis)), value(s, 2).shape());
        return s.choices[1] % 2 == 0 ? scatter(value(s, 0), at, value(s, 2), axis)
                                     : scatter_add(value(s, 0), at, value(s, 2), axis);
      }
      if (s.choices[2] % 3 == 0)
        return put_along_axis(value(s, 0), positions(value(s, 1), value(s, 0).size(axis)), value(s, 2), axis);
      const Tensor at = positions(value(s, 1), std::min(value(s, 0).size(axis), value(s, 2).size(axis)));
      return index_add(value(s, 0), at, take(value(s, 2), at, axis), axis);
    }
    case StepKind::matmul:
      return s.choices[0] % 2 == 0 ? matmul(value(s, 0), value(s, 1)) : matmul(value(s, 0), transpose(value(s, 1)));
    case StepKind::order: return order(s);
    case StepKind::windowed: return windowed(s);
    case StepKind::write: write(s); return {};
  }
  return {};
}

namespace {

std::size_t operand_count(StepKind kind) {
  switch (kind) {
    case StepKind::input:
    case StepKind::generate: return 0;
    case StepKind::unary:
    case StepKind::cast:
    case StepKind::reduce:
    case StepKind::composite:
    case StepKind::view: return 1;
    case StepKind::ternary:
    case StepKind::join:
    case StepKind::index_add: return 3;
    default: return 2;
  }
}

/// Sums and products of floats, whose last bits depend on the order; that of a matrix times a vector goes by how both
/// lie in memory (codegen_cpu/library/matmul.h), and devices have libraries of their own.
bool adds_up(const Step& s, const Tensor& result) {
  if (info(result.dtype()).kind != DTypeKind::floating) return false;
  if (s.kind == StepKind::composite) return true;
  if (s.kind == StepKind::windowed)
    return window_op(s) == WindowOp::average || window_op(s) == WindowOp::product ||
           window_op(s) == WindowOp::convolution;
  if (s.kind == StepKind::matmul)
    return device(result) != BackendKey::cpu || result.rank() < 2 || result.size(-1) == 1 || result.size(-2) == 1;
  const Op op = pick(kReduceOps, s.choices[0]);
  return s.kind == StepKind::reduce && (op == Op::sum || op == Op::prod);
}

/// Nearly equal operands give nearly equal results.
bool is_smooth(const Step& s, const Tensor& result) {
  if (info(result.dtype()).kind != DTypeKind::floating) return false;
  switch (s.kind) {
    case StepKind::unary: {
      constexpr Op kSmooth[] = {Op::negative, Op::abs, Op::relu, Op::tanh, Op::sigmoid, Op::erf};
      return std::ranges::count(kSmooth, pick(kUnaryOps, s.choices[0])) != 0;
    }
    case StepKind::binary: {
      constexpr Op kSmooth[] = {Op::add, Op::subtract, Op::maximum, Op::minimum};
      return std::ranges::count(kSmooth, pick(kBinaryOps, s.choices[0])) != 0;
    }
    case StepKind::cast:
    case StepKind::view:
    case StepKind::join: return true;
    default: return false;
  }
}

/// The sign of a NaN that was computed, which nothing promises, may be in the result.
bool shows_signs(const Step& s) {
  if (s.kind == StepKind::binary) return pick(kBinaryOps, s.choices[0]) == Op::copysign;
  return s.kind == StepKind::unary && pick(kUnaryOps, s.choices[0]) == Op::signbit;
}

}  // namespace

void Execution::note_certainty(const Step& s, bool made) {
  const std::size_t cell = cells_.size();
  const bool view = made && s.kind == StepKind::view;
  Certainty worst = Certainty::exact;
  if (made || s.kind == StepKind::write)
    for (std::size_t i = 0; i < operand_count(s.kind); ++i)
      if (s.values[i] < cell_of_.size()) worst = std::max(worst, certainty(s.values[i]));
  if (s.kind == StepKind::write && s.values[0] < cell_of_.size()) {
    cells_[cell_of_[s.values[0]]] = worst == Certainty::exact ? worst : Certainty::unknown;
  }
  cell_of_.push_back(view ? cell_of_[s.values[0]] : cell);
  if (view) return;
  if (made && worst != Certainty::exact && !is_smooth(s, values.back())) worst = Certainty::unknown;
  if (made && shows_signs(s)) worst = Certainty::unknown;
  if (made && adds_up(s, values.back())) worst = std::max(worst, Certainty::close);
  cells_.push_back(s.kind == StepKind::write ? Certainty::exact : worst);
}

bool Execution::step(const Step& s) {
  Tensor result;
  bool accepted = false;
  try {
    const bool leaf = s.kind == StepKind::input || s.kind == StepKind::generate;
    const auto there = [&](std::uint32_t v) { return v < values.size() && values[v].defined(); };
    if (leaf || std::all_of(s.values.begin(), s.values.end(), there)) {
      result = call(s);
      accepted = !result.defined() || result.element_count() <= kMaxElements;
      if (!accepted) result = Tensor();
    }
  } catch (const UserError& error) {
    const std::string_view text = error.what();
    errors += text.substr(0, text.find('\n')), errors += '\n';
  }
  values.push_back(std::move(result));
  note_certainty(s, values.back().defined());
  return accepted;
}

void Execution::run(const Program& program) {
  for (const Step& s : program.steps) step(s);
}

Program random_program(std::mt19937_64& random, std::size_t steps, const AxisSizes& sizes) {
  constexpr StepKind kKinds[] = {StepKind::input,  StepKind::generate,  StepKind::unary,    StepKind::unary,
                                 StepKind::unary,  StepKind::binary,    StepKind::binary,   StepKind::binary,
                                 StepKind::binary, StepKind::binary,    StepKind::cast,     StepKind::ternary,
                                 StepKind::reduce, StepKind::reduce,    StepKind::order,    StepKind::composite,
                                 StepKind::view,   StepKind::view,      StepKind::view,     StepKind::view,
                                 StepKind::join,   StepKind::take,      StepKind::matmul,   StepKind::write,
                                 StepKind::write,  StepKind::index_add, StepKind::windowed, StepKind::windowed};
  Program program;
  Execution trial(sizes);
  for (std::size_t tries = 0; program.steps.size() < steps && tries < 40 * steps; ++tries) {
    Step s{.kind = program.steps.size() < 3 ? StepKind::input : pick(kKinds, static_cast<std::uint32_t>(random()))};
    for (std::uint32_t& choice : s.choices) choice = static_cast<std::uint32_t>(random() >> 8);
    for (std::uint32_t& v : s.values) {
      const auto count = static_cast<std::uint32_t>(std::max<std::size_t>(program.steps.size(), 1));
      v = static_cast<std::uint32_t>(random() >> 8) % count;
      // Recent values more often, so that programs are deep.
      if (random() % 2 == 0) v = count - 1 - v % std::min(count, 4u);
    }
    // What is rejected here is left out; a write has no value to be rejected by.
    if (trial.step(s))
      program.steps.push_back(s);
    else
      trial.undo();
  }
  for (std::uint32_t v = 0; v < program.steps.size(); ++v)
    if (trial.values[v].defined() && (random() % 3 == 0 || v + 2 >= program.steps.size())) program.kept.push_back(v);
  if (program.kept.empty()) program.kept.push_back(0);  // an input
  return program;
}

}  // namespace fermata::testing
