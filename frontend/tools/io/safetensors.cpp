// Reading safetensors files and their indices. See fermata/safetensors.h.
#include "fermata/safetensors.h"

#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/no_memory.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "frontend/tools/io/mapped_file.h"
#include "frontend/tools/io/packed_bits.h"
#include "frontend/tools/io/safetensors_blocks.h"
#include "frontend/tools/io/safetensors_header.h"
#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

struct Shard {
  std::shared_ptr<const MappedFile> file;
  SafetensorsHeader header;
};
Shard open_shard(std::string_view function, const std::string& path, Location where) {
  auto file = MappedFile::open(function, path, where);
  SafetensorsHeader header = read_safetensors_header(function, path, file->bytes(), where);
  return {std::move(file), std::move(header)};
}

/// {"metadata": .., "weight_map": {"name": "file"}}
struct Index {
  std::map<std::string, std::string> files;  // by tensor or block
  std::string blocks;                        // the number of a save by blocks
};
Index read_index(std::string_view function, const std::string& path, std::string_view text, Location where) {
  using Kind = JsonEvent::Kind;
  Index index;
  std::map<std::string, std::string>& map = index.files;
  std::string section, name;
  int depth = 0;
  const auto fail = [&](std::string_view what) { throw_malformed(function, path, what, where); };
  const std::string error = read_json(text, [&](const JsonEvent& event) {
    const bool in_map = depth == 2 && section == "weight_map";
    switch (event.kind) {
      case Kind::begin_object:
      case Kind::begin_array: ++depth; return;
      case Kind::end_object:
      case Kind::end_array: --depth; return;
      case Kind::key:
        if (depth == 1) section = event.text;
        if (depth == 2) name = event.text;
        return;
      default: break;
    }
    if (depth == 2 && section == "metadata" && name == kBlocksNote && event.kind == Kind::text)
      index.blocks = event.text;
    if (!in_map) return;
    // A name of a file of this folder, and no way out of it.
    const bool is_plain = event.kind == Kind::text && !event.text.empty() && event.text != ".." &&
                          event.text.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
    if (!is_plain) fail(fmt::format("tensor '{}' is in a file outside this folder", name.substr(0, 80)));
    if (!map.emplace(name, event.text).second) fail(fmt::format("tensor '{}' occurs twice", name.substr(0, 80)));
  });
  if (!error.empty()) fail(error);
  if (map.empty()) fail("has no weight_map");
  return index;
}

struct StoredBlock {
  Region region;
  const Shard* shard;
  const SafetensorsEntry* entry;
};
struct BlockedTensor {
  Shape whole;
  std::vector<StoredBlock> blocks;
};

/// What is wrong with the blocks of a tensor, which are those of a grid and cover it; empty if nothing is. Only the
/// last blocks along an axis may be shorter than others.
std::string problem_of(const BlockedTensor& x) {
  const StoredBlock& first = x.blocks[0];
  const unsigned rank = x.whole.rank();
  std::set<std::vector<std::int64_t>> begins;
  std::vector<std::map<std::int64_t, std::int64_t>> ends(rank);  // by axis and begin
  for (const StoredBlock& b : x.blocks) {
    if (b.entry->code != first.entry->code) return "has blocks of two types";
    if (b.entry->shape != b.region.sizes)
      return fmt::format("has a block of {}, not {}", to_string(b.entry->shape), to_string(b.region.sizes));
    for (unsigned i = 0; i < rank; ++i) {
      const std::int64_t begin = b.region.begin[i], end = begin + b.region.sizes[i];
      if (ends[i].try_emplace(begin, end).first->second != end) return "has blocks that overlap";
    }
    begins.emplace(b.region.begin.begin(), b.region.begin.end());
  }
  if (begins.size() != x.blocks.size()) return "has a duplicate block";
  const auto lacks = [](unsigned axis, std::int64_t from, std::int64_t to) {
    return fmt::format("lacks the blocks of elements {} to {} of axis {}", from, to, axis);
  };
  std::int64_t wanted = 1;
  for (unsigned i = 0; i < rank; ++i) {
    std::int64_t covered = 0;
    for (const auto& [begin, end] : ends[i]) {
      if (begin < covered) return "has blocks that overlap";
      if (begin > covered) return lacks(i, covered, begin);
      covered = end;
    }
    if (covered < x.whole[i]) return lacks(i, covered, x.whole[i]);
    wanted *= std::ssize(ends[i]);
  }
  if (std::ssize(x.blocks) != wanted) return fmt::format("has {} of its {} blocks", x.blocks.size(), wanted);
  return {};
}

}  // namespace

