// Maps a relocatable x86-64 ELF object into memory, so that its code can be called.
//
// Needs no LLVM: objects may come from a disk cache of an earlier process. Everything in an object is checked before it
// is used, and memory is never writable and executable at once. Objects must be self-contained, without undefined
// symbols.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace fermata {

/// An object that cannot be loaded, and why.
struct ObjectError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing is wrong with the object; the system has no memory for it. FM3001.
struct NoMemoryForObject : OutOfMemoryError {
  explicit NoMemoryForObject(const std::string& what);
};

class LoadedObject {
 public:
  /// Copies, relocates and protects. Throws ObjectError or NoMemoryForObject.
  static std::shared_ptr<const LoadedObject> load(std::string_view object);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// The address of a global symbol of code, or of constant data of at least `bytes`. Throws ObjectError where there is
  /// none of that kind.
  const void* code(std::string_view symbol) const;
  const void* data(std::string_view symbol, std::size_t bytes) const;
  /// The same function with what follows it in its section.
  std::span<const std::byte> code_from(std::string_view symbol) const;
  /// Bytes of memory that it takes.
  std::size_t mapped_bytes() const;

 private:
  struct Image;
  explicit LoadedObject(std::unique_ptr<Image> image);
  std::unique_ptr<Image> image_;
};

}  // namespace fermata
