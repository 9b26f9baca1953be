// See element_text.h.
#include "codegen_cuda/irregular/element_text.h"

#include <fmt/format.h>

#include "codegen_cuda/emit/primitives.h"

namespace fermata::gpu {

std::string_view bits_text(DType dtype) {
  switch (byte_size(dtype)) {
    case 1: return "u8";
    case 2: return "u16";
    case 4: return "u32";
    default: return "u64";
  }
}

ElementText element_text(DType dtype, bool ordered) {
  if (dtype == DType::f16) return {"u16", "f32", "f32", "fm_from_f16", "fm_to_f16"};
  if (dtype == DType::bf16) return {"u16", "f32", "f32", "fm_from_bf16", "fm_to_bf16"};
  const std::string type(is_floating(dtype) || ordered ? memory_type(dtype) : bits_text(dtype));
  return {type, type, type == "u16" || type == "u8" ? "u32" : type, "", ""};
}

std::string ElementText::load(const std::string& address) const {
  return fmt::format("{}(fm_load({}))", widen, address);
}
std::string ElementText::stored(const std::string& value) const {
  return narrow.empty() ? fmt::format("({}){}", memory, value) : fmt::format("{}({})", narrow, value);
}

}  // namespace fermata::gpu
