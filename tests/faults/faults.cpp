// See faults.h.
#include "tests/faults/faults.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/faults/count.h"

namespace fermata::faults {
namespace {

constexpr int kMostFrames = 64;

struct State {
  std::atomic<bool> failed{false};
  std::atomic<int> kind{0};
  std::atomic<std::uint64_t> number{0}, count{0};
  void* frames[kMostFrames];
  int frame_count = 0;
};
State own_state;
constinit State* shared_state = nullptr;  // once there is one
State& state_of_all() { return shared_state != nullptr ? *shared_state : own_state; }
constinit std::atomic<bool> armed{false};
constinit thread_local bool is_inside = false;

std::string name_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return "?";
  const std::string_view file = info.dli_fname == nullptr ? "" : info.dli_fname;
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase);
  std::string text = fmt::format("{}+{:#x}", file.substr(file.rfind('/') + 1), offset);
  if (info.dli_sname == nullptr) return text;
  int status = 0;
  char* const plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  text += fmt::format(" {}", std::string_view(plain != nullptr ? plain : info.dli_sname).substr(0, 100));
  std::free(plain);
  return text;
}

bool is_of_standard_library(const char* file) {
  for (const char* const name : {"libstdc++", "libc.so", "libgcc_s", "libfmt", "libm.so", "ld-linux"})
    if (std::strstr(file, name) != nullptr) return true;
  return false;
}

/// FERMATA_FAULTS=KIND:N, in a program that this was loaded into.
struct FromEnvironment {
  FromEnvironment() {
    const char* const text = std::getenv("FERMATA_FAULTS");
    if (text == nullptr) return;
    const std::string_view wanted = text;
    const std::size_t colon = wanted.find(':');
    for (std::size_t kind = 0; kind < kFaultKinds; ++kind) {
      if (wanted.substr(0, colon) != kKindNames[kind]) continue;
      install();
      arm(static_cast<FaultKind>(kind), colon == wanted.npos ? 0 : std::strtoull(text + colon + 1, nullptr, 10));
      return;
    }
    std::fprintf(stderr, "FERMATA_FAULTS=%s is not a kind of points and a number, such as allocation:17\n", text);
    std::_Exit(2);
  }
  ~FromEnvironment() {
    if (!armed) return;
    const State& state = state_of_all();
    const bool failed = has_failed();
    const std::string where = failed ? place() : std::string();
    const auto kind = static_cast<std::size_t>(state.kind.load());
    std::fprintf(stderr, "FERMATA_FAULTS: %llu points of the kind %s\n%s", static_cast<unsigned long long>(disarm()),
                 kKindNames[kind], where.c_str());
  }
};

}  // namespace

void share_with_children() {
  if (shared_state != nullptr) return;
  void* const room = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) shared_state = ::new (room) State;
}

void install() {
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs
  fault_injector = [](FaultKind kind) { return fails(kind); };
}

void arm(FaultKind kind, std::uint64_t number) {
  armed = false;
  State& state = state_of_all();
  state.kind = static_cast<int>(kind), state.number = number;
  state.count = 0, state.failed = false, state.frame_count = 0;
  armed = true;
}

std::uint64_t disarm() {
  armed = false;
  return state_of_all().count;
}

bool has_failed() { return state_of_all().failed; }

std::string place() {
  const State& state = state_of_all();
  std::string text;
  for (int i = 0; i < state.frame_count; ++i) text += fmt::format("    {}\n", name_of(state.frames[i]));
  return text;
}

bool was_of_program() {
  const State& state = state_of_all();
  int i = 0;
  Dl_info own{}, info{};
  dladdr(reinterpret_cast<void*>(&fails), &own);
  for (bool is_replaced = false; !is_replaced && i < state.frame_count; ++i) {
    if (dladdr(state.frames[i], &info) == 0 || info.dli_fbase != own.dli_fbase) break;
    is_replaced = info.dli_sname != nullptr && std::strstr(info.dli_sname, "fermata") == nullptr;
  }
  for (; i < state.frame_count; ++i) {
    if (dladdr(state.frames[i], &info) == 0 || info.dli_fname == nullptr) return false;
    if (is_of_standard_library(info.dli_fname)) continue;
    return std::strstr(info.dli_fname, "libfermata") == nullptr;
  }
  return false;
}

bool is_armed() { return armed.load(std::memory_order_relaxed); }

bool fails(FaultKind kind) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  State& state = state_of_all();
  if (state.kind.load(std::memory_order_relaxed) != static_cast<int>(kind)) return false;
  if (is_inside || WithoutFaults::in_force()) return false;
  if (state.count.fetch_add(1, std::memory_order_relaxed) + 1 != state.number.load(std::memory_order_relaxed))
    return false;
  is_inside = true;
  state.frame_count = backtrace(state.frames, kMostFrames);
  is_inside = false;
  state.failed = true;
  return true;
}

static const FromEnvironment from_environment;

}  // namespace fermata::faults
