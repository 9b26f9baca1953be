// See samples.h.
#include "frontend/export/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "ir/error.h"
#include "ir/op_traits.h"

namespace fermata {
namespace {

/// How many ancestors of a node are looked at for sizes that its numbers may follow from.
constexpr std::size_t kMostAncestors = 12;

[[noreturn]] void throw_option(const std::string& what, const ExportCall& call, const std::string& hint = "") {
  throw ValueError(2220, format_error(2220, "ValueError", "export_program: " + what, {}, call.to.where, hint));
}

std::string names_of(const std::vector<detail::NamedTensor>& tensors) {
  std::string text;
  for (const detail::NamedTensor& t : tensors) text += (text.empty() ? "" : ", ") + t.name;
  return text;
}

/// The argument with another size along an axis: its own elements, over and over, which are values that it may have.
Tensor with_size(const Tensor& x, std::size_t axis, std::int64_t size) {
  const std::int64_t own = x.size(static_cast<std::int64_t>(axis));
  if (own == size) return x;
  if (own == 0) {
    Shape shape = x.shape();
    shape[axis] = size;
    return zeros(IntegerList(shape), x.dtype());
  }
  const Tensor positions = fermata::remainder(arange(size, DType::i64), own);
  return take(x, positions, static_cast<std::int64_t>(axis));
}

}  // namespace

ExportSamples::ExportSamples(const ExportCall& call) : call_(call) {
  read_axes();
  // More than an expression has numbers to choose.
  const std::size_t samples = symbols_.empty() ? 1 : 5 + 2 * symbols_.size();
  for (std::size_t k = 0; k < samples; ++k) {
    std::vector<std::int64_t>& sizes = sizes_.emplace_back();
    for (std::size_t s = 0; s < symbols_.size(); ++s) sizes.push_back(size_of_sample(k, s));
    recordings_.push_back(std::make_unique<const ExportRecording>(resized(k), call.body, call.to.where));
  }
  require_same_structure();
}

void ExportSamples::read_axes() {
  const std::vector<detail::NamedTensor>& arguments = call_.arguments;
  for (const detail::NamedTensor& a : arguments) axes_.emplace_back(a.tensor.rank(), -1);
  for (const DynamicAxis& d : call_.options.dynamic) {
    auto at = std::ranges::find(arguments, d.input.name, &detail::NamedTensor::name);
    if (d.input.number) {
      if (*d.input.number < 0 || *d.input.number >= std::ssize(arguments))
        throw_option(fmt::format("there is no input {}", *d.input.number), call_, "inputs are: " + names_of(arguments));
      at = arguments.begin() + *d.input.number;
    }
    if (at == arguments.end())
      throw_option(fmt::format("there is no input '{}'", d.input.name), call_, "inputs are: " + names_of(arguments));
    const auto input = static_cast<std::uint32_t>(at - arguments.begin());
    if (d.axis >= at->tensor.rank()) throw_option(fmt::format("input '{}' has no axis {}", at->name, d.axis), call_);
    if (d.least < 0 || d.least > d.most || d.multiple_of < 1)
      throw_option(fmt::format("axis {} of input '{}' has a range that is empty", d.axis, at->name), call_);
    const std::string name = d.name.empty() ? fmt::format("{}_axis{}", at->name, d.axis) : d.name;
    const auto known = std::ranges::find(symbols_, name, &ProgramSymbol::name);
    axes_[input][d.axis] = static_cast<std::int32_t>(known - symbols_.begin());
    if (known == symbols_.end())
      symbols_.push_back({name, d.least, d.most, d.multiple_of, input, d.axis});
    else
      known->least = std::max(known->least, d.least), known->most = std::min(known->most, d.most);
  }
}

/// The argument's own size first, unless that is 1, which may be broadcast; then others that are near to it, in the
/// range, and those of two symbols differ.
std::int64_t ExportSamples::size_of_sample(std::size_t sample, std::size_t symbol) const {
  static constexpr std::int64_t kSteps[] = {0, 1, 3, 7, 2, 12, 5, 18, 9, 26, 15, 31, 11, 41, 22, 37, 17, 53, 29, 61};
  const ProgramSymbol& s = symbols_[symbol];
  const std::int64_t own = call_.arguments[s.input].tensor.size(static_cast<std::int64_t>(s.axis));
  const std::int64_t least = (std::max<std::int64_t>(s.least, 2) + s.multiple_of - 1) / s.multiple_of;
  const std::int64_t most = std::max(least, s.most / s.multiple_of);
  const std::int64_t first = std::clamp(own / s.multiple_of, least, most);
  const std::int64_t step = sample == 0 ? 0 : kSteps[(sample * (symbol + 1) + symbol * 3) % std::size(kSteps)];
  // Past the end of the range they go on from its other end.
  const std::int64_t room = most - least + 1;
  return (least + (first - least + step) % room) * s.multiple_of;
}

std::vector<Tensor> ExportSamples::resized(std::size_t sample) const {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    Tensor x = call_.arguments[i].tensor;
    for (std::size_t axis = 0; axis < axes_[i].size(); ++axis)
      if (axes_[i][axis] >= 0) x = with_size(x, axis, sizes_[sample][static_cast<std::size_t>(axes_[i][axis])]);
    sync({x});
    tensors.push_back(std::move(x));
  }
  return tensors;
}

