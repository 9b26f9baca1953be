// See safetensors_blocks.h.
#include "frontend/tools/io/safetensors_blocks.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/distributed.h"
#include "fermata/modes.h"
#include "fermata/sync.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/ops/calls.h"
#include "frontend/tools/io/atomic_file.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::string_view kFunction = "save_safetensors", kMarker = "#block ", kOf = " of ";
namespace fs = std::filesystem;

/// Numbers with a character between them, at most one for each axis; false where there is anything else.
bool read_numbers(std::string_view text, Shape& numbers, Shape* ends) {
  if (text.empty()) return true;
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&](Shape& to) {
    std::int64_t value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || to.rank() == kMaxRank) return false;
    to.push_back(value), at = stop;
    return true;
  };
  for (;;) {
    if (!number(numbers)) return false;
    if (ends != nullptr && (at == end || *at++ != ':' || !number(*ends))) return false;
    if (at == end) return true;
    if (*at++ != ',') return false;
  }
}

/// The same number on all processes, which no other save has.
std::uint64_t number_of_save(Location where) {
  std::int64_t number = 0;
  for (int i = 0; i < 4; ++i) {  // of 16 bits, which every dtype of a sum holds
    const auto part = static_cast<std::int64_t>(std::random_device()() & 0xffffu);
    number = number << 16 | distributed::broadcast(full({}, part, DType::i64, where), 0, distributed::world(), where)
                                .item<std::int64_t>(where);
  }
  return static_cast<std::uint64_t>(number);
}

/// Does a part of a save on this process. If it fails on any, all of them throw.
template <class F> void all_do(const std::string& path, Location where, F&& part) {
  const distributed::Group& world = distributed::world(where);
  std::exception_ptr own;
  try {
    part();
  } catch (...) { own = std::current_exception(); }
  const std::int64_t failed = distributed::all_reduce(full({}, own ? world.rank() + 1 : 0, DType::i64, where),
                                                      distributed::Reduction::max, world, where)
                                  .item<std::int64_t>(where);
  if (own) std::rethrow_exception(own);
  if (failed != 0)
    throw FileError(
        1602,
        format_error(1602, "FileError",
                     fmt::format("{}: {}: rank {} cannot write its part", kFunction, path, failed - 1), {}, where));
}

/// What a process writes, and which file each entry of all processes is in.
struct Plan {
  NamedTensors own;
  std::map<std::string, std::int64_t> rank_of_entry;
  std::size_t total_bytes = 0;
};

Plan plan_of(const NamedTensors& tensors, Location where) {
  const distributed::Group& world = distributed::world(where);
  Plan plan;
  std::vector<std::size_t> filled(static_cast<std::size_t>(world.size()));
  // Decisions depend on the sizes that all processes know, not on the own block.
  const auto add = [&](const BlockName& block, const Tensor& x, std::int64_t rank) {
    const std::size_t bytes = stored_bytes(x.dtype(), element_count(block.region.sizes));
    const bool is_whole = block.region.sizes == block.whole && block.tensor.find(kMarker) == std::string::npos;
    const std::string entry = is_whole ? block.tensor : block_entry_name(block);
    plan.rank_of_entry.emplace(entry, rank);
    filled[static_cast<std::size_t>(rank)] += bytes, plan.total_bytes += bytes;
    if (rank == world.rank()) plan.own.emplace(entry, x);
  };
  for (const auto& [name, x] : tensors) {
    const ShardedValue* const value = x.impl()->payload == nullptr ? sharded_value(*x.node()) : nullptr;
    if (value == nullptr) continue;
    const MeshAxes& axes = value->mesh->axes;
    for (std::int64_t rank = 0; rank < axes.processes(); ++rank) {
      const std::vector<std::int64_t> at = axes.coordinates(rank);
      bool is_first = true;  // of those that have this block
      for (std::size_t m = 0; m < axes.count(); ++m)
        is_first = is_first && (at[m] == 0 || (value->sharding.used() >> m & 1u) != 0);
      if (!is_first) continue;
      const Region region{block_begin(x.shape(), value->sharding, axes, at),
                          block_shape(x.shape(), value->sharding, axes, at)};
      if (element_count(region.sizes) == 0 && x.element_count() != 0) continue;
      add({name, region, x.shape()}, value->block, rank);
    }
  }
  // What is not divided is the same on all: each of them writes some.
  for (const auto& [name, x] : tensors)
    if (x.impl()->payload != nullptr || sharded_value(*x.node()) == nullptr) {
      Shape begin = x.shape();
      std::ranges::fill(begin, 0);
      add({name, {begin, x.shape()}, x.shape()}, x, std::ranges::min_element(filled) - filled.begin());
    }
  return plan;
}

/// Removes files of other saves than the one of this number and the one that the index names: of earlier ones, and of
/// processes that were killed.
void remove_other_saves(const fs::path& folder, const std::string& beginning, const std::string& index,
                        const std::string& number, Location where) {
  std::error_code error;
  std::string needed = number;
  if (fs::exists(index, error)) try {
      needed += read_file(kFunction, index, where);
    } catch (const FileError&) { return; }
  if (error) return;
  // The iterators of std::filesystem end the process where memory is short.
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.empty() ? "." : folder.c_str()), closedir);
  if (listing == nullptr) return;
  while (const dirent* const entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name.starts_with(beginning) && needed.find(name.substr(beginning.size(), number.size())) == needed.npos)
      unlinkat(dirfd(listing.get()), name.c_str(), 0);
  }
}

}  // namespace

