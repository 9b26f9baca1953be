// See images.h.
#include "frontend/run/cuda/images.h"

#include <map>
#include <mutex>
#include <utility>

#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/kernels.h"

namespace fermata {
namespace {

struct Entry {
  std::shared_ptr<const gpu::LoadedImage> image;
  std::size_t programs = 0;
};
struct Images {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, Entry> by_function;
};
Images& images() {
  static auto* const all = new Images;
  return *all;
}

std::shared_ptr<const gpu::LoadedImage> find_image(const std::string& function) {
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_function.find({gpu::current_device().number(), function});
  return found == all.by_function.end() ? nullptr : found->second.image;
}

}  // namespace

void take_images_from_programs() { gpu::set_image_source(&find_image); }

void ProgramImages::add(int device, const std::vector<std::string>& functions, std::string_view code) {
  const auto image = std::make_shared<const gpu::LoadedImage>(std::string(code));
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  for (const std::string& function : functions) {
    mine_.emplace_back(device, function);
    Entry& entry = all.by_function[mine_.back()];
    if (entry.programs++ == 0) entry.image = image;
  }
}

ProgramImages::~ProgramImages() {
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  for (const auto& key : mine_)
    if (const auto found = all.by_function.find(key); --found->second.programs == 0) all.by_function.erase(found);
}

}  // namespace fermata
