// The argument --cuda of the examples, which selects the device.
#pragma once

#include <fermata/fermata.h>

#include <algorithm>
#include <string_view>

namespace examples {

/// Removes --cuda from the arguments of a program.
inline fermata::Device take_device(int& argc, char** argv) {
  char** const end = std::remove(argv + 1, argv + argc, std::string_view("--cuda"));
  if (end == argv + argc) return fermata::cpu();
  argc = static_cast<int>(end - argv);
  return fermata::cuda();
}

}  // namespace examples
