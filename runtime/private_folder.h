// A folder that only this user may write to, and its files.
//
// The folder is opened and examined once and then reached through its descriptor: whoever puts another one in its place
// changes nothing. Files are opened without following links and examined after that. What is read is believed only if
// it is a regular file of this user that no one else may read or write.
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
  /// Null if there is none, or if it may not be used: then `refused` says why. With `make`, one is made.
  static std::unique_ptr<PrivateFolder> open(const std::string& path, bool make, std::string& refused);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  /// Whether the descriptor still is that of the folder, which still belongs to this user alone and was not removed.
  bool is_intact() const;

  /// The bytes of a file. Nothing if there is none, or if it is not to be believed: then `wrong` says why. Files that
  /// have not been read for `note_use_after` seconds get a new date.
  std::optional<std::string> read(const std::string& name, std::uint64_t most_bytes, std::string& wrong,
                                  std::time_t note_use_after) const;
  /// Writes beside and renames, so that readers see all of a file or nothing. With `keep_existing`, one that is there
  /// already stays.
  bool write(const std::string& name, std::string_view bytes, bool keep_existing = false) const;
  bool exists(const std::string& name) const;
  bool remove(const std::string& name) const;

  struct File {
    std::string name;
    std::uint64_t bytes;
    std::time_t changed;
  };
  std::vector<File> files() const;
  /// Whether a name is that of a file which write() has not renamed yet, or never will.
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
