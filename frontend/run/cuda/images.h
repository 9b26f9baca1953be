// The machine code that loaded programs have brought, by device and function. A function's name follows from all that
// it computes, so programs may run each other's code.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/run/program_file.h"

namespace fermata {

/// From now on kernels come from programs, and nothing is compiled.
void take_images_from_programs();

/// Those of one program on one device, for as long as it lives.
class ProgramImages {
 public:
  ProgramImages() = default;
  ~ProgramImages();
  ProgramImages(const ProgramImages&) = delete;
  ProgramImages& operator=(const ProgramImages&) = delete;
  void add(int device, const std::vector<std::string>& functions, std::string_view code);

 private:
  std::vector<std::pair<int, std::string>> mine_;
};

}  // namespace fermata
