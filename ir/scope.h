// Names for parts of a program: "encoder.3". Errors, traces, profiles and the nodes that are recorded meanwhile have
// them beside the source line, which is the same for every layer that calls one helper.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

namespace fermata {

/// While it lives, what this thread calls is in the scope `name`, within the scopes around it: "model" and "encoder.3"
/// make "model.encoder.3". The name is copied.
class Scope {
 public:
  explicit Scope(std::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const std::string* outer_;
};

namespace detail {
/// The whole name of the innermost scope of this thread; null outside of any. Kept for the life of the process.
extern constinit thread_local const std::string* scope;
std::source_location add_scope(std::source_location where);
}  // namespace detail

/// The name of the innermost scope of this thread; empty outside of any.
inline std::string_view current_scope() { return detail::scope == nullptr ? std::string_view() : *detail::scope; }

/// The same line, with the scope of this thread: scope_of() has it, also on other threads and later.
inline std::source_location within_scope(std::source_location where) {
  return detail::scope == nullptr ? where : detail::add_scope(where);
}
/// Empty for lines that within_scope() has not made.
std::string_view scope_of(std::source_location where);

/// A line that was read from a text. Kept for the life of the process.
std::source_location location_of(std::string_view file, unsigned line);

/// "model.encoder.3 examples/mlp.cpp:42", or without a scope "examples/mlp.cpp:42".
std::string scoped_location(std::source_location where);

}  // namespace fermata
