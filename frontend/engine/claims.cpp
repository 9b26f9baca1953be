// See claims.h.
#include "frontend/engine/claims.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace fermata {
namespace {

struct Thread {
  const Thread* waits_for = nullptr;  // under `waiting`
};
const Thread& this_thread() {
  static thread_local const Thread thread;
  return thread;
}
std::mutex waiting;

struct Claim {
  const Node* node;
  const Thread* thread;
};
struct Shard {
  std::mutex mutex;
  std::condition_variable released;
  std::vector<Claim> claims;
  auto find(const Node* node) { return std::ranges::find(claims, node, &Claim::node); }
};
Shard& shard_of(const Node* node) {
  static auto* shards = new std::array<Shard, 64>;  // outlives every static tensor
  return (*shards)[reinterpret_cast<std::uintptr_t>(node) / sizeof(Node) % shards->size()];
}

/// This thread waits for another one, unless that waits for this one already.
class Wait {
 public:
  explicit Wait(const Thread& owner) : me_(const_cast<Thread&>(this_thread())) {
    const std::lock_guard lock(waiting);
    for (const Thread* t = &owner; t != nullptr; t = t->waits_for)
      if (t == &me_) return;
    me_.waits_for = &owner, ends_ = true;
  }
  ~Wait() {
    const std::lock_guard lock(waiting);
    me_.waits_for = nullptr;
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  bool ends() const { return ends_; }

 private:
  Thread& me_;
  bool ends_ = false;
};

}  // namespace

bool Claims::take(std::span<Node* const> nodes) {
  const Thread& me = this_thread();
  for (Node* const node : nodes) {
    Shard& shard = shard_of(node);
    std::unique_lock lock(shard.mutex);
    if (!node->pending()) {
      lock.unlock();
      release();
      return false;
    }
    const auto known = shard.find(node);
    if (known == shard.claims.end()) {
      shard.claims.push_back({node, &me});
      held_.push_back(node);
      continue;
    }
    const Thread* const owner = known->thread;
    if (owner == &me) continue;  // by a plan of this thread, whose kernel asks for it: it is computed twice
    lock.unlock();
    release();
    const Wait wait(*owner);
    if (!wait.ends()) return true;
    lock.lock();
    shard.released.wait(lock, [&] {
      const auto now = shard.find(node);
      return now == shard.claims.end() || now->thread != owner;
    });
    return false;
  }
  return true;
}

void Claims::release() {
  for (const Node* const node : held_) {
    Shard& shard = shard_of(node);
    {
      const std::lock_guard lock(shard.mutex);
      shard.claims.erase(shard.find(node));
    }
    shard.released.notify_all();
  }
  held_.clear();
}

}  // namespace fermata
