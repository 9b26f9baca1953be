// A file descriptor that is closed.
#pragma once

#include <unistd.h>

#include <utility>

namespace fermata {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (is_open()) ::close(number_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  bool is_open() const { return number_ >= 0; }
  int get() const { return number_; }
  /// Gives it away.
  int release() { return std::exchange(number_, -1); }
  /// Closes it now; false if that failed.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

}  // namespace fermata
