// What the cache on the disk hands out: objects, descriptions of kernels, and the files that hold them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <xxhash.h>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/loader.h"
#include "ir/error.h"
#include "ir/kernel.h"
#include "runtime/disk_cache.h"
#include "tests/fuzz/targets/target.h"

namespace fermata::testing {
namespace {

/// Loads an object, and calls nothing in it.
void object(std::string_view input) {
  try {
    const auto loaded = LoadedObject::load(input);
    loaded->data(jit::kInfoSymbol, sizeof(jit::ObjectInfo));
    loaded->code(jit::kEntrySymbol);
  } catch (const ObjectError&) {}
}
const AddFuzzTarget add_object("object", &object);

/// A description without its checksum, which would hide all that is behind it. InternalError is what a damaged one
/// gives: nobody but this library writes any.
void kernel(std::string_view input) {
  const XXH64_hash_t checksum = XXH64(input.data(), input.size(), 0);
  std::string bytes(input);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  Kernel read;
  try {
    read = deserialize_kernel(bytes);
    verify(read);
  } catch (const InternalError&) { return; }
  const std::string written = serialize(read);
  require(serialize(deserialize_kernel(written)) == written, "a kernel reads back as another one");
  require(!to_string(read).empty(), "a kernel has no text");
  schedule(read);
}
const AddFuzzTarget add_kernel("kernel", &kernel);

/// A file in the place of one that this cache has written; only that one is believed.
void cache_file(std::string_view input) {
  namespace fs = std::filesystem;
  struct Folder {
    fs::path path = fs::temp_directory_path() / ("fermata_fuzz_" + std::to_string(::getpid()));
    Folder() { fs::remove_all(path); }
    ~Folder() { fs::remove_all(path); }
  };
  static const Folder folder;
  DiskCache& cache = DiskCache::instance();
  const std::string before = cache.set_directory(folder.path);
  cache.store("key", "a label", "a value");
  std::string written;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path)) {
    if (entry.path().extension() != ".kernel") continue;
    std::ifstream(entry.path(), std::ios::binary) >> written;
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << input;
  }
  const std::optional<std::string> found = cache.find("key");
  cache.clear();
  cache.set_directory(before);
  require(!found || *found == "a value", "a planted file is believed");
}
const AddFuzzTarget add_cache_file("cache_file", &cache_file);

}  // namespace
}  // namespace fermata::testing
