// Names for parts of a program: "encoder.3". Errors, traces, profiles and the nodes recorded in a scope carry its name
// in addition to the source line, which is the same for every layer that calls one helper.
#pragma once

#include <atomic>
#include <source_location>
#include <string>
#include <string_view>

namespace fermata {

/// While alive, calls of this thread are in the scope `name`, nested in the enclosing scopes: "model" and "encoder.3"
/// give "model.encoder.3". The name is copied.
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
/// The full name of the innermost scope of this thread; null outside of any. Lives as long as the process.
extern constinit thread_local const std::string* scope;
/// The path of the innermost module whose forward() this thread is in (fermata/nn/module.h); null outside of any.
extern constinit thread_local const std::string* module_path;
std::source_location add_scope(std::source_location where);
/// Called when scopes begin and end, with interned names. Null unless a tool is attached (runtime/nvtx.h).
struct ScopeListener {
  void (*begin)(const std::string& path);
  void (*end)();
};
extern constinit std::atomic<const ScopeListener*> scope_listener;
/// Sets the scope of this thread to an interned name. Returns whether a listener was called, which must then be told of
/// the end.
bool enter_scope(const std::string* path);
void end_heard_scope();
/// Interns a name: the result lives as long as the process.
const std::string* keep_scope_name(std::string name);
/// Describes the callers of this thread, up to a line of the program; null unless enabled (fermata/callers.h).
using DescribeCallers = std::string (*)(std::source_location where);
extern constinit std::atomic<DescribeCallers> describe_callers;
}  // namespace detail

/// The scope of a thread, saved for work that runs later or on another thread.
struct ScopePlace {
  const std::string *scope, *module;
  static ScopePlace current() { return {detail::scope, detail::module_path}; }
};
/// While alive, this thread is in the saved scope.
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
/// The same line, tagged with the scope of this thread and, if enabled, its callers. scope_of() and callers_of() return
/// them, also on other threads and later.
inline std::source_location within_scope(std::source_location where) {
  return has_scope_or_callers() ? detail::add_scope(where) : where;
}
/// Empty for lines that within_scope() did not return.
std::string_view scope_of(std::source_location where);
/// The same line in the scope of its gradient, "encoder.3 (backward)"; unchanged if it has no scope.
std::source_location backward_of(std::source_location where);
/// One caller per line, innermost first: "app/layers.h:12 (encode)". Empty unless enabled.
std::string_view callers_of(std::source_location where);

/// Each of these callers on its own line, prefixed with `before` and ended by a newline.
std::string each_caller(std::string_view callers, std::string_view before);

/// A line that was parsed from a text, with its scope. Lives as long as the process.
std::source_location location_of(std::string_view file, unsigned line, std::string_view scope = {});

/// "examples/mlp.cpp:42 in model.encoder.3", as in printed programs; only the line if there is no scope.
std::string location_in_scope(std::source_location where);
/// The name of the scope of a gradient: marked as backward, once.
std::string backward_scope(std::string_view scope);

/// "model.encoder.3 examples/mlp.cpp:42", or "examples/mlp.cpp:42" without a scope.
std::string scoped_location(std::source_location where);

}  // namespace fermata