struct SafetensorsFile::State {
  const char* function;  // of the caller, for errors
  std::string path;
  std::vector<Shard> shards;
  std::map<std::string, const Shard*> tensors;
  std::map<std::string, BlockedTensor> blocked;
  Metadata metadata;

  /// Elements of a shard as they are stored.
  Tensor elements(const Shard& shard, const SafetensorsEntry& entry, const std::string& name, Location where) const;
  Tensor region(const BlockedTensor& x, const Region& region, const std::string& name, Location where) const;
};

Tensor SafetensorsFile::State::elements(const Shard& shard, const SafetensorsEntry& entry, const std::string& name,
                                        Location where) const {
  if (!entry.dtype)
    throw UnsupportedError(
        2003, format_error(2003, "UnsupportedError",
                           fmt::format("{}: {}: tensor '{}' has elements of type {}", function, path, name, entry.code),
                           {}, where));
  const std::string_view bytes = shard.file->bytes().substr(entry.begin, entry.end - entry.begin);
  if (bit_width(*entry.dtype) < 8) return unpacked_elements(bytes, *entry.dtype, entry.shape);
  return tensor_over(shard.file, bytes, *entry.dtype, entry.shape);
}

Tensor SafetensorsFile::State::region(const BlockedTensor& x, const Region& wanted, const std::string& name,
                                      Location where) const {
  const auto overlaps = [&](const Region& block) {
    for (unsigned i = 0; i < wanted.begin.rank(); ++i)
      if (block.begin[i] >= wanted.begin[i] + wanted.sizes[i] || wanted.begin[i] >= block.begin[i] + block.sizes[i])
        return false;
    return true;
  };
  for (const StoredBlock& b : x.blocks)  // the mapping itself, where it is a block of the file
    if (b.region.begin == wanted.begin && b.region.sizes == wanted.sizes)
      return elements(*b.shard, *b.entry, name, where);
  const StoredBlock& first = x.blocks[0];
  const DType dtype =
      first.entry->dtype ? *first.entry->dtype : elements(*first.shard, *first.entry, name, where).dtype();
  void* data = nullptr;
  Tensor result = new_tensor(dtype, wanted.sizes, &data);
  for (const StoredBlock& b : x.blocks) {
    if (!overlaps(b.region)) continue;
    const HostElements block(elements(*b.shard, *b.entry, name, where), function, where);
    copy_common(static_cast<const std::byte*>(block.data()), b.region, static_cast<std::byte*>(data), wanted,
                byte_size(dtype));
  }
  return result;
}

SafetensorsFile::SafetensorsFile(const std::string& path, Location where)
    : SafetensorsFile("SafetensorsFile", path, where) {}