std::string block_entry_name(const BlockName& block) {
  std::string ranges;
  for (unsigned i = 0; i < block.whole.rank(); ++i)
    ranges +=
        fmt::format("{}{}:{}", i == 0 ? "" : ",", block.region.begin[i], block.region.begin[i] + block.region.sizes[i]);
  return fmt::format("{}{}{}{}{}", block.tensor, kMarker, ranges, kOf,
                     fmt::join(block.whole.begin(), block.whole.end(), ","));
}

std::optional<BlockName> parse_block_name(std::string_view entry, bool& is_valid) {
  is_valid = true;
  const std::size_t marker = entry.rfind(kMarker);
  if (marker == std::string_view::npos) return {};
  BlockName block{std::string(entry.substr(0, marker)), {}, {}};
  const std::string_view text = entry.substr(marker + kMarker.size());
  const std::size_t of = text.find(kOf);
  Shape& sizes = block.region.sizes;
  is_valid = of != std::string_view::npos && read_numbers(text.substr(0, of), block.region.begin, &sizes) &&
             read_numbers(text.substr(of + kOf.size()), block.whole, nullptr) && sizes.rank() == block.whole.rank();
  if (!is_valid) return block;
  for (unsigned i = 0; i < sizes.rank(); ++i) {
    is_valid = is_valid && block.region.begin[i] <= sizes[i] && sizes[i] <= block.whole[i];
    sizes[i] -= block.region.begin[i];
  }
  return block;
}

void copy_common(const std::byte* from, const Region& of_from, std::byte* to, const Region& of_to,
                 std::size_t element_bytes) {
  const unsigned rank = of_to.begin.rank();
  if (rank == 0) {
    std::memcpy(to, from, element_bytes);
    return;
  }
  Shape low = of_to.begin, high = of_to.begin;
  for (unsigned i = 0; i < rank; ++i) {
    low[i] = std::max(of_from.begin[i], of_to.begin[i]);
    high[i] = std::min(of_from.begin[i] + of_from.sizes[i], of_to.begin[i] + of_to.sizes[i]);
    if (low[i] >= high[i]) return;
  }
  const auto offset = [&](const Shape& at, const Region& in) {
    std::int64_t elements = 0;
    for (unsigned i = 0; i < rank; ++i) elements = elements * in.sizes[i] + at[i] - in.begin[i];
    return static_cast<std::size_t>(elements) * element_bytes;
  };
  const std::size_t run = static_cast<std::size_t>(high[rank - 1] - low[rank - 1]) * element_bytes;
  for (Shape at = low;;) {
    std::memcpy(to + offset(at, of_to), from + offset(at, of_from), run);
    unsigned axis = rank - 1;
    while (axis > 0 && ++at[axis - 1] == high[axis - 1]) --axis, at[axis] = low[axis];
    if (axis == 0) return;
  }
}

void save_blocks(const std::string& index, const NamedTensors& tensors, const Metadata& metadata, Location where) {
  const NoGradGuard no_grad;
  std::vector<Tensor> all;
  for (const auto& [name, x] : tensors) require_defined(kFunction, x, where), all.push_back(x);
  sync(all, where);
  const ModeGuard now(Mode::eager);
  const distributed::Group& world = distributed::world(where);
  fs::path stem(index);
  for (const char* const extension : {".json", ".index", ".safetensors"})
    if (stem.extension() == extension) stem.replace_extension();
  const std::string number = fmt::format("{:016x}", number_of_save(where)),
                    beginning = stem.filename().string() + ".blocks-";
  const auto file_of = [&](std::int64_t rank) {
    return fmt::format("{}{}-{:05}-of-{:05}.safetensors", beginning, number, rank + 1, world.size());
  };
  const std::string own = (stem.parent_path() / file_of(world.rank())).string();
  Metadata notes = metadata;
  notes.insert_or_assign(std::string(kBlocksNote), number);
  const auto clean = [&] {
    if (world.rank() == 0) remove_other_saves(stem.parent_path(), beginning, index, number, where);
  };
  clean();
  Plan plan;
  try {
    all_do(index, where, [&] {
      plan = plan_of(tensors, where);
      if (!plan.own.empty()) write_safetensors(kFunction, own, plan.own, notes, where);
    });
    // All files are there: from here on the new index may be found.
    all_do(index, where, [&] {
      if (world.rank() != 0) return;
      std::string map;
      for (const auto& [entry, rank] : plan.rank_of_entry)
        map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json_text(entry), json_text(file_of(rank)));
      AtomicFile file(kFunction, index, where);
      file.write(
          fmt::format("{{\n  \"metadata\": {{\"total_size\": {}, \"{}\": \"{}\"}},\n  \"weight_map\": {{{}\n  }}\n}}\n",
                      plan.total_bytes, kBlocksNote, number, map));
      file.commit();
    });
  } catch (const FileError&) {
    std::error_code ignored;
    fs::remove(own, ignored);
    throw;
  }
  clean();
}

}  // namespace fermata
