// Writing safetensors files, tensor by tensor: no more than one is copied at a time.
#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "fermata/safetensors.h"
#include "fermata/sync.h"
#include "frontend/engine/no_memory.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/atomic_file.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "frontend/tools/io/packed_bits.h"
#include "frontend/tools/io/safetensors_blocks.h"
#include "frontend/tools/io/safetensors_header.h"
#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

constexpr std::size_t kAlignment = 8;
using Entries = std::vector<std::pair<std::string_view, Tensor>>;

std::size_t bytes_of(const Tensor& x) { return stored_bytes(x.dtype(), x.element_count()); }

/// Tensors and notes as a file has them: of quantized weights their bytes, and how they lie.
struct Contents {
  NamedTensors tensors;
  Metadata metadata;

  Contents(std::string_view function, const NamedTensors& given, const Metadata& notes, Location where)
      : tensors(given), metadata(notes) {
    for (auto& [name, x] : tensors) {
      require_defined(function, x, where);
      const WeightPayload* const weights = weight_payload(x);
      if (weights == nullptr) continue;
      metadata.insert_or_assign(std::string(kWeightsNote) + name, weights_note(x));
      x = Tensor(weights->bytes);
    }
  }
};

/// Those that are there, largest elements first, so that every tensor is aligned.
Entries entries_of(std::string_view function, const NamedTensors& tensors, Location where) {
  Entries entries;
  std::vector<Tensor> all;
  for (const auto& [name, x] : tensors) {
    require_defined(function, x, where);
    if (safetensors_code(x.dtype()).empty())
      throw_dtype(function, x.dtype(), fmt::format("the format has no such dtype: '{}'", name), where);
    if (static_cast<std::size_t>(x.element_count()) * bit_width(x.dtype()) % 8 != 0)
      throw ValueError(
          1356, format_error(1356, "ValueError",
                             fmt::format("{}: '{}' has {} elements of {} bits, which is not a whole number of bytes",
                                         function, name, x.element_count(), bit_width(x.dtype())),
                             describe(x), where));
    entries.emplace_back(name, x);
    all.push_back(x);
  }
  sync(all, where);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return byte_size(a.second.dtype()) > byte_size(b.second.dtype());
  });
  return entries;
}

std::string header_of(const Entries& entries, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += fmt::format("{}:{},", json_text(key), json_text(value));
    text.back() = '}';
    text += ',';
  }
  std::size_t at = 0;
  for (const auto& [name, x] : entries) {
    const Shape shape = x.shape();
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", json_text(name),
                        safetensors_code(x.dtype()), fmt::join(shape.begin(), shape.end(), ","), at, at + bytes_of(x));
    at += bytes_of(x);
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

void write(std::string_view function, const std::string& path, const Entries& entries, const Metadata& metadata,
           Location where) {
  const std::string header = header_of(entries, metadata);
  const std::uint64_t length = header.size();
  AtomicFile file(function, path, where);
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  for (const auto& [name, x] : entries) {
    if (bytes_of(x) == 0) continue;
    if (bit_width(x.dtype()) < 8) {
      file.write(packed_elements(x, where));
      continue;
    }
    const HostElements elements(x, "save_safetensors", where);
    file.write({static_cast<const char*>(elements.data()), bytes_of(x)});
  }
  file.commit();
}

}  // namespace

/// Elements of 4 bits are two in a byte.
std::size_t stored_bytes(DType dtype, std::int64_t elements) {
  const auto count = static_cast<std::size_t>(elements);
  return bit_width(dtype) < 8 ? packed_bytes(dtype, count) : count * byte_size(dtype);
}

void write_safetensors(std::string_view function, const std::string& path, const NamedTensors& tensors,
                       const Metadata& metadata, Location where) {
  write(function, path, entries_of(function, tensors, where), metadata, where);
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                      Location where) try {
  const Contents all("save_safetensors", tensors, metadata, where);
  if (path.ends_with(".json")) return save_blocks(path, all.tensors, all.metadata, where);
  write("save_safetensors", path, entries_of("save_safetensors", all.tensors, where), all.metadata, where);
} catch (const std::bad_alloc&) { throw_no_memory("save_safetensors", where); }

std::string save_safetensors_sharded(const std::string& path, const NamedTensors& given, std::int64_t shard_bytes,
                                     const Metadata& notes, Location where) {
  constexpr std::string_view kFunction = "save_safetensors_sharded";
  if (shard_bytes < 1)
    throw ValueError(1377, format_error(1377, "ValueError",
                                        fmt::format("{}: a shard has {} bytes", kFunction, shard_bytes), {}, where));
  const auto [tensors, metadata] = Contents(kFunction, given, notes, where);
  std::vector<NamedTensors> shards(1);
  std::size_t filled = 0, total = 0;
  for (const auto& [name, x] : tensors) {
    const std::size_t bytes = bytes_of(x);
    if (filled > 0 && filled + bytes > static_cast<std::size_t>(shard_bytes)) shards.emplace_back(), filled = 0;
    shards.back().emplace(name, x);
    filled += bytes, total += bytes;
  }
  std::filesystem::path stem(path);
  if (stem.extension() == ".safetensors") stem.replace_extension();
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", stem.filename().string(), i + 1, shards.size());
    write(kFunction, (stem.parent_path() / name).string(), entries_of(kFunction, shards[i], where), metadata, where);
    for (const auto& [tensor, x] : shards[i]) map += fmt::format("\n    {}: {},", json_text(tensor), json_text(name));
  }
  if (!map.empty()) map.pop_back();
  // The index is last: if it exists, so do the files.
  const std::string index = stem.string() + ".safetensors.index.json";
  AtomicFile file(kFunction, index, where);
  file.write(
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n", total, map));
  file.commit();
  return index;
}

}  // namespace fermata
