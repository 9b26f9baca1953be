// See kernel_files.h.
#include "dispatch/kernel_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ir/error.h"

namespace fermata {
namespace {

constinit const KernelFile* newest = nullptr;
constinit std::array<bool, kBackendCount> is_added{};

}  // namespace

KernelFile::KernelFile(BackendKey backend, void (*add)(), std::source_location where)
    : backend_(backend), add_(add), where_(where), next_(newest) {
  if (is_added[static_cast<std::size_t>(backend)]) throw_internal("kernels that are listed after their backend", where);
  newest = this;
}

void add_kernel_files(BackendKey backend) {
  std::vector<const KernelFile*> files;
  for (const KernelFile* file = newest; file != nullptr; file = file->next_)
    if (file->backend_ == backend) files.push_back(file);
  std::ranges::sort(files, [](const KernelFile* a, const KernelFile* b) {
    return std::strcmp(a->where_.file_name(), b->where_.file_name()) < 0;
  });
  for (const KernelFile* file : files) file->add_();
  is_added[static_cast<std::size_t>(backend)] = true;
}

}  // namespace fermata
