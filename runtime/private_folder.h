// A folder that is writable only for this user, and its files.
//
// The folder is opened and checked once and then accessed through its descriptor, so replacing it has no effect. Files
// are opened without following links and checked after that. Only regular files of this user that nobody else may read
// or write are trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fermata {

class PrivateFolder {
 public:
  /// Opens a folder; with `make` it is created if missing. Returns null if it does not exist, or if it must not be
  /// used: `refused` is then the reason.
  static std::unique_ptr<PrivateFolder> open(const std::string& path, bool make, std::string& refused);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  /// Whether the descriptor still refers to the folder, which still exists and belongs exclusively to this user.
  bool is_intact() const;

  /// Returns the bytes of a file; nullopt if it does not exist, or if it is not trusted: `wrong` is then the reason.
  /// Updates the date of files that have not been read for `note_use_after` seconds.
  std::optional<std::string> read(const std::string& name, std::uint64_t most_bytes, std::string& wrong,
                                  std::time_t note_use_after) const;
  /// Writes a temporary file and renames it, so that readers see all of a file or nothing. With `keep_existing`, an
  /// existing file stays.
  bool write(const std::string& name, std::string_view bytes, bool keep_existing = false) const;
  bool exists(const std::string& name) const;
  bool remove(const std::string& name) const;

  struct File {
    std::string name;
    std::uint64_t bytes;
    std::time_t changed;
  };
  std::vector<File> files() const;
  /// Whether a name is that of a temporary file which write() has not renamed yet, or never will.
  static bool is_unfinished(std::string_view name);

 private:
  struct Identity {
    std::uint64_t device, inode;
  };
  PrivateFolder(int descriptor, Identity identity) : descriptor_(descriptor), identity_(identity) {}
  const int descriptor_;
  const Identity identity_;
};

}  // namespace fermata
