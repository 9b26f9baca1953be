// See target.h.
#include "tests/fuzz/targets/target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ir/error.h"
#include "runtime/allocator.h"

namespace fermata::testing {
namespace {

std::vector<FuzzTarget>& listed() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  std::ranges::sort(listed(), {}, &FuzzTarget::name);
  return listed();
}

AddFuzzTarget::AddFuzzTarget(std::string_view name, void (*read)(std::string_view input), std::size_t growth) {
  listed().push_back({name, read, growth});
}

void run_target(const FuzzTarget& target, std::string_view input) {
  constexpr std::size_t kLimit = std::size_t{1} << 28, kPages = std::size_t{4} << 20;
  constexpr int kNoMemory = 3001;
  const std::size_t allowed = memory_stats().peak_bytes + target.growth * input.size() + kPages;
  set_memory_limit(target.growth == 0 ? kLimit : std::min(kLimit, allowed));
  try {
    target.read(input);
  } catch (const InternalError&) { throw; } catch (const Error& error) {
    require(target.growth == 0 || error.code() != kNoMemory, "an input makes a reader allocate more than it may");
  }
}

void require(bool holds, std::string_view what) {
  if (!holds) throw_internal(what);
}

MemoryFile::MemoryFile(std::string_view content) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  require(file_ >= 0 && ::write(file_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "no file in memory");
}
MemoryFile::~MemoryFile() { ::close(file_); }
std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(file_); }

std::uint8_t ByteReader::byte() {
  if (bytes_.empty()) return 0;
  const auto first = static_cast<std::uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return first;
}

std::uint64_t ByteReader::word() {
  std::uint64_t word = 0;
  const std::size_t count = std::min(bytes_.size(), sizeof(word));
  std::memcpy(&word, bytes_.data(), count);
  bytes_.remove_prefix(count);
  return word;
}

std::int64_t ByteReader::number() {
  const std::uint8_t first = byte();
  switch (first) {
    case 0x80: return INT64_MIN;
    case 0x81: return INT64_MIN + 1;
    case 0x7f: return INT64_MAX;
    case 0x7e: return INT64_MAX - 1;
    case 0x7d: return std::int64_t{1} << 32;
    case 0x7c: return static_cast<std::int64_t>(word());
    default: return static_cast<std::int8_t>(first);
  }
}

}  // namespace fermata::testing
