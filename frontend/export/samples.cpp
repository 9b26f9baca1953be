// See samples.h.
#include "frontend/export/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "frontend/engine/control_step.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/ops/control.h"
#include "ir/tuple_layout.h"

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

/// Which result of a call of control flow a node takes, whatever the sizes.
std::int64_t result_number(const Program& program, const ProgramNode& unpack) {
  const ProgramNode& call = program.nodes[unpack.operands[0]];
  const Subgraph& last = (*call.subgraphs)[call.subgraphs->size() - 1];
  const auto results = ops::separate_results(call.op, call.attributes, last.results());
  const TupleLayout layout = tuple_layout(results);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (layout.offsets[i] == unpack.attributes[0] && results[i] == unpack.type.type)
      return static_cast<std::int64_t>(i);
  throw_internal("a result of a call that has no such result", unpack.where);
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
        throw_option(fmt::format("no input {}", *d.input.number), call_, "inputs are: " + names_of(arguments));
      at = arguments.begin() + *d.input.number;
    }
    if (at == arguments.end())
      throw_option(fmt::format("no input named '{}'", d.input.name), call_, "inputs are: " + names_of(arguments));
    const auto input = static_cast<std::uint32_t>(at - arguments.begin());
    if (d.axis >= at->tensor.rank()) throw_option(fmt::format("input '{}' has no axis {}", at->name, d.axis), call_);
    if (d.least < 0 || d.least > d.most || d.multiple_of < 1)
      throw_option(fmt::format("axis {} of input '{}' has an empty range", d.axis, at->name), call_);
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
  for (const auto& other : recordings_)
    if (!std::ranges::equal(first().walk().structure(), other->walk().structure()))
      throw_other_calls(first().program, other->program);
}

void ExportSamples::throw_other_calls(const Program& program, const Program& other) const {
  const auto differs = find_difference(other, program, call_.to.where);
  throw UnsupportedError(
      2222, format_error(2222, "UnsupportedError",
                         fmt::format("export_program: the function makes different calls for different sizes{}{}",
                                     differs ? ": " : "", differs ? differs->what : ""),
                         {}, differs ? differs->where : call_.to.where,
                         "make the size fixed, or export the function once per size"));
}

ExportSamples::Samples ExportSamples::samples() const {
  Samples samples;
  for (const auto& r : recordings_) samples.push_back(&r->program);
  return samples;
}