void ExportSamples::require_same_structure() const {
  const auto key_of = [](const ExportRecording& r) {
    return std::span<const std::uint32_t>(r.walk().key.begin(), r.walk().key.end());
  };
  for (const auto& other : recordings_) {
    if (std::ranges::equal(key_of(first()), key_of(*other))) continue;
    const auto differs = find_difference(other->program, first().program, call_.to.where);
    throw UnsupportedError(
        2222, format_error(2222, "UnsupportedError",
                           fmt::format("export_program: with other sizes the function makes other calls{}{}",
                                       differs ? ": " : "", differs ? differs->what : ""),
                           {}, differs ? differs->where : call_.to.where,
                           "leave the size as it is, or export the function once for each size"));
  }
}

/// Constants that the function makes may not depend on sizes.
void ExportSamples::require_same_constants(std::size_t at) const {
  const auto value = [&](std::size_t sample) {
    const ProgramNode& n = node(sample, at);
    const Place& place = recordings_[sample]->program.leaves[static_cast<std::size_t>(n.leaf)];
    return place.hidden.node();
  };
  const Node* const mine = value(0);
  for (std::size_t k = 1; k < recordings_.size(); ++k) {
    const Node* const other = value(k);
    if (other == mine) continue;
    const Layout &a = node(0, at).type, &b = node(k, at).type;
    const auto bytes = static_cast<std::size_t>(element_count(a.type.shape)) * byte_size(a.type.dtype);
    const bool is_same = a == b && (a.strides.rank() != 0 ||
                                    std::memcmp(mine->storage.load()->data, other->storage.load()->data, bytes) == 0);
    if (!is_same)
      throw UnsupportedError(
          2223, format_error(2223, "UnsupportedError",
                             fmt::format("export_program: a constant {} depends on a size that is dynamic",
                                         to_string(a.type.dtype, a.type.shape)),
                             {}, call_.to.where, "compute it from the arguments, with arange() for instance"));
  }
}

std::vector<ProgramInput> ExportSamples::inputs() const {
  std::vector<ProgramInput> inputs;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const detail::NamedTensor& a = call_.arguments[i];
    ProgramInput& in = inputs.emplace_back(ProgramInput{a.name, a.tensor.dtype(), {}});
    for (std::size_t axis = 0; axis < axes_[i].size(); ++axis) {
      SizeExpression& x = in.sizes.emplace_back();
      if (axes_[i][axis] < 0)
        x.offset = a.tensor.size(static_cast<std::int64_t>(axis));
      else
        x.terms = {{1, {{SizeVariable::kSymbol, static_cast<std::uint32_t>(axes_[i][axis])}}}};
    }
  }
  return inputs;
}

std::vector<ProgramRecord> ExportSamples::records() const {
  std::vector<ProgramRecord> records;
  for (std::size_t i = 0; i < first().program.nodes.size(); ++i) records.push_back(record(i));
  return records;
}

SizeExpression ExportSamples::expression(std::size_t at, const std::vector<std::int64_t>& values,
                                         std::string_view what) const {
  const auto search = search_for(at);
  if (const auto x = search.find(values)) return *x;
  const ProgramNode& n = node(0, at);
  throw UnsupportedError(
      2223, format_error(2223, "UnsupportedError",
                         fmt::format("export_program: {} of {} depends on the dynamic sizes in a way that cannot be "
                                     "expressed",
                                     what, name(n.op)),
                         {}, n.where, "it may be a sum or product of sizes, or a size divided and rounded down"));
}

SizeSearch ExportSamples::search_for(std::size_t at) const {
  SizeSearch search(recordings_.size());
  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    std::vector<std::int64_t> values;
    for (const auto& sizes : sizes_) values.push_back(sizes[s]);
    search.add({SizeVariable::kSymbol, static_cast<std::uint32_t>(s)}, std::move(values));
  }
  std::vector<std::size_t> ancestors{at};
  for (std::size_t next = 0; next < ancestors.size() && ancestors.size() < kMostAncestors; ++next)
    for (const std::uint32_t in : node(0, ancestors[next]).operands)
      if (in != Walk::kScalarOperand && std::ranges::find(ancestors, in) == ancestors.end()) ancestors.push_back(in);
  for (const std::size_t a : ancestors) {
    if (a == at) continue;
    for (unsigned axis = 0; axis < node(0, a).type.type.shape.rank(); ++axis) {
      std::vector<std::int64_t> values;
      for (std::size_t k = 0; k < recordings_.size(); ++k) values.push_back(node(k, a).type.type.shape[axis]);
      search.add({static_cast<std::uint32_t>(a), axis}, std::move(values));
    }
  }
  return search;
}

