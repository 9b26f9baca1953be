// Error classes and the format of messages.
//
// A message has a stable code (each has an entry in docs/errors.md), the op, the operands with dtype and shape, the
// caller's source line, and a hint if following it would work. Tests compare the full text.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fermata {

class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  /// The number in the message, 1004 for FM1004.
  int code() const { return code_; }

 private:
  int code_;
};

/// The call is invalid; the caller can fix it.
struct UserError : Error {
  using Error::Error;
};
struct ShapeError : UserError {
  using UserError::UserError;
};
struct DTypeError : UserError {
  using UserError::UserError;
};
struct IndexError : UserError {
  using UserError::UserError;
};
struct DeviceError : UserError {
  using UserError::UserError;
};
struct ValueError : UserError {
  using UserError::UserError;
};
struct FileError : UserError {
  using UserError::UserError;
};
struct GradientError : UserError {
  using UserError::UserError;
};
struct ParseError : UserError {
  using UserError::UserError;
};
/// The call is valid, but this build, machine or version does not support it.
struct UnsupportedError : Error {
  using Error::Error;
};
struct OutOfMemoryError : Error {
  using Error::Error;
};
/// A bug in Fermata.
struct InternalError : Error {
  using Error::Error;
};

/// One line under the headline: "  lhs  f32[4, 8]   axis 1 is 8".
struct ErrorOperand {
  std::string_view label;
  std::string text;  // dtype and shape
  std::string note;  // may be empty
};

/// "FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)", the operands, "at file:line", "hint ...".
/// The path is cut to its last two components, so that messages do not depend on where a tree is checked out.
std::string format_error(int code, std::string_view kind, std::string_view what,
                         const std::vector<ErrorOperand>& operands, std::source_location where,
                         std::string_view hint = {});
/// "examples/mlp.cpp:42".
std::string short_location(std::source_location where);

[[noreturn]] void throw_internal(std::string_view what, std::source_location where = std::source_location::current());

}  // namespace fermata
