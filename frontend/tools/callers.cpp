// See fermata/callers.h. Every address and every chain of addresses is described once.
#include "fermata/callers.h"

#include <cstdio>
#include <string_view>

#include "frontend/engine/startup.h"
#include "ir/error.h"
#include "ir/scope.h"
#include "runtime/environment.h"

#ifdef FERMATA_WITH_BACKTRACE
#include <backtrace.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ir/fork.h"
#endif

namespace fermata {

#ifdef FERMATA_WITH_BACKTRACE
namespace {

using Stack = std::vector<std::uintptr_t>;
constexpr std::size_t kMostCallers = 12;

/// A line of the program, or a function of it where no line is known.
struct Frame {
  std::string line, function;
};

void ignore_error(void*, const char*, int) {}

/// "app::nn::Encoder::forward(..) const" is "Encoder::forward": the last two parts, without arguments.
std::string short_name(std::string_view name) {
  if (name.find("<lambda") != name.npos || name.find("{lambda") != name.npos || name.find("operator()") != name.npos)
    return "a lambda";
  std::string plain;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    bool is_unnamed = false;
    for (const std::string_view unnamed : {"(anonymous namespace)::", "{anonymous}::"})
      if (depth == 0 && name.substr(i).starts_with(unnamed)) i += unnamed.size() - 1, is_unnamed = true;
    if (is_unnamed) continue;
    if (name[i] == '(' && depth == 0) break;
    if (name[i] == '<') ++depth;
    if (depth == 0) plain += name[i];
    if (name[i] == '>') --depth;
  }
  plain.erase(0, plain.rfind(' ') + 1);  // what a template gives stands before its name
  std::size_t cut = plain.rfind("::");
  if (cut != plain.npos && cut != 0) cut = plain.rfind("::", cut - 1);
  return cut == plain.npos ? plain : plain.substr(cut + 2);
}
std::string short_function(const char* mangled) {
  if (mangled == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         &std::free);
  return short_name(status == 0 && text != nullptr ? text.get() : mangled);
}

/// Whether a symbol may be a function of the program: not one of the standard library, nor one of ours in its headers.
bool is_own_symbol(std::string_view name) {
  if (name.starts_with("_ZN12_GLOBAL__N_1")) return true;
  for (const std::string_view other : {"_ZSt", "_ZNSt", "_ZNKSt", "_ZN9__gnu_cxx"})
    if (name.starts_with(other)) return false;
  for (const std::string_view ours : {"_ZN7fermata", "_ZNK7fermata", "_ZZN7fermata", "_ZZNK7fermata"})
    if (name.starts_with(ours)) return name.substr(ours.size()).starts_with("12_GLOBAL__N_1");
  return name == "main" || name.starts_with("_Z");
}

class Callers {
 public:
  Callers() : state_(backtrace_create_state(nullptr, 1, &ignore_error, nullptr)) {
    library_ = module_of(reinterpret_cast<std::uintptr_t>(&ignore_error));
    const std::string_view here = __FILE__;
    source_folder_ = here.substr(0, here.rfind("frontend/tools/"));
  }

  std::string describe(std::source_location where) {
    std::pair<Stack, std::string> key{{}, short_location(where)};
    const auto add = [](void* to, std::uintptr_t address) {
      static_cast<Stack*>(to)->push_back(address);
      return 0;
    };
    backtrace_simple(state_, 1, add, &ignore_error, &key.first);
    const std::lock_guard lock(mutex_);
    if (const auto known = chains_.find(key); known != chains_.end()) return known->second;
    std::string text = chain(key.first, key.second, short_name(where.function_name()));
    return chains_.emplace(std::move(key), std::move(text)).first->second;
  }

 private:
  static const void* module_of(std::uintptr_t address) {
    Dl_info info{};
    return dladdr(reinterpret_cast<const void*>(address), &info) != 0 ? info.dli_fbase : nullptr;
  }

