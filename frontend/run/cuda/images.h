// The machine code of loaded programs, by device and function. A function's name is a hash of everything that
// it computes, so programs may share code.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/run/program_file.h"

namespace fermata {

/// From now on kernels are looked up in programs, and nothing is compiled.
void take_images_from_programs();

/// The images of one program on one device, for its lifetime.
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
