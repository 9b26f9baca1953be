// See zip_archive.h.
#include "frontend/tools/io/zip_archive.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "frontend/tools/io/atomic_file.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/mapped_file.h"
#include "ir/error.h"

#ifdef FERMATA_WITH_ZIP
#include <zip.h>

namespace fermata {
namespace {

struct CloseEntry {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using ArchivePtr = std::unique_ptr<zip_t, Discard>;

}  // namespace

struct ZipReader::State {
  std::string function, path;
  std::source_location where;
  std::shared_ptr<const MappedFile> file;
  std::vector<std::string> names;
  ArchivePtr archive;
  std::unique_ptr<zip_file_t, CloseEntry> entry;  // closed before the archive
};

ZipReader::ZipReader(std::string_view function, const std::string& path, std::source_location where)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.function = function, s.path = path, s.where = where;
  s.file = MappedFile::open(function, path, where);
  if (s.file->bytes().empty()) throw_malformed(function, path, "is not a zip archive (it is empty)", where);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = zip_source_buffer_create(s.file->bytes().data(), s.file->bytes().size(), 0, &error);
  if (source != nullptr) s.archive.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (s.archive == nullptr) {
    if (source != nullptr) zip_source_free(source);
    const std::string what = fmt::format("is not a zip archive ({})", zip_error_strerror(&error));
    zip_error_fini(&error);
    throw_malformed(function, path, what, where);
  }
  zip_error_fini(&error);
  const zip_int64_t count = zip_get_num_entries(s.archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(s.archive.get(), static_cast<zip_uint64_t>(i), 0);
    if (name == nullptr) throw_malformed(function, path, fmt::format("entry {} has no name", i), where);
    s.names.emplace_back(name);
  }
}
ZipReader::~ZipReader() = default;

const std::vector<std::string>& ZipReader::names() const { return state_->names; }

void ZipReader::open(std::size_t entry) {
  State& s = *state_;
  s.entry.reset(zip_fopen_index(s.archive.get(), entry, 0));
  if (s.entry == nullptr)
    throw_malformed(s.function, s.path,
                    fmt::format("entry '{}' cannot be read ({})", s.names[entry], zip_strerror(s.archive.get())),
                    s.where);
}

std::size_t ZipReader::read(char* to, std::size_t size) {
  State& s = *state_;
  std::size_t done = 0;
  while (done < size) {
    const zip_int64_t got = zip_fread(s.entry.get(), to + done, size - done);
    if (got < 0)
      throw_malformed(s.function, s.path, fmt::format("an entry is damaged ({})", zip_file_strerror(s.entry.get())),
                      s.where);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

struct ZipWriter::State {
  State(std::string_view name, const std::string& to, std::source_location line)
      : function(name), path(to), where(line), file(function, path, where) {}

  std::string function, path;
  std::source_location where;
  AtomicFile file;
  bool compressed = false;
  std::exception_ptr failure;  // of the file, which has stopped libzip
  ArchivePtr archive;
  [[noreturn]] void fail(zip_error_t* error) const {
    if (failure != nullptr) std::rethrow_exception(failure);
    const int code = zip_error_system_type(error) == ZIP_ET_SYS ? zip_error_code_system(error) : EIO;
    throw_system(1602, function, path, "cannot be written", code, where);
  }

  zip_int64_t answer(void* data, std::uint64_t size, zip_source_cmd_t command);
  bool seek(void* data, std::uint64_t size);
  std::uint64_t end = 0;  // of the archive, as far as it is written
};

/// Where the next part is written.
bool ZipWriter::State::seek(void* data, std::uint64_t size) {
  zip_error_t error;
  zip_error_init(&error);
  const zip_int64_t at = zip_source_seek_compute_offset(file.position(), end, data, size, &error);
  zip_error_fini(&error);
  if (at >= 0) file.seek(static_cast<std::uint64_t>(at));
  return at >= 0;
}

/// What libzip asks of the file that it writes to, which is empty at first. Left to itself it writes to one of a name
/// that nobody knows once the process has been killed.
zip_int64_t ZipWriter::State::answer(void* data, std::uint64_t size, zip_source_cmd_t command) try {
  switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(
          ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
          ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE,
          ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
    case ZIP_SOURCE_STAT: {
      zip_stat_t none;
      zip_stat_init(&none);
      none.valid = ZIP_STAT_SIZE, none.size = 0;
      if (size < sizeof(none)) return -1;
      std::memcpy(data, &none, sizeof(none));
      return sizeof(none);
    }
    case ZIP_SOURCE_WRITE:
      file.write({static_cast<const char*>(data), size});
      end = std::max(end, file.position());
      return static_cast<zip_int64_t>(size);
    case ZIP_SOURCE_SEEK_WRITE: return seek(data, size) ? 0 : -1;
    case ZIP_SOURCE_TELL_WRITE: return static_cast<zip_int64_t>(file.position());
    case ZIP_SOURCE_ERROR: {
      const int error[] = {ZIP_ER_WRITE, EIO};
      if (size < sizeof(error)) return -1;
      std::memcpy(data, error, sizeof(error));
      return sizeof(error);
    }
    default: return 0;
  }
} catch (...) {
  failure = std::current_exception();
  return -1;
}

ZipWriter::ZipWriter(std::string_view function, const std::string& path, bool compressed, std::source_location where)
    : state_(std::make_unique<State>(function, path, where)) {
  State& s = *state_;
  s.compressed = compressed;
  zip_error_t error;
  zip_error_init(&error);
  const auto answer = [](void* state, void* data, zip_uint64_t size, zip_source_cmd_t command) {
    return static_cast<State*>(state)->answer(data, size, command);
  };
  zip_source_t* const source = zip_source_function_create(answer, &s, &error);
  if (source != nullptr) s.archive.reset(zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error));
  if (s.archive != nullptr) return;
  if (source != nullptr) zip_source_free(source);
  s.fail(&error);
}
ZipWriter::~ZipWriter() = default;

void ZipWriter::add(const std::string& name, std::string_view first, std::string_view second) {
  State& s = *state_;
  zip_t* const archive = s.archive.get();
  std::array<zip_buffer_fragment_t, 2> parts{};
  std::size_t count = 0;
  for (const std::string_view part : {first, second})
    if (!part.empty()) parts[count++] = {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(part.data())), part.size()};
  zip_source_t* const source = zip_source_buffer_fragment(archive, parts.data(), count, 0);
  if (source == nullptr) s.fail(zip_get_error(archive));
  const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    s.fail(zip_get_error(archive));
  }
  const auto entry = static_cast<zip_uint64_t>(index);
  const zip_int32_t method = s.compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE;
  constexpr zip_uint16_t kDate = 1 << 5 | 1;  // the first day of 1980, as NumPy writes: bytes do not depend on the time
  if (zip_set_file_compression(archive, entry, method, 0) != 0 ||
      zip_file_set_dostime(archive, entry, 0, kDate, 0) != 0)
    s.fail(zip_get_error(archive));
}

