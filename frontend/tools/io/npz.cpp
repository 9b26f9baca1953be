// load_npz and save_npz: zip archives of .npy files.
#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "fermata/io.h"
#include "fermata/sync.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/mapped_file.h"
#include "frontend/tools/io/npy_format.h"
#include "frontend/tools/io/zip_archive.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kLongestHeader = std::size_t{1} << 20;

/// Appends up to `size` bytes of the open entry: memory grows with what is there, not with what a header says.
template <class Bytes> void append(ZipReader& archive, Bytes& bytes, std::size_t size) {
  while (size > 0) {
    const std::size_t before = bytes.size(), chunk = std::min(size, std::max(kChunk, before));
    bytes.resize(before + chunk);
    const std::size_t got = archive.read(bytes.data() + before, chunk);
    bytes.resize(before + got);
    if (got < chunk) return;
    size -= chunk;
  }
}

/// Everything before the elements of the open entry.
std::string read_head(ZipReader& archive) {
  std::string head;
  append(archive, head, 12);
  if (head.size() < 12) return head;
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(head[i])); };
  const bool first_version = byte(6) == 1;
  const std::size_t length = byte(8) | byte(9) << 8 | (first_version ? 0 : byte(10) << 16 | byte(11) << 24);
  const std::size_t end = (first_version ? 10 : 12) + length;
  if (length <= kLongestHeader && end > head.size()) append(archive, head, end - head.size());
  return head;
}

Tensor read_entry(ZipReader& archive, const std::string& place, Location where) {
  const std::string head = read_head(archive);
  const NpyHeader header = read_npy_header("load_npz", place, head, where);
  const std::size_t width = byte_size(header.dtype);
  const std::size_t needed = static_cast<std::size_t>(element_count(header.shape)) * width;
  auto bytes = std::make_shared<std::vector<char>>();
  bytes->insert(bytes->end(), head.begin() + static_cast<std::ptrdiff_t>(header.data_begin), head.end());
  append(archive, *bytes, needed - std::min(needed, bytes->size()));
  char more = 0;
  const bool ends = archive.read(&more, 1) == 0;  // checks the checksum, too
  if (bytes->size() != needed || !ends)
    throw_malformed(
        "load_npz", place,
        fmt::format("has {} bytes of elements, not {}", ends ? std::to_string(bytes->size()) : "more", needed), where);
  if (header.fortran_order) {
    auto rows = std::make_shared<std::vector<char>>(needed);
    copy_transposed(header.shape, width, bytes->data(), rows->data());
    bytes = rows;
  }
  settle_elements(header, bytes->data(), needed);
  return tensor_over(bytes, {bytes->data(), needed}, header.dtype, header.shape);
}

void check_name(const std::string& name, Location where) {
  bool leads_out = name.empty() || name.front() == '/' || name.find('\0') != std::string::npos;
  for (const auto& part : std::filesystem::path(name)) leads_out = leads_out || part == "..";
  if (leads_out)
    throw ValueError(1385, format_error(1385, "ValueError",
                                        fmt::format("save_npz: '{}' is not a valid array name", name), {}, where));
}

}  // namespace

NamedTensors load_npz(const std::string& path, Location where) try {
  ZipReader archive("load_npz", path, where);
  NamedTensors arrays;
  for (std::size_t i = 0; i < archive.names().size(); ++i) {
    const std::string& entry = archive.names()[i];
    const std::string name = entry.ends_with(kSuffix) ? entry.substr(0, entry.size() - kSuffix.size()) : entry;
    archive.open(i);
    const std::string place = fmt::format("{}: {}", path, entry);
    if (!arrays.emplace(name, read_entry(archive, place, where)).second)
      throw_malformed("load_npz", path, fmt::format("array '{}' occurs twice", name), where);
  }
  return arrays;
} catch (const std::bad_alloc&) { throw_no_memory("load_npz", where); }

void save_npz(const std::string& path, const NamedTensors& arrays, bool compressed, Location where) try {
  std::vector<Tensor> all;
  std::vector<std::string> heads;
  for (const auto& [name, x] : arrays) {
    check_name(name, where);
    require_defined("save_npz", x, where);
    heads.push_back(npy_head("save_npz", x, where));
    all.push_back(x);
  }
  sync(all, where);
  ZipWriter archive("save_npz", path, compressed, where);
  std::deque<HostElements> elements;  // until the archive is written
  for (const auto& [name, x] : arrays) {
    const std::string& head = heads[elements.size()];
    const HostElements& own = elements.emplace_back(x, "save_npz", where);
    const std::size_t bytes = static_cast<std::size_t>(own.count()) * byte_size(own.dtype());
    archive.add(name + std::string(kSuffix), head, {static_cast<const char*>(own.data()), bytes});
  }
  archive.commit();
} catch (const std::bad_alloc&) { throw_no_memory("save_npz", where); }

}  // namespace fermata