/// Constants that the function makes may not depend on sizes.
void ExportSamples::require_same_constants(const Samples& samples, std::size_t at) const {
  const auto value = [&](const Program& p) {
    return p.leaves[static_cast<std::size_t>(p.nodes[at].leaf)].hidden.node();
  };
  const Node* const mine = value(*samples[0]);
  for (std::size_t k = 1; k < samples.size(); ++k) {
    const Node* const other = value(*samples[k]);
    if (other == mine) continue;
    const Layout &a = samples[0]->nodes[at].type, &b = samples[k]->nodes[at].type;
    const auto bytes = static_cast<std::size_t>(element_count(a.type.shape)) * byte_size(a.type.dtype);
    const bool is_same = a == b && (a.strides.rank() != 0 ||
                                    std::memcmp(mine->storage.load()->data, other->storage.load()->data, bytes) == 0);
    if (!is_same)
      throw UnsupportedError(
          2223, format_error(2223, "UnsupportedError",
                             fmt::format("export_program: a constant {} depends on a dynamic size",
                                         to_string(a.type.dtype, a.type.shape)),
                             {}, call_.to.where, "compute it from the arguments, for example with arange()"));
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

std::vector<SampledFunction> ExportSamples::add_records(ProgramFile& file) const {
  std::vector<SampledFunction> functions;
  file.records = records(samples(), file, functions);
  return functions;
}

std::vector<ProgramRecord> ExportSamples::records(const Samples& samples, ProgramFile& file,
                                                  std::vector<SampledFunction>& functions) const {
  std::vector<ProgramRecord> records;
  for (std::size_t i = 0; i < samples[0]->nodes.size(); ++i) {
    ProgramRecord r = record(samples, i);
    if (samples[0]->nodes[i].subgraphs != nullptr) r.functions = add_functions(samples, i, file, functions);
    records.push_back(std::move(r));
  }
  return records;
}

std::vector<std::uint32_t> ExportSamples::add_functions(const Samples& samples, std::size_t at, ProgramFile& file,
                                                        std::vector<SampledFunction>& functions) const {
  std::vector<std::uint32_t> numbers;
  for (std::size_t number = 0; number < samples[0]->nodes[at].subgraphs->size(); ++number) {
    SampledFunction function;
    Samples programs;
    for (const Program* const p : samples) {
      function.push_back(&captured((*p->nodes[at].subgraphs)[number]));
      programs.push_back(&function.back()->program());
      if (!function.back()->has_structure_of(*function.front())) throw_other_calls(*programs[0], *programs.back());
    }
    ProgramFunction made;
    made.arguments = static_cast<std::uint32_t>(function[0]->arguments().size());
    for (const std::size_t output : function[0]->outputs()) made.results.push_back(static_cast<std::uint32_t>(output));
    made.records = records(programs, file, functions);
    numbers.push_back(static_cast<std::uint32_t>(functions.size()));
    functions.push_back(std::move(function)), file.functions.push_back(std::move(made));
  }
  return numbers;
}

SizeExpression ExportSamples::expression(const Samples& samples, std::size_t at,
                                         const std::vector<std::int64_t>& values, std::string_view what) const {
  const auto search = search_for(samples, at);
  if (const auto x = search.find(values)) return *x;
  const ProgramNode& n = samples[0]->nodes[at];
  throw UnsupportedError(
      2223, format_error(2223, "UnsupportedError",
                         fmt::format("export_program: {} of {} depends on the dynamic sizes in a way that cannot be "
                                     "expressed",
                                     what, name(n.op)),
                         {}, n.where, "supported are sums and products of sizes, and division rounded down"));
}

SizeSearch ExportSamples::search_for_symbols() const {
  SizeSearch search(recordings_.size());
  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    std::vector<std::int64_t> values;
    for (const auto& sizes : sizes_) values.push_back(sizes[s]);
    search.add({SizeVariable::kSymbol, static_cast<std::uint32_t>(s)}, std::move(values));
  }
  return search;
}

SizeSearch ExportSamples::search_for(const Samples& samples, std::size_t at) const {
  SizeSearch search = search_for_symbols();
  const std::vector<ProgramNode>& nodes = samples[0]->nodes;
  std::vector<std::size_t> ancestors{at};
  for (std::size_t next = 0; next < ancestors.size() && ancestors.size() < kMostAncestors; ++next)
    for (const std::uint32_t in : nodes[ancestors[next]].operands)
      if (in != Walk::kScalarOperand && std::ranges::find(ancestors, in) == ancestors.end()) ancestors.push_back(in);
  for (const std::size_t a : ancestors) {
    if (a == at) continue;
    for (unsigned axis = 0; axis < nodes[a].type.type.shape.rank(); ++axis) {
      std::vector<std::int64_t> values;
      for (const Program* const p : samples) values.push_back(p->nodes[a].type.type.shape[axis]);
      search.add({static_cast<std::uint32_t>(a), axis}, std::move(values));
    }
  }
  return search;
}

ProgramRecord ExportSamples::record(const Samples& samples, std::size_t at) const {
  const ProgramNode& n = samples[0]->nodes[at];
  const TensorType& type = n.type.type;
  ProgramRecord r{.op = n.op, .dtype = type.dtype, .rank = static_cast<std::uint8_t>(type.shape.rank())};
  if (is_external(n.op)) {
    if (!is_pointwise(n.op))
      throw_not_exported(fmt::format("{} is a custom operator with its own kernel", name(n.op)), n.where,
                         "define it by a formula (m.pointwise), which becomes part of the program");
    r.op = Op::add;  // pointwise ops stand for each other
  }
  for (const std::uint32_t in : n.operands)
    if (in != Walk::kScalarOperand) r.operands.push_back(in);
  const auto values = [&](auto&& of) {
    std::vector<std::int64_t> list;
    for (const Program* const p : samples) list.push_back(of(p->nodes[at]));
    return list;
  };
  if (n.leaf >= 0) {
    const Place& place = samples[0]->leaves[static_cast<std::size_t>(n.leaf)];
    // What a function reads are its arguments, which its calls give types to.
    if (place.is_of_argument() && samples[0] != &first().program) {
      r.argument = static_cast<std::uint32_t>(place.argument);
      return r;
    }
    if (place.hidden.defined()) require_same_constants(samples, at);
  }
  if (n.op == Op::unpack && samples[0]->nodes[n.operands[0]].subgraphs != nullptr) {
    r.attributes.push_back({.offset = result_number(*samples[0], n)});
    return r;
  }
  if (n.op == Op::input || traits(r.op).takes_shape)
    for (unsigned axis = 0; axis < type.shape.rank(); ++axis)
      r.sizes.push_back(
          expression(samples, at, values([&](const ProgramNode& x) { return x.type.type.shape[axis]; }), "a size"));
  for (std::size_t i = 0; i < n.attributes.size(); ++i)
    r.attributes.push_back(
        expression(samples, at, values([&](const ProgramNode& x) { return x.attributes[i]; }), "an attribute"));
  for (std::size_t i = 0; i < n.scalars.size(); ++i) {
    std::vector<std::uint64_t> bits;
    for (const Program* const p : samples) bits.push_back(p->nodes[at].scalars[i]);
    const DType dtype = scalar_argument_count(n.op) != 0 && draws_numbers(n.op) ? DType::u64 : n.scalar_dtype;
    const auto x = n.is_drawn ? NumberExpression{} : search_for(samples, at).find(bits, dtype);
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

std::vector<ProgramDraw> ExportSamples::draws(const Plan& plan) const { return draws(plan, samples()); }

std::vector<ProgramDraw> ExportSamples::draws(const Plan& plan, const SampledFunction& function) const {
  Samples programs;
  for (const CapturedFunction* const f : function) programs.push_back(&f->program());
  return draws(plan, programs);
}

std::vector<ProgramDraw> ExportSamples::draws(const Plan& plan, const Samples& samples) const {
  std::vector<ProgramDraw> draws;
  for (std::size_t slot = 0; slot < plan.scalars.size(); ++slot) {
    const ScalarSource& s = plan.scalars[slot];
    if (!samples[0]->nodes[s.record].is_drawn) continue;
    ProgramDraw& d = draws.emplace_back(ProgramDraw{.slot = static_cast<std::uint32_t>(slot), .is_key = s.index == 0});
    if (d.is_key) continue;
    std::vector<std::int64_t> deltas;
    for (const Program* const p : samples) deltas.push_back(static_cast<std::int64_t>(p->nodes[s.record].scalars[1]));
    const SizeSearch search = search_for_symbols();
    const auto delta = search.find(deltas);
    if (!delta)
      throw UnsupportedError(
          2223, format_error(
                    2223, "UnsupportedError",
                    "export_program: the offset of random numbers depends on the dynamic sizes in a way that cannot be "
                    "expressed",
                    {}, samples[0]->nodes[s.record].where, "draw a multiple of 4 numbers, or draw all in one call"));
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
