// Models in ONNX files, as callers see them. What knows the format is a plugin, so that programs that read no ONNX need
// no protobuf. See fermata/onnx.h.
#include "fermata/onnx.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "frontend/onnx/plugin.h"
#include "frontend/tools/plugin_loader.h"
#include "ir/error.h"

namespace fermata::onnx {
namespace {

const LoadedPlugin<Plugin>& loaded() {
  static const auto& plugin = *new LoadedPlugin<Plugin>("libfermata_onnx.so", kPluginSymbol, kPluginVersion);
  return plugin;
}

const Plugin& plugin(Location where) {
  if (loaded().plugin == nullptr)
    throw UnsupportedError(
        2301, format_error(2301, "UnsupportedError", "onnx: cannot load libfermata_onnx: " + loaded().failure_reason,
                           {}, where));
  return *loaded().plugin;
}

[[noreturn]] void throw_call(const detail::Program& program, std::string_view what, Location where) {
  std::vector<ErrorOperand> operands;
  std::vector<std::string> texts;
  texts.reserve(program.inputs.size());
  for (const ValueInfo& input : program.inputs) {
    texts.push_back(to_string(input));
    operands.push_back({"input", texts.back(), {}});
  }
  throw ValueError(2304,
                   format_error(2304, "ValueError", fmt::format("onnx: {}: {}", program.path, what), operands, where));
}

void check_inputs(const detail::Program& program, const std::vector<Tensor>& inputs, Location where) {
  std::map<std::string, std::int64_t> named;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueInfo& wanted = program.inputs[i];
    if (!inputs[i].defined()) {
      if (!program.has_default[i]) throw_call(program, fmt::format("input '{}' is missing", wanted.name), where);
      continue;
    }
    const auto refuse = [&](const std::string& text) {
      throw_call(program,
                 fmt::format("input '{}' is {}, {}", wanted.name,
                             fermata::to_string(inputs[i].dtype(where), inputs[i].shape(where)), text),
                 where);
    };
    if (wanted.dtype && inputs[i].dtype(where) != *wanted.dtype)
      refuse(fmt::format("but the model takes {}", name(*wanted.dtype)));
    if (!wanted.sizes) continue;
    const Shape shape = inputs[i].shape(where);
    if (shape.rank() != wanted.sizes->size()) refuse(fmt::format("but the model takes {} axes", wanted.sizes->size()));
    for (unsigned axis = 0; axis < shape.rank(); ++axis) {
      const Dimension& d = (*wanted.sizes)[axis];
      if (d.size && *d.size != shape[axis]) refuse(fmt::format("but the model takes {} along axis {}", *d.size, axis));
      if (d.name.empty()) continue;
      const auto [entry, is_new] = named.emplace(d.name, shape[axis]);
      if (!is_new && entry->second != shape[axis])
        refuse(fmt::format("but '{}' is {} along another axis", d.name, entry->second));
    }
  }
}

}  // namespace

std::string to_string(const ValueInfo& value) {
  std::string text = value.name + " " + (value.dtype ? std::string(name(*value.dtype)) : "?");
  if (!value.sizes) return text;
  std::vector<std::string> sizes;
  for (const Dimension& d : *value.sizes)
    sizes.push_back(d.size ? std::to_string(*d.size) : d.name.empty() ? "?" : d.name);
  return fmt::format("{}[{}]", text, fmt::join(sizes, ", "));
}

Model::Model(std::shared_ptr<const detail::Program> program)
    : program_(std::move(program)), parameters_(program_->parameters), buffers_(program_->buffers) {}

const std::vector<ValueInfo>& Model::inputs() const { return program_->inputs; }
const std::vector<ValueInfo>& Model::outputs() const { return program_->outputs; }

std::vector<ValueInfo> Model::required_inputs() const {
  std::vector<ValueInfo> required;
  for (std::size_t i = 0; i < program_->inputs.size(); ++i)
    if (!program_->has_default[i]) required.push_back(program_->inputs[i]);
  return required;
}

std::vector<Tensor> Model::operator()(const std::vector<Tensor>& inputs, Location where) const {
  if (inputs.size() > program_->inputs.size())
    throw_call(*program_, fmt::format("{} inputs were given", inputs.size()), where);
  std::vector<Tensor> all = inputs;
  all.resize(program_->inputs.size());
  check_inputs(*program_, all, where);
  return program_->run(all, parameters_, buffers_, where);
}