ProgramRecord ExportSamples::record(std::size_t at) const {
  const ProgramNode& n = node(0, at);
  const TensorType& type = n.type.type;
  ProgramRecord r{.op = n.op, .dtype = type.dtype, .rank = static_cast<std::uint8_t>(type.shape.rank())};
  if (n.subgraphs != nullptr)
    throw_not_exported(fmt::format("{} is control flow, which programs do not have yet", name(n.op)), n.where,
                       "write the loop out, or export its body");
  if (is_complex(type.dtype)) throw_not_exported("complex numbers are computed by the engine only", n.where);
  if (is_external(n.op)) {
    if (!is_pointwise(n.op))
      throw_not_exported(fmt::format("{} is a custom operator with a kernel of its own", name(n.op)), n.where,
                         "a formula (m.pointwise) becomes part of the program");
    r.op = Op::add;  // pointwise ops stand for each other
  }
  for (const std::uint32_t in : n.operands)
    if (in != Walk::kScalarOperand) r.operands.push_back(in);
  const auto values = [&](auto&& of) {
    std::vector<std::int64_t> list;
    for (std::size_t k = 0; k < recordings_.size(); ++k) list.push_back(of(node(k, at)));
    return list;
  };
  const bool is_constant = n.leaf >= 0 && !first().program.leaves[static_cast<std::size_t>(n.leaf)].is_of_argument();
  if (is_constant) require_same_constants(at);
  if (n.op == Op::input || traits(r.op).takes_shape)
    for (unsigned axis = 0; axis < type.shape.rank(); ++axis)
      r.sizes.push_back(
          expression(at, values([&](const ProgramNode& x) { return x.type.type.shape[axis]; }), "a size"));
  for (std::size_t i = 0; i < n.attributes.size(); ++i)
    r.attributes.push_back(
        expression(at, values([&](const ProgramNode& x) { return x.attributes[i]; }), "an attribute"));
  for (std::size_t i = 0; i < n.scalars.size(); ++i) {
    std::vector<std::uint64_t> bits;
    for (std::size_t k = 0; k < recordings_.size(); ++k) bits.push_back(node(k, at).scalars[i]);
    const DType dtype = scalar_argument_count(n.op) != 0 && draws_numbers(n.op) ? DType::u64 : n.scalar_dtype;
    const auto x = n.is_drawn ? NumberExpression{} : search_for(at).find(bits, dtype);
    if (!x)
      throw UnsupportedError(
          2223, format_error(2223, "UnsupportedError",
                             fmt::format("export_program: a number of {} depends on the dynamic sizes in a way that "
                                         "cannot be expressed",
                                         name(n.op)),
                             {}, n.where, "compute it from tensors"));
    r.scalars.push_back(*x);
  }
  return r;
}

std::vector<ProgramDraw> ExportSamples::draws(const Plan& plan) const {
  std::vector<ProgramDraw> draws;
  for (std::size_t slot = 0; slot < plan.scalars.size(); ++slot) {
    const ScalarSource& s = plan.scalars[slot];
    if (!node(0, s.record).is_drawn) continue;
    ProgramDraw& d = draws.emplace_back(ProgramDraw{.slot = static_cast<std::uint32_t>(slot), .is_key = s.index == 0});
    if (d.is_key) continue;
    std::vector<std::int64_t> deltas;
    for (std::size_t k = 0; k < recordings_.size(); ++k)
      deltas.push_back(static_cast<std::int64_t>(node(k, s.record).scalars[1]));
    SizeSearch search(recordings_.size());
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      std::vector<std::int64_t> values;
      for (const auto& sizes : sizes_) values.push_back(sizes[i]);
      search.add({SizeVariable::kSymbol, static_cast<std::uint32_t>(i)}, std::move(values));
    }
    const auto delta = search.find(deltas);
    if (!delta)
      throw UnsupportedError(
          2223, format_error(2223, "UnsupportedError",
                             "export_program: where random numbers begin depends on the dynamic "
                             "sizes in a way that cannot be expressed",
                             {}, node(0, s.record).where, "draw as many as a multiple of 4, or make one call for all"));
    d.delta = *delta;
  }
  return draws;
}

std::uint64_t ExportSamples::draw_count() const {
  constexpr std::uint64_t kAny = std::uint64_t{1} << 40;  // more than any run takes
  const bool is_fixed = std::ranges::all_of(recordings_, [&](const auto& r) { return r->draws == first().draws; });
  return is_fixed ? first().draws : kAny;
}

}  // namespace fermata
