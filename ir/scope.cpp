// See scope.h. A line with a scope is a source_location whose function is the scope: a pointer to a record of our own
// that has the layout of the compiler's. Records are few, one for each line and scope, and stay.
#include "ir/scope.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "ir/error.h"
#include "ir/fork.h"
#include "ir/per_thread.h"

namespace fermata {
namespace {

/// As GCC and Clang lay out what __builtin_source_location() points to.
struct LocationRecord {
  const char* file;
  const char* function;
  unsigned line, column;
};
static_assert(sizeof(std::source_location) == sizeof(const LocationRecord*));

/// What no function is called: a mark, the scope, and where callers are wanted another mark and these.
constexpr char kMark = '\1', kCallersMark = '\2';
bool is_ours(std::source_location where) {
  const char* const function = where.function_name();
  return function != nullptr && *function == kMark;
}

struct Known {
  ForkSafeMutex mutex;
  std::set<std::string, std::less<>> names;  // each after the mark
  std::map<std::tuple<const char*, unsigned, unsigned, const std::string*>, LocationRecord> lines;
};
Known& known() {
  static Known* const all = new Known;
  return *all;
}

constexpr std::string_view kBackward = " (backward)";

/// The line with what stands behind marks for its function.
std::source_location record_of(std::source_location where, std::string marked_name) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const std::string& marked = *all.names.insert(std::move(marked_name)).first;
  const LocationRecord& record =
      all.lines
          .try_emplace({where.file_name(), where.line(), where.column(), &marked},
                       LocationRecord{where.file_name(), marked.c_str(), where.line(), where.column()})
          .first->second;
  return std::bit_cast<std::source_location>(&record);
}

}  // namespace

constinit thread_local const std::string* detail::scope = nullptr;
constinit thread_local const std::string* detail::module_path = nullptr;
constinit std::atomic<const detail::ScopeListener*> detail::scope_listener{nullptr};
constinit std::atomic<detail::DescribeCallers> detail::describe_callers{nullptr};

const std::string* detail::keep_scope_name(std::string name) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  return &*all.names.insert(std::move(name)).first;
}

Scope::Scope(std::string_view name) : outer_(detail::scope) {
  std::string path(outer_ == nullptr ? "" : *outer_ + ".");
  path += name;
  is_heard_ = detail::enter_scope(detail::keep_scope_name(std::move(path)));
}
Scope::~Scope() {
  detail::scope = outer_;
  if (is_heard_) detail::end_heard_scope();
}

bool detail::enter_scope(const std::string* path) {
  scope = path;
  const ScopeListener* const listener = scope_listener.load(std::memory_order_acquire);
  if (listener == nullptr) return false;
  listener->begin(*path);
  return true;
}
void detail::end_heard_scope() { scope_listener.load(std::memory_order_acquire)->end(); }

std::source_location detail::add_scope(std::source_location where) {
  struct Recent {
    const std::string* scope = nullptr;
    std::source_location plain{}, scoped{};
  };
  static constinit thread_local PerThread<std::array<Recent, 64>> recent_of_thread;
  std::array<Recent, 64>& recent = recent_of_thread.get();
  const DescribeCallers describe = describe_callers.load(std::memory_order_relaxed);
  const auto address = std::bit_cast<std::uintptr_t>(where);
  Recent& slot = recent[((address >> 4) ^ (reinterpret_cast<std::uintptr_t>(scope) >> 6)) % recent.size()];
  if (describe == nullptr && slot.scope == scope && std::bit_cast<std::uintptr_t>(slot.plain) == address)
    return slot.scoped;
  if (is_ours(where)) return where;
  std::string name = kMark + (scope == nullptr ? std::string() : *scope);
  if (describe != nullptr) {
    const std::string callers = describe(where);
    if (callers.empty() && scope == nullptr) return where;
    if (!callers.empty()) name += kCallersMark + callers;
  }
  const std::source_location scoped = record_of(where, std::move(name));
  if (describe == nullptr) slot = {scope, where, scoped};
  return scoped;
}

std::string_view scope_of(std::source_location where) {
  if (!is_ours(where)) return {};
  const std::string_view both = where.function_name() + 1;
  return both.substr(0, both.find(kCallersMark));
}

std::string backward_scope(std::string_view scope) {
  return std::string(scope) += scope.find(kBackward) == scope.npos ? kBackward : std::string_view();
}

std::source_location backward_of(std::source_location where) {
  struct Recent {
    std::source_location forward{}, backward{};
  };
  static constinit thread_local PerThread<std::array<Recent, 64>> recent_of_thread;
  std::array<Recent, 64>& recent = recent_of_thread.get();
  const std::string_view scope = scope_of(where);
  if (scope.empty() || scope.find(kBackward) != scope.npos) return where;
  const auto address = std::bit_cast<std::uintptr_t>(where);
  Recent& slot = recent[(address >> 4) % recent.size()];
  if (std::bit_cast<std::uintptr_t>(slot.forward) == address) return slot.backward;
  std::string name = kMark + backward_scope(scope);
  if (const std::string_view callers = callers_of(where); !callers.empty()) (name += kCallersMark) += callers;
  slot = {where, record_of(where, std::move(name))};
  return slot.backward;
}

std::string_view callers_of(std::source_location where) {
  if (!is_ours(where)) return {};
  const std::string_view both = where.function_name() + 1;
  const std::size_t mark = both.find(kCallersMark);
  return mark == both.npos ? std::string_view() : both.substr(mark + 1);
}

std::string each_caller(std::string_view callers, std::string_view before) {
  std::string text;
  while (!callers.empty()) {
    const std::size_t end = std::min(callers.find('\n'), callers.size());
    text.append(before).append(callers.substr(0, end)) += '\n';
    callers.remove_prefix(std::min(end + 1, callers.size()));
  }
  return text;
}

std::source_location location_of(std::string_view file, unsigned line, std::string_view scope) {
  Known& all = known();
  std::source_location plain;
  {
    const std::lock_guard lock(all.mutex);
    const char* const name = all.names.insert(std::string(file)).first->c_str();
    const LocationRecord& record =
        all.lines.try_emplace({name, line, 0, nullptr}, LocationRecord{name, "", line, 0}).first->second;
    plain = std::bit_cast<std::source_location>(&record);
  }
  return scope.empty() ? plain : record_of(plain, kMark + std::string(scope));
}

std::string location_in_scope(std::source_location where) {
  const std::string_view scope = scope_of(where);
  return scope.empty() ? short_location(where) : (short_location(where) + " in ").append(scope);
}

std::string scoped_location(std::source_location where) {
  const std::string_view scope = scope_of(where);
  return scope.empty() ? short_location(where) : std::string(scope) + " " + short_location(where);
}

}  // namespace fermata
