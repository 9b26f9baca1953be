// See scope.h. A line with a scope is a source_location whose function is the scope: a pointer to a record of our own
// that has the layout of the compiler's. Records are few, one for each line and scope, and stay.
#include "ir/scope.h"

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

namespace fermata {
namespace {

/// As GCC and Clang lay out what __builtin_source_location() points to.
struct LocationRecord {
  const char* file;
  const char* function;
  unsigned line, column;
};
static_assert(sizeof(std::source_location) == sizeof(const LocationRecord*));

/// What no function is called.
constexpr char kMark = '\1';

struct Known {
  ForkSafeMutex mutex;
  std::set<std::string, std::less<>> names;  // each after the mark
  std::map<std::tuple<const char*, unsigned, unsigned, const std::string*>, LocationRecord> lines;
};
Known& known() {
  static Known* const all = new Known;
  return *all;
}

}  // namespace

constinit thread_local const std::string* detail::scope = nullptr;

Scope::Scope(std::string_view name) : outer_(detail::scope) {
  std::string path(outer_ == nullptr ? "" : *outer_ + ".");
  path += name;
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  detail::scope = &*all.names.insert(std::move(path)).first;
}
Scope::~Scope() { detail::scope = outer_; }

std::source_location detail::add_scope(std::source_location where) {
  struct Recent {
    const std::string* scope = nullptr;
    std::source_location plain{}, scoped{};
  };
  static thread_local const auto recent = std::make_unique<std::array<Recent, 64>>();
  const auto address = std::bit_cast<std::uintptr_t>(where);
  Recent& slot = (*recent)[(address >> 4) % recent->size()];
  if (slot.scope == scope && std::bit_cast<std::uintptr_t>(slot.plain) == address) return slot.scoped;
  if (!scope_of(where).empty()) return where;
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const std::string& marked = *all.names.insert(kMark + *scope).first;
  const LocationRecord& record =
      all.lines
          .try_emplace({where.file_name(), where.line(), where.column(), scope},
                       LocationRecord{where.file_name(), marked.c_str(), where.line(), where.column()})
          .first->second;
  slot = {scope, where, std::bit_cast<std::source_location>(&record)};
  return slot.scoped;
}

std::string_view scope_of(std::source_location where) {
  const char* const function = where.function_name();
  return function != nullptr && *function == kMark ? function + 1 : "";
}

std::source_location location_of(std::string_view file, unsigned line) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const char* const name = all.names.insert(std::string(file)).first->c_str();
  const LocationRecord& record =
      all.lines.try_emplace({name, line, 0, nullptr}, LocationRecord{name, "", line, 0}).first->second;
  return std::bit_cast<std::source_location>(&record);
}

std::string scoped_location(std::source_location where) {
  const std::string_view scope = scope_of(where);
  return scope.empty() ? short_location(where) : std::string(scope) + " " + short_location(where);
}

}  // namespace fermata
