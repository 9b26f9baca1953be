// A file that is written atomically: beside its place, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "frontend/tools/io/file_descriptor.h"

namespace fermata {

enum class Flush : bool {
  no,   // the file is whole whenever this process ends
  yes,  // and whenever the machine does: it is flushed to the disk before it has its name
};

/// Errors of all: FM1602 FileError. A file that is not committed leaves what was there. A process that is killed leaves
/// at most one file beside each path, PATH.fermata-partial, which the next one that writes there takes over.
class AtomicFile {
 public:
  AtomicFile(std::string_view function, std::string path, std::source_location where, Flush flush = Flush::yes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  /// Goes on at this byte, counted from the beginning.
  void seek(std::uint64_t at) { position_ = at; }
  std::uint64_t position() const { return position_; }
  /// From here on the file has its name, also if the process is killed now.
  void commit();

 private:
  void open_beside();
  FileDescriptor open_locked(const std::string& name) const;
  bool tells_no_error() const;
  [[noreturn]] void fail(int error) const;
  std::string function_, path_, beside_;
  std::source_location where_;
  Flush flush_;
  FileDescriptor file_{-1};
  std::uint64_t position_ = 0;
  bool committed_ = false;
};

}  // namespace fermata