SafetensorsFile::SafetensorsFile(const char* function, const std::string& path, Location where) try
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.function = function, s.path = path;
  if (!path.ends_with(".json")) {
    s.shards.push_back(open_shard(function, path, where));
    for (const auto& [name, entry] : s.shards[0].header.entries) s.tensors.emplace(name, s.shards.data());
    s.metadata = s.shards[0].header.metadata;
    return;
  }
  const auto index = MappedFile::open(function, path, where);
  const auto [files, blocks] = read_index(function, path, index->bytes(), where);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  std::map<std::string, std::size_t> number;
  for (const std::string& name : names) {
    number.emplace(name, s.shards.size());
    s.shards.push_back(open_shard(function, (std::filesystem::path(path).parent_path() / name).string(), where));
    Metadata& metadata = s.shards.back().header.metadata;
    if (const auto of = metadata.find(std::string(kBlocksNote));
        !blocks.empty() && (of == metadata.end() || of->second != blocks))
      throw_malformed(function, path, fmt::format("refers to {}, which belongs to another save", name), where);
    s.metadata.insert(metadata.begin(), metadata.end());
  }
  s.metadata.erase(std::string(kBlocksNote));
  for (const auto& [tensor, file] : files) {
    const Shard& shard = s.shards[number.at(file)];
    if (!shard.header.entries.contains(tensor))
      throw_malformed(function, path, fmt::format("tensor '{}' is not in {}", tensor, file), where);
    bool is_valid = true;
    const std::optional<BlockName> block = blocks.empty() ? std::nullopt : parse_block_name(tensor, is_valid);
    if (!is_valid) throw_malformed(function, path, fmt::format("'{}' is not a valid block name", tensor), where);
    if (!block) {
      s.tensors.emplace(tensor, &shard);
      continue;
    }
    BlockedTensor& x = s.blocked.try_emplace(block->tensor, block->whole, std::vector<StoredBlock>()).first->second;
    if (x.whole != block->whole || s.tensors.contains(block->tensor))
      throw_malformed(function, path, fmt::format("tensor '{}' has blocks of two tensors", block->tensor), where);
    x.blocks.push_back({block->region, &shard, &shard.header.entries.at(tensor)});
  }
  for (const auto& [tensor, x] : s.blocked)
    if (const std::string problem = problem_of(x); !problem.empty())
      throw_malformed(function, path, fmt::format("tensor '{}' {}", tensor, problem), where);
} catch (const std::bad_alloc&) { throw_no_memory(function, where); }
SafetensorsFile detail::open_safetensors(const char* function, const std::string& path, Location where) {
  return {function, path, where};
}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, shard] : state_->tensors) all.push_back(name);
  for (const auto& [name, blocks] : state_->blocked) all.push_back(name);
  std::ranges::sort(all);
  return all;
}
bool SafetensorsFile::contains(const std::string& name) const {
  return state_->tensors.contains(name) || state_->blocked.contains(name);
}
const Metadata& SafetensorsFile::metadata() const { return state_->metadata; }

Tensor SafetensorsFile::tensor(const std::string& name, Location where) const try {
  if (const auto blocked = state_->blocked.find(name); blocked != state_->blocked.end()) {
    Shape begin = blocked->second.whole;
    std::ranges::fill(begin, 0);
    return state_->region(blocked->second, {begin, blocked->second.whole}, name, where);
  }
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end())
    throw ValueError(
        1383, format_error(1383, "ValueError", fmt::format("safetensors: {}: has no tensor '{}'", state_->path, name),
                           {}, where));
  const Shard& shard = *found->second;
  const SafetensorsEntry& entry = shard.header.entries.at(name);
  const Tensor stored = state_->elements(shard, entry, name, where);
  const auto note = state_->metadata.find(std::string(kWeightsNote) + name);
  if (note == state_->metadata.end()) return stored;
  const std::optional<Tensor> weights = weights_of_note(stored, note->second);
  if (!weights)
    throw_malformed(state_->function, state_->path,
                    fmt::format("tensor '{}' is not '{}'", name, note->second.substr(0, 80)), where);
  return *weights;
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile::tensor", where); }

Tensor SafetensorsFile::tensor_like(const std::string& name, const Tensor& like, Location where) const try {
  const ShardedValue* const value = like.impl()->payload == nullptr ? sharded_value(*like.node()) : nullptr;
  const auto blocked = state_->blocked.find(name);
  if (value == nullptr || blocked == state_->blocked.end() || blocked->second.whole != like.shape())
    return tensor(name, where);
  const MeshState& mesh = *value->mesh;
  const Region own{block_begin(like.shape(), value->sharding, mesh.axes, mesh.coordinates), value->block.shape()};
  return make_sharded(state_->region(blocked->second, own, name, where), like.shape(), value->mesh, value->sharding);
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile::tensor_like", where); }

NamedTensors SafetensorsFile::tensors(Location where) const try {
  NamedTensors all;
  for (const std::string& name : names()) all.emplace(name, tensor(name, where));
  return all;
} catch (const std::bad_alloc&) { throw_no_memory("SafetensorsFile::tensors", where); }

NamedTensors load_safetensors(const std::string& path, Location where) {
  return detail::open_safetensors("load_safetensors", path, where).tensors(where);
}

}  // namespace fermata
