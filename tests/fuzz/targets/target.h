// Fuzz targets: functions that read untrusted bytes. What an input gives is an error that the user can
// read, or a result; anything else ends the process.
//
// libfuzzer.cpp runs one of them under clang's libFuzzer (scripts/fuzz.sh); corpus_test.cpp runs all of them, over the
// kept inputs and over mutations of these, in every build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fermata::testing {

struct FuzzTarget {
  std::string_view name;  // of its folder in tests/fuzz/corpus, too
  void (*read)(std::string_view input);
  std::size_t growth = 0;  // bytes of tensors that it may take for a byte of input; 0: not checked
};

/// Of readers: what a header says allocates nothing.
inline constexpr std::size_t kReaderGrowth = 10;
/// Of readers of compressed files: as many bytes as deflate makes of one, at most.
inline constexpr std::size_t kInflatedGrowth = 1032;

/// Every target of the files beside this one, by name.
const std::vector<FuzzTarget>& fuzz_targets();

/// Adds a target while static objects are made.
struct AddFuzzTarget {
  AddFuzzTarget(std::string_view name, void (*read)(std::string_view input), std::size_t growth = 0);
};

/// Lets a target read an input. Errors of input end here; those that say that the engine is wrong do not.
void run_target(const FuzzTarget& target, std::string_view input);

/// Throws InternalError.
void require(bool holds, std::string_view what);

/// A file in memory with this content, and its path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const;

 private:
  int file_;
};

/// Makes numbers of bytes; zeros where there are no more.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  std::uint8_t byte();
  std::uint64_t word();
  /// Small numbers mostly, negative ones too; some that are the largest or the smallest.
  std::int64_t number();
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace fermata::testing
