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
  bool is_heard_;
};

namespace detail {
/// The whole name of the innermost scope of this thread; null outside of any. Kept for the life of the process.
extern constinit thread_local const std::string* scope;
/// The path of the innermost module whose forward() this thread is in (fermata/nn/module.h); null outside of any.
extern constinit thread_local const std::string* module_path;
std::source_location add_scope(std::source_location where);
/// Told of scopes that begin and end, by names that are kept. Null unless a tool watches (runtime/nvtx.h).
struct ScopeListener {
  void (*begin)(const std::string& path);
  void (*end)();
};
extern constinit std::atomic<const ScopeListener*> scope_listener;
/// Sets the scope of this thread to a name that is kept. Whether somebody heard of it, who has to be told of its end.
bool enter_scope(const std::string* path);
void end_heard_scope();
/// A name that stays for the life of the process.
const std::string* keep_scope_name(std::string name);
/// Describes the callers of this thread, up to a line of the program; null unless somebody wants them
/// (fermata/callers.h).
using DescribeCallers = std::string (*)(std::source_location where);
extern constinit std::atomic<DescribeCallers> describe_callers;
}  // namespace detail

/// The scope of a thread, kept so that work that is done later, or on another thread, is in it.
struct ScopePlace {
  const std::string *scope, *module;
  static ScopePlace current() { return {detail::scope, detail::module_path}; }
};
/// While it lives, this thread is there.
class ScopePlaceGuard {
 public:
  explicit ScopePlaceGuard(ScopePlace place) : outer_(ScopePlace::current()) { enter(place); }
  ~ScopePlaceGuard() { enter(outer_); }
  ScopePlaceGuard(const ScopePlaceGuard&) = delete;
  ScopePlaceGuard& operator=(const ScopePlaceGuard&) = delete;

 private:
  static void enter(ScopePlace place) { detail::scope = place.scope, detail::module_path = place.module; }
  ScopePlace outer_;
};

/// The name of the innermost scope of this thread; empty outside of any.
inline std::string_view current_scope() { return detail::scope == nullptr ? std::string_view() : *detail::scope; }

/// Whether within_scope() has something to add.
inline bool has_scope_or_callers() {
  return detail::scope != nullptr || detail::describe_callers.load(std::memory_order_relaxed) != nullptr;
}
/// The same line, with the scope of this thread and, where they are wanted, its callers: scope_of() and callers_of()
/// have them, also on other threads and later.
inline std::source_location within_scope(std::source_location where) {
  return has_scope_or_callers() ? detail::add_scope(where) : where;
}
/// Empty for lines that within_scope() has not made.
std::string_view scope_of(std::source_location where);
/// The same line in the scope of its gradient, "encoder.3 (backward)"; as it is where it has no scope.
std::source_location backward_of(std::source_location where);
/// A caller a line, innermost first: "app/layers.h:12 (encode)". Empty unless they were wanted.
std::string_view callers_of(std::source_location where);

/// Each of these callers on a line of its own that begins with `before` and ends.
std::string each_caller(std::string_view callers, std::string_view before);

/// A line that was read from a text, with its scope. Kept for the life of the process.
std::source_location location_of(std::string_view file, unsigned line, std::string_view scope = {});

/// "examples/mlp.cpp:42 in model.encoder.3", as programs are printed; without a scope only the line.
std::string location_in_scope(std::source_location where);
/// The name of the scope of a gradient: with the mark, once.
std::string backward_scope(std::string_view scope);

/// "model.encoder.3 examples/mlp.cpp:42", or without a scope "examples/mlp.cpp:42".
std::string scoped_location(std::source_location where);

}  // namespace fermata
