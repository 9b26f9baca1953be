// Reading safetensors files and their indices. See fermata/safetensors.h.
#include "fermata/safetensors.h"

#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <filesystem>
#include <set>

#include "frontend/engine/no_memory.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "frontend/tools/io/mapped_file.h"
#include "frontend/tools/io/packed_bits.h"
#include "frontend/tools/io/safetensors_header.h"
#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

constexpr std::string_view kFunction = "load_safetensors";

struct Shard {
  std::shared_ptr<const MappedFile> file;
  SafetensorsHeader header;
};
Shard open_shard(const std::string& path, Location where) {
  auto file = MappedFile::open(kFunction, path, where);
  SafetensorsHeader header = read_safetensors_header(kFunction, path, file->bytes(), where);
  return {std::move(file), std::move(header)};
}

/// Which file each tensor is in, by an index: {"metadata": .., "weight_map": {"name": "file"}}.
std::map<std::string, std::string> read_index(const std::string& path, std::string_view text, Location where) {
  using Kind = JsonEvent::Kind;
  std::map<std::string, std::string> map;
  std::string section, name;
  int depth = 0;
  const auto fail = [&](std::string_view what) { throw_malformed(kFunction, path, what, where); };
  const std::string error = read_json(text, [&](const JsonEvent& event) {
    const bool in_map = depth == 2 && section == "weight_map";
    switch (event.kind) {
      case Kind::begin_object:
      case Kind::begin_array: ++depth; return;
      case Kind::end_object:
      case Kind::end_array: --depth; return;
      case Kind::key:
        if (depth == 1) section = event.text;
        if (in_map) name = event.text;
        return;
      default: break;
    }
    if (!in_map) return;
    // A name of a file of this folder, and no way out of it.
    const bool is_plain = event.kind == Kind::text && !event.text.empty() && event.text != ".." &&
                          event.text.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
    if (!is_plain) fail(fmt::format("tensor '{}' is in no file of this folder", name.substr(0, 80)));
    if (!map.emplace(name, event.text).second) fail(fmt::format("tensor '{}' is there twice", name.substr(0, 80)));
  });
  if (!error.empty()) fail(error);
  if (map.empty()) fail("has no weight_map");
  return map;
}

}  // namespace

struct SafetensorsFile::State {
  std::string path;
  std::vector<Shard> shards;
  std::map<std::string, const Shard*> tensors;
  Metadata metadata;
};

SafetensorsFile::SafetensorsFile(const std::string& path, Location where) try : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  if (!path.ends_with(".json")) {
    s.shards.push_back(open_shard(path, where));
    for (const auto& [name, entry] : s.shards[0].header.entries) s.tensors.emplace(name, s.shards.data());
    s.metadata = s.shards[0].header.metadata;
    return;
  }
  const auto index = MappedFile::open(kFunction, path, where);
  const std::map<std::string, std::string> files = read_index(path, index->bytes(), where);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  std::map<std::string, std::size_t> number;
  for (const std::string& name : names) {
    number.emplace(name, s.shards.size());
    s.shards.push_back(open_shard((std::filesystem::path(path).parent_path() / name).string(), where));
    s.metadata.insert(s.shards.back().header.metadata.begin(), s.shards.back().header.metadata.end());
  }
  for (const auto& [tensor, file] : files) {
    const Shard& shard = s.shards[number.at(file)];
    if (!shard.header.entries.contains(tensor))
      throw_malformed(kFunction, path, fmt::format("tensor '{}' is not in {}", tensor, file), where);
    s.tensors.emplace(tensor, &shard);
  }
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile", where); }
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, shard] : state_->tensors) all.push_back(name);
  return all;
}
bool SafetensorsFile::contains(const std::string& name) const { return state_->tensors.contains(name); }
const Metadata& SafetensorsFile::metadata() const { return state_->metadata; }

Tensor SafetensorsFile::tensor(const std::string& name, Location where) const try {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end())
    throw ValueError(
        1383, format_error(1383, "ValueError", fmt::format("safetensors: {}: has no tensor '{}'", state_->path, name),
                           {}, where));
  const Shard& shard = *found->second;
  const SafetensorsEntry& entry = shard.header.entries.at(name);
  if (!entry.dtype)
    throw UnsupportedError(2003, format_error(2003, "UnsupportedError",
                                              fmt::format("{}: {}: tensor '{}' has elements of type {}", kFunction,
                                                          state_->path, name, entry.code),
                                              {}, where));
  const std::string_view bytes = shard.file->bytes().substr(entry.begin, entry.end - entry.begin);
  if (bit_width(*entry.dtype) < 8) return unpacked_elements(bytes, *entry.dtype, entry.shape);
  const Tensor stored = tensor_over(shard.file, bytes, *entry.dtype, entry.shape);
  const auto note = state_->metadata.find(std::string(kWeightsNote) + name);
  if (note == state_->metadata.end()) return stored;
  const std::optional<Tensor> weights = weights_of_note(stored, note->second);
  if (!weights)
    throw_malformed(kFunction, state_->path, fmt::format("tensor '{}' is not '{}'", name, note->second.substr(0, 80)),
                    where);
  return *weights;
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile::tensor", where); }

NamedTensors SafetensorsFile::tensors(Location where) const try {
  NamedTensors all;
  for (const auto& [name, shard] : state_->tensors) all.emplace(name, tensor(name, where));
  return all;
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile::tensors", where); }

NamedTensors load_safetensors(const std::string& path, Location where) {
  return SafetensorsFile(path, where).tensors(where);
}

}  // namespace fermata
