// The folder of the tests, which contains their data files.
#pragma once

#include <string>

namespace fermata {

/// In a source file of its own: a path in the command line of each test would keep other checkouts from sharing its
/// compilation (ccache).
std::string test_folder();

}  // namespace fermata