NamedTensors Model::operator()(const NamedTensors& inputs, Location where) const {
  std::vector<Tensor> all(program_->inputs.size());
  for (const auto& [name, tensor] : inputs) {
    const auto found = std::ranges::find(program_->inputs, name, &ValueInfo::name);
    if (found == program_->inputs.end()) throw_call(*program_, fmt::format("no input named '{}'", name), where);
    all[static_cast<std::size_t>(found - program_->inputs.begin())] = tensor;
  }
  std::vector<Tensor> results = (*this)(all, where);
  NamedTensors named;
  for (std::size_t i = 0; i < results.size(); ++i) named.emplace(program_->outputs[i].name, std::move(results[i]));
  return named;
}

Tensor Model::forward(const Tensor& x, Location where) const {
  std::vector<Tensor> all(program_->inputs.size());
  std::size_t place = all.size();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!program_->has_default[i] && place == all.size()) place = i;
  if (place == all.size()) throw_call(*program_, "the model takes no input", where);
  all[place] = x;
  return (*this)(all, where).at(0);
}

Model load(const std::string& path, Location where) { return Model(plugin(where).load(path, where)); }

void save(const Trace& trace, const std::string& path, const SaveOptions& options, Location where) {
  plugin(where).save({&trace, 1}, path, options, where);
}

std::vector<std::vector<Tensor>> detail::dynamic_samples(SaveOptions& options, std::span<const Tensor> arguments) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(5745, format_error(5745, "ValueError", fmt::format("onnx: {}", what), {}, options.where));
  };
  struct Size {
    std::size_t argument;
    std::int64_t axis;
    std::string name;
  };
  std::vector<Size> sizes;
  std::vector<std::string> names;
  for (DynamicAxis& d : options.dynamic) {
    std::size_t argument = 0;
    const auto name_of = [&](std::size_t i) {
      return i < options.input_names.size() ? options.input_names[i] : fmt::format("x{}", i);
    };
    while (argument < arguments.size() && name_of(argument) != d.input) ++argument;
    if (argument == arguments.size()) fail(fmt::format("no input named '{}' for a dynamic axis", d.input));
    const std::int64_t rank = arguments[argument].rank();
    if (d.axis < -rank || d.axis >= rank)
      fail(fmt::format("input '{}' of {} axes has no axis {}", d.input, rank, d.axis));
    if (d.axis < 0) d.axis += rank;
    if (d.name.empty()) d.name = fmt::format("{}_axis{}", d.input, d.axis);
    const auto other = std::ranges::find(sizes, d.name, &Size::name);
    if (other == sizes.end())
      names.push_back(d.name);
    else if (arguments[other->argument].size(other->axis) != arguments[argument].size(d.axis))
      fail(fmt::format("axes of the name '{}' have the sizes {} and {}", d.name,
                       arguments[other->argument].size(other->axis), arguments[argument].size(d.axis)));
    sizes.push_back({argument, d.axis, d.name});
  }
  // An axis of one element would be broadcast. Multiples keep what divides a size.
  const auto sample = [&](const auto& times) {
    std::vector<Tensor> all(arguments.begin(), arguments.end());
    for (const Size& s : sizes) {
      const std::int64_t size = arguments[s.argument].size(s.axis),
                         wanted = std::max<std::int64_t>(size, 2) * times(s.name);
      if (size == wanted) continue;
      if (size == 0) fail(fmt::format("a dynamic axis '{}' of no elements", s.name));
      const Tensor places =
          remainder({iota({wanted}, 0, all[s.argument].device(), options.where), options.where}, size);
      all[s.argument] = take(all[s.argument], places, s.axis, options.where).detach();
    }
    return all;
  };
  std::vector<std::vector<Tensor>> samples{sample([](const std::string&) { return 1; })};
  for (const std::string& changed : names)
    samples.push_back(sample([&](const std::string& n) { return n == changed ? 2 : 1; }));
  samples.push_back(sample([](const std::string&) { return 3; }));
  return samples;
}

void detail::save_dynamic(std::span<const Trace> traces, const std::string& path, const SaveOptions& options) {
  plugin(options.where).save(traces, path, options, options.where);
}

std::vector<OperatorInfo> operators(Location where) { return plugin(where).operators(); }

bool available(std::string* reason) {
  if (reason != nullptr) *reason = loaded().failure_reason;
  return loaded().plugin != nullptr;
}

}  // namespace fermata::onnx
