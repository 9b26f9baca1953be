// See fermata/training_file.h.
//
// Tensors are "model.<name>", "optimizer.<number>" and "other.<name>"; numbers and notes are metadata.
#include "fermata/training_file.h"

#include <fmt/format.h>
#include <new>

#include <array>
#include <charconv>
#include <string_view>

#include "fermata/autograd.h"
#include "fermata/device.h"
#include "fermata/random.h"
#include "fermata/sync.h"
#include "frontend/engine/no_memory.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"

namespace fermata::detail {
namespace {

constexpr const char* kLoad = "load_training";
constexpr std::string_view kModel = "model.", kOptimizer = "optimizer.", kOther = "other.", kNote = "note.";
constexpr std::string_view kFormat = "fermata.training", kVersion = "1";

/// Numbers that are decimal text, separated by spaces.
template <class T, std::size_t N>
std::array<T, N> numbers_of(const std::string& path, const Metadata& metadata, const std::string& key, Location where) {
  std::array<T, N> numbers{};
  const auto found = metadata.find(key);
  const std::string_view text = found == metadata.end() ? std::string_view() : found->second;
  const char *at = text.data(), *const end = at + text.size();
  for (T& number : numbers) {
    while (at != end && *at == ' ') ++at;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc()) throw_malformed(kLoad, path, fmt::format("has no valid {}", key), where);
    at = stop;
  }
  return numbers;
}

void check_optimizer(const SafetensorsFile& file, const std::string& path, const std::vector<Tensor>& optimizer,
                     Location where) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(1384, format_error(1384, "ValueError", fmt::format("{}: {}: {}", kLoad, path, what), {}, where));
  };
  std::size_t there = 0;
  for (const std::string& name : file.names()) there += name.starts_with(kOptimizer);
  if (there != optimizer.size())
    fail(fmt::format("has {} optimizer tensors, but this optimizer has {}", there, optimizer.size()));
  for (std::size_t i = 0; i < optimizer.size(); ++i) {
    const std::string name = fmt::format("{}{}", kOptimizer, i);
    if (!file.contains(name)) fail(fmt::format("has no tensor '{}'", name));
    const Tensor saved = file.tensor_like(name, optimizer[i], where);
    if (saved.shape() != optimizer[i].shape() || saved.dtype() != optimizer[i].dtype())
      fail(fmt::format("'{}' is {}, but this optimizer has {}", name, to_string(saved.dtype(), saved.shape()),
                       to_string(optimizer[i].dtype(), optimizer[i].shape())));
  }
}

}  // namespace

void save_training(const std::string& path, const NamedTensors& model, const std::vector<Tensor>& optimizer,
                   const TrainingState& state, Location where) try {
  NamedTensors all;
  for (const auto& [name, x] : model) all.emplace(std::string(kModel) + name, x);
  for (std::size_t i = 0; i < optimizer.size(); ++i) all.emplace(fmt::format("{}{}", kOptimizer, i), optimizer[i]);
  for (const auto& [name, x] : state.tensors) all.emplace(std::string(kOther) + name, x);
  const Generator& random = default_generator();
  Metadata metadata{{std::string(kFormat), std::string(kVersion)},
                    {"fermata.step", std::to_string(state.step)},
                    {"fermata.data", fmt::format("{} {}", state.data.epoch, state.data.batch)},
                    {"fermata.random", fmt::format("{} {}", random.key(), random.offset())}};
  for (const auto& [key, text] : state.notes) metadata.emplace(std::string(kNote) + key, text);
  save_safetensors(path, all, metadata, where);
} catch (const std::bad_alloc&) { throw_no_memory("save_training", where); }

TrainingState load_training(const std::string& path, const nn::detail::Parts& model,
                            const std::vector<Tensor>& optimizer, Location where) {
  const SafetensorsFile file = open_safetensors(kLoad, path, where);
  const Metadata& metadata = file.metadata();
  const auto version = metadata.find(std::string(kFormat));
  if (version == metadata.end() || version->second != kVersion)
    throw_malformed(kLoad, path, "is not a training run of this version", where);

  TrainingState state;
  state.step = numbers_of<std::int64_t, 1>(path, metadata, "fermata.step", where)[0];
  const auto data = numbers_of<std::int64_t, 2>(path, metadata, "fermata.data", where);
  state.data = {data[0], data[1]};
  const auto random = numbers_of<std::uint64_t, 2>(path, metadata, "fermata.random", where);
  for (const auto& [key, text] : metadata)
    if (key.starts_with(kNote)) state.notes.emplace(key.substr(kNote.size()), text);

  NamedTensors of_model, parts;
  for (const nn::detail::NamedPart& part : model.tensors)
    if (part.tensor->defined()) parts.emplace(part.name, *part.tensor);
  for (const std::string& name : file.names()) {
    if (name.starts_with(kModel)) {
      const std::string own = name.substr(kModel.size());
      const auto part = parts.find(own);
      of_model.emplace(own,
                       part == parts.end() ? file.tensor(name, where) : file.tensor_like(name, part->second, where));
    }
    if (name.starts_with(kOther)) state.tensors.emplace(name.substr(kOther.size()), file.tensor(name, where));
  }
  check_optimizer(file, path, optimizer, where);
  // Everything is there and fits. The model is checked before it is written.
  nn::detail::load_state_dict(model, of_model, {}, where);
  const NoGradGuard no_history;
  std::vector<Tensor> written = optimizer;
  for (std::size_t i = 0; i < optimizer.size(); ++i) {
    const Tensor saved = file.tensor_like(fmt::format("{}{}", kOptimizer, i), optimizer[i], where);
    optimizer[i].assign({to(saved, device(optimizer[i], where), where), where});
  }
  for (const nn::detail::NamedPart& part : model.tensors)
    if (part.tensor->defined()) written.push_back(*part.tensor);
  sync(written, where);
  Generator restored(random[0]);
  restored.set_offset(random[1]);
  default_generator() = restored;
  return state;
}

}  // namespace fermata::detail
