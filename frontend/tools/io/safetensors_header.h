// The header of a safetensors file: eight bytes with its length, then JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "fermata/safetensors.h"
#include "ir/dtype.h"
#include "ir/shape.h"

namespace fermata {

/// "F32", or nothing for a dtype that the format has not.
std::string_view safetensors_code(DType dtype);

struct SafetensorsEntry {
  std::string code;            // of the dtype
  std::optional<DType> dtype;  // nothing for one that does not exist here
  Shape shape;
  std::size_t begin = 0, end = 0;  // of the elements, in the file
};
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  Metadata metadata;
};
/// Reads and checks the header of a file whose bytes are all there. FM1603 FileError.
SafetensorsHeader read_safetensors_header(std::string_view function, const std::string& path, std::string_view bytes,
                                          std::source_location where);

}  // namespace fermata
