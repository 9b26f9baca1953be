// See fork.h.
#include "ir/fork.h"

#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "ir/fork_stages.h"

namespace fermata {
namespace {

constexpr std::size_t kStages = static_cast<std::size_t>(ForkStage::memory) + 1;
/// A mutex that is not free after so long belongs to who forks.
constexpr auto kPatience = std::chrono::seconds(10);

struct Forks {
  std::mutex mutex;  // of the two lists; held over a fork
  std::array<std::vector<ForkHandlers>, kStages> handlers;
  std::array<std::vector<ForkHandlers>, kStages> quiet;  // those that were there when the fork began
  std::vector<detail::ForkSafeBase*> mutexes;
  std::vector<detail::ForkSafeBase*> held;

  void take_mutexes();
  void before();
  void after(bool in_child);
};
Forks& forks() {
  static Forks* const all = new Forks;  // outlives every static mutex
  return *all;
}

/// Without waiting for one while another is held, so that no order has to be kept. Whoever makes one meanwhile may hold
/// another.
void Forks::take_mutexes() {
  const auto begin = std::chrono::steady_clock::now();
  for (bool patient = true;; patient = std::chrono::steady_clock::now() - begin < kPatience) {
    mutex.lock();
    held.clear();
    held.reserve(mutexes.size());
    for (detail::ForkSafeBase* const m : mutexes)
      if (m->try_to_lock())
        held.push_back(m);
      else if (patient)
        break;
    if (held.size() == mutexes.size() || !patient) return;
    for (detail::ForkSafeBase* const m : held) m->let_go();
    mutex.unlock();
    std::this_thread::yield();
  }
}

void Forks::before() {
  {
    const std::lock_guard lock(mutex);
    quiet = handlers;
  }
  for (const auto& stage : quiet)
    for (const ForkHandlers& h : stage)
      if (h.before) h.before();
  take_mutexes();
}

void Forks::after(bool in_child) {
  for (detail::ForkSafeBase* const m : held) in_child ? m->begin_anew() : m->let_go();
  mutex.unlock();
  // Other threads may register handlers meanwhile; the child has none.
  auto& resumed = in_child ? handlers : quiet;
  for (auto stage = resumed.rbegin(); stage != resumed.rend(); ++stage)
    for (const ForkHandlers& h : *stage)
      if (const auto& handler = in_child ? h.in_child : h.in_parent) handler();
}

}  // namespace

void before_fork() { forks().before(); }
void after_fork(bool in_child) { forks().after(in_child); }

void at_fork(ForkStage stage, ForkHandlers given) {
  Forks& all = forks();
  const std::lock_guard lock(all.mutex);
  all.handlers[static_cast<std::size_t>(stage)].push_back(std::move(given));
}

namespace detail {

ForkSafeBase::ForkSafeBase() {
  Forks& all = forks();
  const std::lock_guard lock(all.mutex);
  all.mutexes.push_back(this);
}

ForkSafeBase::~ForkSafeBase() {
  Forks& all = forks();
  const std::lock_guard lock(all.mutex);
  std::erase(all.mutexes, this);
}

}  // namespace detail
}  // namespace fermata