  /// The frames that are the program's own up to main(), without those up to the line of the call, or, where its line
  /// is not known, its function.
  std::string chain(const Stack& stack, const std::string& line, const std::string& function) {
    std::vector<const Frame*> all;
    for (const std::uintptr_t address : stack)
      for (const Frame& f : frames_at(address)) all.push_back(&f);
    const auto end = std::ranges::find_if(all, [](const Frame* f) { return f->function == "main"; });
    if (end != all.end()) all.erase(end + 1, all.end());
    const auto is_call = [&](const Frame* f) {
      return f->line == line || (f->line.empty() && !function.empty() && f->function == function);
    };
    const auto call = std::ranges::find_if(all, is_call);
    if (call != all.end()) all.erase(all.begin(), call + 1);
    // What called the outermost known line is a library. Within, functions of the program can lack their line, too:
    // libbacktrace before GCC 14 loses some where units share functions that are not inlined.
    const auto has_line = [](const Frame* f) { return !f->line.empty(); };
    const auto outermost = std::find_if(all.rbegin(), all.rend(), has_line).base();
    if (outermost != all.begin()) all.erase(outermost, all.end());
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), kMostCallers); ++i) {
      const Frame& f = *all[i];
      text += text.empty() ? "" : "\n";
      text += f.line.empty() ? f.function : f.function.empty() ? f.line : fmt::format("{} ({})", f.line, f.function);
    }
    return text;
  }

  /// Several where functions are inlined, innermost first; none of this library and of the system.
  const std::vector<Frame>& frames_at(std::uintptr_t address) {
    const auto [at, is_new] = frames_.try_emplace(address);
    std::vector<Frame>& frames = at->second;
    if (!is_new || (library_ != nullptr && module_of(address) == library_)) return frames;
    struct Found {
      const Callers& callers;
      std::vector<Frame>& frames;
      bool has_line = false;
    } found{*this, frames};
    const auto add_line = [](void* to, std::uintptr_t, const char* file, int line, const char* function) {
      Found& all = *static_cast<Found*>(to);
      if (file == nullptr) return 0;
      all.has_line = true;
      if (!all.callers.is_own(file)) return 0;
      const std::string_view path = file;
      std::size_t cut = path.rfind('/');
      if (cut != path.npos && cut != 0) cut = path.rfind('/', cut - 1);
      all.frames.push_back(
          {fmt::format("{}:{}", cut == path.npos ? path : path.substr(cut + 1), line), short_function(function)});
      return 0;
    };
    backtrace_pcinfo(state_, address, add_line, &ignore_error, &found);
    if (found.has_line) return frames;
    const auto add_symbol = [](void* to, std::uintptr_t, const char* name, std::uintptr_t, std::uintptr_t) {
      if (name != nullptr && is_own_symbol(name)) static_cast<Found*>(to)->frames.push_back({"", short_function(name)});
    };
    backtrace_syminfo(state_, address, add_symbol, &ignore_error, &found);
    return frames;
  }

  /// Whether a source file is the program's own.
  bool is_own(std::string_view file) const {
    if (file.starts_with("/usr/") || file.find("/include/fermata/") != file.npos) return false;
    if (source_folder_.empty() || !file.starts_with(source_folder_)) return true;
    const std::string_view rest = file.substr(source_folder_.size());
    return rest.starts_with("examples/") || rest.starts_with("tests/") || rest.starts_with("bench/");
  }

  backtrace_state* const state_;
  const void* library_ = nullptr;
  std::string_view source_folder_;
  ForkSafeMutex mutex_;
  std::map<std::uintptr_t, std::vector<Frame>> frames_;
  std::map<std::pair<Stack, std::string>, std::string> chains_;
};

std::string describe_callers(std::source_location where) {
  static Callers* const callers = new Callers;
  return callers->describe(where);
}

}  // namespace
#endif

bool show_callers(bool on, [[maybe_unused]] Location where) {
#ifdef FERMATA_WITH_BACKTRACE
  return detail::describe_callers.exchange(on ? &describe_callers : nullptr) != nullptr;
#else
  if (on)
    throw UnsupportedError(5740, format_error(5740, "UnsupportedError", "show_callers: this build has no libbacktrace",
                                              {}, where, "build with a g++ that has libbacktrace.a"));
  return false;
#endif
}

void show_callers_from_environment() {
  const char* const value = environment_variable("FERMATA_CALLERS");
  if (value == nullptr || *value == '\0' || std::string_view(value) == "0") return;
  try {
    show_callers(true);
  } catch (const Error& error) { std::fprintf(stderr, "fermata warning: %s\n", error.what()); }
}

}  // namespace fermata
