// safetensors: files of named tensors (https://huggingface.co/docs/safetensors), as most published models come.
//
// Files are mapped: opening one reads its header, and elements when they are used. Tensors keep the mapping, which is
// private to them. Files are written whole or not at all.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fermata/named_tensors.h"
#include "runtime/tensor.h"

namespace fermata {

using Metadata = std::map<std::string, std::string>;

/// A file whose header is read and checked: what is in it, and any one tensor of it.
class SafetensorsFile {
 public:
  /// A file of tensors, or the index of several ("model.safetensors.index.json"), which lie in its folder.
  ///
  /// Errors   FileError FM1601 if a file cannot be read, FM1603 if a header is damaged, sizes do not fit the file,
  ///          tensors overlap or leave gaps, a name occurs twice, or blocks are missing.
  explicit SafetensorsFile(const std::string& path, Location where = Location::current());
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// In alphabetical order.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// A tensor over the bytes of the file; a copy where they are not aligned to its dtype.
  ///
  /// Errors   ValueError FM1383 for an unknown name; UnsupportedError FM2003 for a dtype that does not exist here (f8
  ///          and smaller).
  Tensor tensor(const std::string& name, Location where = Location::current()) const;
  /// The same, divided as `like` is (fermata/mesh.h) where the file has its blocks: each process reads its own.
  Tensor tensor_like(const std::string& name, const Tensor& like, Location where = Location::current()) const;
  /// All of them.
  NamedTensors tensors(Location where = Location::current()) const;
  /// What the writer noted.
  const Metadata& metadata() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All tensors of a file or an index.
NamedTensors load_safetensors(const std::string& path, Location where = Location::current());

/// Writes tensors, in the alphabetical order of their names.
///
/// A path that ends in ".json" is an index that all processes write together: each writes a file with its blocks of
/// divided tensors and a share of the others. The index is last, so it never names files that are not there, and files
/// of earlier saves go after it. Any number of processes reads it.
///
/// DType    bool, integers, f16, bf16, f32, f64 and c64.
/// Errors   DTypeError for other dtypes; FileError FM1602, in which case an earlier file of that name is still there.
///          Where one process fails, all of them throw.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {},
                      Location where = Location::current());
/// Writes tensors as several files, of at most `shard_bytes` each unless one tensor is larger, and their index:
/// "model.safetensors.index.json" names "model-00001-of-00003.safetensors" and so on. Gives the path of the index.
std::string save_safetensors_sharded(const std::string& path, const NamedTensors& tensors, std::int64_t shard_bytes,
                                     const Metadata& metadata = {}, Location where = Location::current());

}  // namespace fermata
