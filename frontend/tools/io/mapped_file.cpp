// See mapped_file.h.
#include "frontend/tools/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frontend/tools/io/file.h"
#include "frontend/tools/io/file_descriptor.h"
#include "runtime/storage.h"

namespace fermata {
namespace {

using Owner = std::shared_ptr<const void>;
void drop_owner(Storage* storage) { delete static_cast<Owner*>(storage->owner); }

bool is_aligned(const void* address, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(address) % byte_size(real_dtype(dtype)) == 0;
}
bool has_only_bits(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0 || c == 1; });
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(std::string_view function, const std::string& path,
                                                   std::source_location where) {
  const FileDescriptor file = open_input(function, path, InputKind::file, where);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system(1601, function, path, "cannot be mapped", errno, where);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  if (size > 0) {
    // Writable, so that data<T>() of a tensor over it may be written; private, so that the file is not.
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (data == MAP_FAILED) throw_system(1601, function, path, "cannot be mapped", errno, where);
  }
  try {
    return std::shared_ptr<const MappedFile>(new MappedFile(data, size));
  } catch (...) {
    if (data != nullptr) ::munmap(data, size);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Tensor tensor_over(std::shared_ptr<const void> owner, std::string_view bytes, DType dtype, const Shape& shape) {
  const bool as_it_is =
      !bytes.empty() && is_aligned(bytes.data(), dtype) && (dtype != DType::boolean || has_only_bits(bytes));
  if (!as_it_is) {
    void* data = nullptr;
    Tensor own = new_tensor(dtype, shape, &data);
    auto* const to = static_cast<char*>(data);
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    if (dtype == DType::boolean) std::transform(to, to + bytes.size(), to, [](char c) -> char { return c != 0; });
    return own;
  }
  auto kept = std::make_unique<Owner>(std::move(owner));
  Storage* const storage = Storage::adopt(const_cast<char*>(bytes.data()), bytes.size(), &drop_owner, kept.release());
  Node* const node = make_leaf({dtype, shape}, storage, BackendKey::cpu, Node::kTensor);
  return Tensor(node, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
}

}  // namespace fermata
