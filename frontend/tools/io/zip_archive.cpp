// See zip_archive.h.
#include "frontend/tools/io/zip_archive.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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
  std::string function, path, beside;
  std::source_location where;
  bool compressed;
  ArchivePtr archive;
  [[noreturn]] void fail(zip_error_t* error) const {
    const int code = zip_error_system_type(error) == ZIP_ET_SYS ? zip_error_code_system(error) : EIO;
    throw_system(1602, function, path, "cannot be written", code, where);
  }
};

ZipWriter::ZipWriter(std::string_view function, const std::string& path, bool compressed, std::source_location where)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.function = function, s.path = path, s.beside = name_beside(path), s.where = where, s.compressed = compressed;
  int code = 0;
  s.archive.reset(zip_open(s.beside.c_str(), ZIP_CREATE | ZIP_EXCL, &code));
  if (s.archive != nullptr) return;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
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
    s.archive.reset();
    AtomicFile empty(s.function, s.path, s.where);
    constexpr std::string_view kEnd("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    empty.write(kEnd);
    empty.commit();
    return;
  }
  if (zip_close(s.archive.get()) != 0) s.fail(zip_get_error(s.archive.get()));
  (void)s.archive.release();  // it is closed
  commit_file(s.function, s.beside, s.path, s.where);
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
