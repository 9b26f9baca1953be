// Names for parts of a program: "encoder.3". Errors, traces, profiles and the nodes that are recorded meanwhile have
// them beside the source line, which is the same for every layer that calls one helper.
#pragma once

#include <atomic>
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
/// A name that stays for the life of the process.
const std::string* keep_scope_name(std::string name);
/// Describes the callers of this thread, up to a line of the program; null unless somebody wants them
/// (fermata/callers.h).
using DescribeCallers = std::string (*)(std::source_location where);
extern constinit std::atomic<DescribeCallers> describe_callers;
}  // namespace detail

/// The name of the innermost scope of this thread; empty outside of any.
inline std::string_view current_scope() { return detail::scope == nullptr ? std::string_view() : *detail::scope; }

/// The same line, with the scope of this thread and, where they are wanted, its callers: scope_of() and callers_of()
/// have them, also on other threads and later.
inline std::source_location within_scope(std::source_location where) {
  const bool is_plain = detail::scope == nullptr && detail::describe_callers.load(std::memory_order_relaxed) == nullptr;
  return is_plain ? where : detail::add_scope(where);
}
/// Empty for lines that within_scope() has not made.
std::string_view scope_of(std::source_location where);
/// A caller a line, innermost first: "app/layers.h:12 (encode)". Empty unless they were wanted.
std::string_view callers_of(std::source_location where);

/// Each of these callers on a line of its own that begins with `before` and ends.
std::string each_caller(std::string_view callers, std::string_view before);

/// A line that was read from a text. Kept for the life of the process.
std::source_location location_of(std::string_view file, unsigned line);

/// "model.encoder.3 examples/mlp.cpp:42", or without a scope "examples/mlp.cpp:42".
std::string scoped_location(std::source_location where);

}  // namespace fermata
