// Zip archives, by libzip, whose header only zip_archive.cpp includes.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace fermata {

/// An archive that is read. Errors of all: FileError FM1601 and FM1603; UnsupportedError FM2025 in a build without
/// libzip.
class ZipReader {
 public:
  ZipReader(std::string_view function, const std::string& path, std::source_location where);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  /// Names of the entries in their order.
  const std::vector<std::string>& names() const;
  /// Goes to the beginning of an entry, by its number.
  void open(std::size_t entry);
  /// The next bytes of that entry: fewer than `size` only at its end. Reading to the end checks its checksum.
  std::size_t read(char* to, std::size_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// An archive that is written whole or not at all. Errors of all: FileError FM1602, UnsupportedError FM2025.
class ZipWriter {
 public:
  ZipWriter(std::string_view function, const std::string& path, bool compressed, std::source_location where);
  ~ZipWriter();
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  /// An entry of two parts, which stay where they are until commit().
  void add(const std::string& name, std::string_view first, std::string_view second);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fermata
