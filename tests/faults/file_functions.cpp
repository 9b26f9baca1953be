// Functions of files, folders and threads with points that may fail.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "tests/faults/count.h"
#include "tests/faults/real_function.h"

using fermata::FaultKind;
using fermata::faults::fails;
using fermata::faults::real_function;

namespace {

mode_t mode_of(int flags, va_list arguments) { return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0; }
bool is_message(int file) { return file == STDOUT_FILENO || file == STDERR_FILENO; }
bool is_message(std::FILE* file) { return file == stdout || file == stderr; }
/// So that ferror() tells.
void note_error(std::FILE* file) {
  constexpr int kErrorSeen = 0x20;  // _IO_ERR_SEEN of glibc
  file->_flags |= kErrorSeen;
  errno = EIO;
}

}  // namespace

// FERMATA_FILE_FUNCTION(result, name, parameters, arguments, failure, error)
#define FERMATA_FILE_FUNCTION(result, name, parameters, arguments, failure, error) \
  extern "C" result name parameters {                                              \
    static const auto real = real_function<result(*) parameters>(#name);           \
    if (fails(FaultKind::file)) return errno = error, failure;                     \
    return real arguments;                                                         \
  }
FERMATA_FILE_FUNCTION(std::FILE*, fopen, (const char* path, const char* how), (path, how), nullptr, EMFILE)
FERMATA_FILE_FUNCTION(std::FILE*, fopen64, (const char* path, const char* how), (path, how), nullptr, EMFILE)
FERMATA_FILE_FUNCTION(std::FILE*, fdopen, (int file, const char* how) noexcept, (file, how), nullptr, EMFILE)
FERMATA_FILE_FUNCTION(int, fsync, (int file), (file), -1, EIO)
FERMATA_FILE_FUNCTION(int, ftruncate, (int file, off_t bytes) noexcept, (file, bytes), -1, EIO)
FERMATA_FILE_FUNCTION(int, fstat, (int file, struct stat* out) noexcept, (file, out), -1, EIO)
FERMATA_FILE_FUNCTION(int, rename, (const char* from, const char* to) noexcept, (from, to), -1, ENOSPC)
FERMATA_FILE_FUNCTION(int, renameat, (int f, const char* from, int t, const char* to) noexcept, (f, from, t, to), -1,
                      ENOSPC)
FERMATA_FILE_FUNCTION(int, linkat, (int f, const char* from, int t, const char* to, int how) noexcept,
                      (f, from, t, to, how), -1, ENOSPC)
FERMATA_FILE_FUNCTION(int, mkdir, (const char* path, mode_t mode) noexcept, (path, mode), -1, ENOSPC)
FERMATA_FILE_FUNCTION(char*, mkdtemp, (char* pattern) noexcept, (pattern), nullptr, ENOSPC)
FERMATA_FILE_FUNCTION(DIR*, opendir, (const char* path), (path), nullptr, EMFILE)
FERMATA_FILE_FUNCTION(DIR*, fdopendir, (int file), (file), nullptr, ENOMEM)
FERMATA_FILE_FUNCTION(ssize_t, pread, (int file, void* to, std::size_t bytes, off_t at), (file, to, bytes, at), -1, EIO)
FERMATA_FILE_FUNCTION(ssize_t, pwrite, (int file, const void* from, std::size_t bytes, off_t at),
                      (file, from, bytes, at), -1, ENOSPC)
FERMATA_FILE_FUNCTION(ssize_t, read, (int file, void* to, std::size_t bytes), (file, to, bytes), -1, EIO)
FERMATA_FILE_FUNCTION(ssize_t, getrandom, (void* to, std::size_t bytes, unsigned how), (to, bytes, how), -1, ENOSYS)
#undef FERMATA_FILE_FUNCTION

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = real_function<int (*)(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return fails(FaultKind::file) ? (errno = EMFILE, -1) : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  static const auto real = real_function<int (*)(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return fails(FaultKind::file) ? (errno = EMFILE, -1) : real(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return openat(folder, path, flags, mode);
}
ssize_t write(int file, const void* from, std::size_t bytes) {
  static const auto real = real_function<decltype(&write)>("write");
  if (!is_message(file) && fails(FaultKind::file)) return errno = ENOSPC, -1;
  return real(file, from, bytes);
}
ssize_t writev(int file, const iovec* parts, int count) {
  static const auto real = real_function<decltype(&writev)>("writev");
  if (!is_message(file) && fails(FaultKind::file)) return errno = ENOSPC, -1;
  return real(file, parts, count);
}
std::size_t fread(void* to, std::size_t size, std::size_t count, std::FILE* file) {
  static const auto real = real_function<decltype(&fread)>("fread");
  if (fails(FaultKind::file)) return note_error(file), 0;
  return real(to, size, count, file);
}
std::size_t fwrite(const void* from, std::size_t size, std::size_t count, std::FILE* file) {
  static const auto real = real_function<decltype(&fwrite)>("fwrite");
  if (!is_message(file) && fails(FaultKind::file)) return note_error(file), 0;
  return real(from, size, count, file);
}
int fflush(std::FILE* file) {
  static const auto real = real_function<decltype(&fflush)>("fflush");
  if (file != nullptr && !is_message(file) && fails(FaultKind::file)) return note_error(file), EOF;
  return real(file);
}
/// The file is closed all the same, as the C library does it.
int fclose(std::FILE* file) {
  static const auto real = real_function<decltype(&fclose)>("fclose");
  const bool failed = fails(FaultKind::file);
  const int outcome = real(file);
  return failed ? (errno = ENOSPC, EOF) : outcome;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static const auto real =
      real_function<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return fails(FaultKind::thread) ? EAGAIN : real(thread, attributes, start, argument);
}

}  // extern "C"
