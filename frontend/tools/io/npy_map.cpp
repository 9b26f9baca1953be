// map_npy: a .npy file in memory.
#include <fmt/format.h>
#include <new>

#include <cstring>

#include "fermata/io.h"
#include "frontend/engine/no_memory.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/mapped_file.h"
#include "frontend/tools/io/npy_format.h"

namespace fermata {

Tensor map_npy(const std::string& path, Location where) try {
  const auto file = MappedFile::open("map_npy", path, where);
  const NpyHeader header = read_npy_header("map_npy", path, file->bytes(), where);
  const std::string_view rest = file->bytes().substr(header.data_begin);
  const std::size_t width = byte_size(header.dtype);
  const std::size_t needed = static_cast<std::size_t>(element_count(header.shape)) * width;
  if (rest.size() < needed)
    throw_malformed("map_npy", path, fmt::format("has {} bytes of elements, not {}", rest.size(), needed), where);
  const bool is_row_major = !header.fortran_order || header.shape.rank() < 2;
  if (is_row_major && !(header.big_endian && width > 1))
    return tensor_over(file, rest.substr(0, needed), header.dtype, header.shape);
  void* data = nullptr;
  Tensor x = new_tensor(header.dtype, header.shape, &data);
  char* const to = static_cast<char*>(data);
  if (!is_row_major)
    copy_transposed(header.shape, width, rest.data(), to);
  else if (needed != 0)
    std::memcpy(to, rest.data(), needed);
  settle_elements(header, to, needed);
  return x;
} catch (const std::bad_alloc&) { throw_no_memory("map_npy", where); }

}  // namespace fermata