void ZipWriter::commit() {
  State& s = *state_;
  if (zip_get_num_entries(s.archive.get(), 0) == 0) {  // libzip writes no empty archive
    constexpr std::string_view kEnd("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    s.file.write(kEnd);
  } else {
    if (zip_close(s.archive.get()) != 0) s.fail(zip_get_error(s.archive.get()));
    (void)s.archive.release();  // it is closed
  }
  s.file.commit();
}

}  // namespace fermata

#else

namespace fermata {
namespace {
[[noreturn]] void throw_without(std::string_view function, std::source_location where) {
  throw UnsupportedError(
      2025, format_error(2025, "UnsupportedError", fmt::format("{}: this engine was built without libzip", function),
                         {}, where, "install libzip-dev and rebuild"));
}
}  // namespace
struct ZipReader::State {
  std::vector<std::string> names;
};
ZipReader::ZipReader(std::string_view function, const std::string&, std::source_location where) {
  throw_without(function, where);
}
ZipReader::~ZipReader() = default;
const std::vector<std::string>& ZipReader::names() const { return state_->names; }
void ZipReader::open(std::size_t) {}
std::size_t ZipReader::read(char*, std::size_t) { return 0; }
struct ZipWriter::State {};
ZipWriter::ZipWriter(std::string_view function, const std::string&, bool, std::source_location where) {
  throw_without(function, where);
}
ZipWriter::~ZipWriter() = default;
void ZipWriter::add(const std::string&, std::string_view, std::string_view) {}
void ZipWriter::commit() {}
}  // namespace fermata
#endif
