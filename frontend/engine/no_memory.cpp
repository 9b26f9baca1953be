// See no_memory.h.
#include "frontend/engine/no_memory.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace fermata {

void throw_no_memory(std::string_view function, Location where) {
  throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError",
                                            fmt::format("{}: cannot allocate temporary memory", function), {}, where));
}

}  // namespace fermata
