// safetensors: files of named tensors (https://huggingface.co/docs/safetensors), the format of most published models.
//
// Files are mapped: opening one reads only its header; elements are read when they are used. Tensors keep the private
// mapping alive. Files are written atomically.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fermata/named_tensors.h"
#include "runtime/tensor.h"

namespace fermata {

using Metadata = std::map<std::string, std::string>;

class SafetensorsFile;
namespace detail {
/// Errors name `function`, a literal.
SafetensorsFile open_safetensors(const char* function, const std::string& path, Location where);
}  // namespace detail

/// An open file: its header, which has been validated, and access to single tensors.
class SafetensorsFile {
 public:
  /// Opens a file, or the index of several files in the same folder ("model.safetensors.index.json").
  ///
  /// Errors   FileError FM1601 if a file cannot be read, FM1603 if a header is damaged, sizes do not match the file,
  ///          tensors overlap or leave gaps, a name occurs twice, or blocks are missing.
  explicit SafetensorsFile(const std::string& path, Location where = Location::current());
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// In alphabetical order.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// Returns a tensor over the mapped bytes, or a copy if they are not aligned to its dtype.
  ///
  /// Errors   ValueError FM1383 for an unknown name; UnsupportedError FM2003 for an unsupported dtype (f8 and smaller).
  Tensor tensor(const std::string& name, Location where = Location::current()) const;
  /// tensor(), sharded like `like` (fermata/mesh.h) if the file stores blocks; each process reads its own.
  Tensor tensor_like(const std::string& name, const Tensor& like, Location where = Location::current()) const;
  /// Returns all tensors.
  NamedTensors tensors(Location where = Location::current()) const;
  /// Metadata stored by the writer.
  const Metadata& metadata() const;

 private:
  friend SafetensorsFile detail::open_safetensors(const char* function, const std::string& path, Location where);
  SafetensorsFile(const char* function, const std::string& path, Location where);
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads all tensors of a file or an index.
NamedTensors load_safetensors(const std::string& path, Location where = Location::current());

/// Saves tensors in alphabetical order of their names.
///
/// A path that ends in ".json" is an index that all processes write together: each process writes a file with its
/// blocks of sharded tensors and a share of the others. The index is written last, so it never refers to missing files;
/// then files of earlier saves are deleted. Any number of processes can read it.
///
/// DType    bool, integers, f16, bf16, f32, f64 and c64.
/// Errors   DTypeError for other dtypes; FileError FM1602, which leaves an existing file of that name unchanged. If one
///          process fails, all of them throw.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {},
                      Location where = Location::current());
/// Saves tensors as several files, each of at most `shard_bytes` unless a single tensor is larger, and an index:
/// "model.safetensors.index.json" names "model-00001-of-00003.safetensors" and so on. Returns the path of the index.
std::string save_safetensors_sharded(const std::string& path, const NamedTensors& tensors, std::int64_t shard_bytes,
                                     const Metadata& metadata = {}, Location where = Location::current());

}  // namespace fermata
