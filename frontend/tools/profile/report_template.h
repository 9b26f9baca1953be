// Files that are part of the library: the page of reports, and the library that lays out their graphs, where the build
// has found one. cmake/embed.cmake writes the source of these functions.
#pragma once

#include <string_view>

namespace fermata {

std::string_view report_template();
/// JavaScript that defines `dagre`, or nothing.
std::string_view report_layout_library();

}  // namespace fermata
