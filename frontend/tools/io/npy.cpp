// load_npy and save_npy.
#include <fmt/format.h>
#include <new>

#include <string>

#include "fermata/io.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/npy_format.h"

namespace fermata {
namespace {

/// The header, and nothing of what follows it.
std::string read_head(InputFile& file, const std::string& path, Location where) {
  std::string head;
  file.append(head, 12);
  if (!head.starts_with("\x93NUMPY") || head.size() < 12) return head;
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(head[i])); };
  const bool is_first_version = byte(6) == 1;
  const std::size_t end = (is_first_version ? 10 : 12) +
                          (byte(8) | byte(9) << 8 | (is_first_version ? 0 : byte(10) << 16 | byte(11) << 24));
  if (end <= head.size()) return head;
  const std::size_t missing = end - head.size();
  if (file.rest().value_or(missing) < missing) throw_malformed("load_npy", path, "ends within its header", where);
  file.append(head, missing);
  return head;
}

}  // namespace

Tensor load_npy(const std::string& path, Location where) try {
  InputFile file("load_npy", path, where);
  const NpyHeader header = read_npy_header("load_npy", path, read_head(file, path, where), where);
  const std::size_t width = byte_size(header.dtype);
  const std::size_t needed = static_cast<std::size_t>(element_count(header.shape)) * width;
  const auto require = [&](std::size_t there) {
    if (there < needed)
      throw_malformed("load_npy", path, fmt::format("has {} bytes of elements, not {}", there, needed), where);
  };
  require(file.rest().value_or(needed));
  void* data = nullptr;
  Tensor x = new_tensor(header.dtype, header.shape, &data);
  char* const to = static_cast<char*>(data);
  if (header.fortran_order) {
    std::string columns;
    require(file.append(columns, needed));
    copy_transposed(header.shape, width, columns.data(), to);
  } else {
    require(file.read(to, needed));
  }
  settle_elements(header, to, needed);
  return x;
} catch (const std::bad_alloc&) { throw_no_memory("load_npy", where); }

void save_npy(const std::string& path, const Tensor& x, Location where) try {
  require_defined("save_npy", x, where);
  const std::string head = npy_head("save_npy", x, where);
  const HostElements elements(x, "save_npy", where);
  const std::size_t bytes = static_cast<std::size_t>(elements.count()) * byte_size(x.dtype());
  write_file("save_npy", path, {head, {static_cast<const char*>(elements.data()), bytes}}, where);
} catch (const std::bad_alloc&) { throw_no_memory("save_npy", where); }

}  // namespace fermata
