// A file that is written atomically: to a temporary name, flushed to the disk, then renamed.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "frontend/tools/io/file_descriptor.h"

namespace fermata {

/// A unique temporary name in the folder of a path.
std::string name_beside(const std::string& path);
/// Flushes a file and gives it its name. FM1602 FileError, and the file is gone.
void commit_file(std::string_view function, const std::string& beside, const std::string& path,
                 std::source_location where);

/// Errors of all: FM1602 FileError. A file that is not committed leaves what was there.
class AtomicFile {
 public:
  AtomicFile(std::string_view function, std::string path, std::source_location where);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  /// From here on the file has its name, also if the machine stops now.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;
  std::string function_, path_, beside_;
  std::source_location where_;
  FileDescriptor file_;
  bool committed_ = false;
};

}  // namespace fermata
