// See fermata/nn/module.h.
#include "fermata/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "fermata/autograd.h"
#include "fermata/device.h"
#include "fermata/nn/quantized.h"
#include "fermata/ops.h"
#include "fermata/quantized.h"
#include "fermata/sync.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata::nn::detail {
namespace {

constexpr std::size_t kShown = 8;  // names of a kind in a message

/// "  missing   a.weight, a.bias and 3 more".
void add_names(std::vector<ErrorOperand>& lines, std::string_view label, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string text = fmt::format(
      "{}",
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())), ", "));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  lines.push_back({label, std::move(text), ""});
}

/// The tensor takes the place of the one that is there, with its wish for a gradient.
void replace(Tensor& place, Tensor by, Location where) {
  const bool wanted = place.requires_grad(where);
  place = std::move(by);
  if (wanted) place.requires_grad(true, where);
}

/// The value of a tensor of a state dict in the dtype and on the device of the one whose place it takes.
Tensor for_place(const Tensor& place, const Tensor& value, Location where) {
  return fermata::to(astype(value, place.dtype(), where), device(place, where), where);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> named(const Parts& parts, bool buffers) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const NamedPart& part : parts.tensors)
    if (part.is_buffer == buffers && part.tensor->defined()) all.emplace_back(part.name, *part.tensor);
  return all;
}

NamedTensors state_dict(const Parts& parts) {
  NamedTensors state;
  for (const NamedPart& part : parts.tensors)
    if (part.tensor->defined()) state.emplace(part.name, *part.tensor);
  return state;
}

void load_state_dict(const Parts& parts, const NamedTensors& state, const LoadOptions& options, Location where) {
  std::vector<std::string> missing, unknown, shapes;
  std::set<std::string, std::less<>> known;
  for (const NamedPart& part : parts.tensors) {
    if (!part.tensor->defined()) continue;
    known.insert(part.name);
    const auto found = state.find(part.name);
    if (found == state.end()) {
      missing.push_back(part.name);
      continue;
    }
    require_defined("load_state_dict", found->second, where);
    if (found->second.shape() != part.tensor->shape())
      shapes.push_back(
          fmt::format("{} ({}, not {})", part.name, to_string(found->second.shape()), to_string(part.tensor->shape())));
  }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name)) unknown.push_back(name);
  if (!shapes.empty() || (options.strict && !(missing.empty() && unknown.empty()))) {
    std::vector<ErrorOperand> lines;
    if (options.strict) add_names(lines, "missing", missing), add_names(lines, "unknown", unknown);
    add_names(lines, "shapes", shapes);
    throw ValueError(
        1380, format_error(1380, "ValueError", "load_state_dict: the tensors do not match the module", lines, where,
                           shapes.empty() ? "{.strict = false} loads the ones that match" : ""));
  }
  const NoGradGuard no_history;
  for (const NamedPart& part : parts.tensors) {
    const auto found = state.find(part.name);
    if (!part.tensor->defined() || found == state.end()) continue;
    const Tensor value = found->second.detach(where);
    if (has_quantized_weights(value)) {
      *part.tensor = for_place(*part.tensor, value, where);  // which wants no gradient
    } else if (options.assign || has_quantized_weights(*part.tensor)) {
      replace(*part.tensor, for_place(*part.tensor, value, where), where);
    } else {
      part.tensor->assign({fermata::to(value, device(*part.tensor, where), where), where});
    }
  }
}

void convert(const Parts& parts, DType dtype, Location where) {
  if (!is_floating(dtype))
    throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("to: does not take {}", name(dtype)), {}, where,
                                        "parameters must be floating"));
  const NoGradGuard no_history;
  for (const NamedPart& part : parts.tensors)
    if (part.tensor->defined() && is_floating(part.tensor->dtype()) && part.tensor->dtype() != dtype)
      replace(*part.tensor, astype(part.tensor->detach(where), dtype, where), where);
}

void move(const Parts& parts, Device device, Location where) {
  const NoGradGuard no_history;
  for (const NamedPart& part : parts.tensors)
    if (part.tensor->defined() && fermata::device(*part.tensor, where) != device)
      replace(*part.tensor, fermata::to(part.tensor->detach(where), device, where), where);
}

void mark(const Parts& parts, std::string_view prefix, bool wants_gradient, Location where) {
  bool any = false;
  for (const NamedPart& part : parts.tensors) {
    if (part.is_buffer || !part.tensor->defined() || !part.name.starts_with(prefix)) continue;
    any = true;
    if (has_quantized_weights(*part.tensor)) continue;  // these want none, ever
    part.tensor->requires_grad(wants_gradient, where);
    if (!wants_gradient) part.tensor->zero_grad(where);
  }
  if (any) return;
  std::vector<ErrorOperand> lines;
  std::vector<std::string> names;
  for (const NamedPart& part : parts.tensors)
    if (!part.is_buffer && part.tensor->defined()) names.push_back(part.name);
  add_names(lines, "names", names);
  throw ValueError(1381, format_error(1381, "ValueError",
                                      fmt::format("{}: no parameter has a name that begins with '{}'",
                                                  wants_gradient ? "unfreeze" : "freeze", prefix),
                                      lines, where));
}

std::vector<Tensor> stacked(const std::vector<std::vector<Tensor>>& models, Location where) {
  const bool same = !models.empty() && std::all_of(models.begin(), models.end(),
                                                   [&](const auto& m) { return m.size() == models[0].size(); });
  if (!same)
    throw ValueError(1382,
                     format_error(1382, "ValueError", "stack: requires modules with the same tensors", {}, where));
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < models[0].size(); ++i) {
    std::vector<Tensor> parts;
    for (const auto& model : models) parts.push_back(model[i].detach(where));
    const NoGradGuard no_history;
    Tensor joined = fermata::stack(parts, 0, where);
    if (models[0][i].requires_grad(where)) joined.requires_grad(true, where);
    all.push_back(std::move(joined));
  }
  return all;
}

void quantize(Tensor& weight, const WeightFormat& format, Location where) {
  if (weight.defined()) weight = quantize_weight(weight, format, where);
}

Tensor cloned(const Tensor& x, Location where) {
  const NoGradGuard no_history;
  Tensor own = copy(x.detach(where), where);
  if (x.requires_grad(where)) own.requires_grad(true, where);
  return own;
}

}  // namespace fermata::nn::detail
