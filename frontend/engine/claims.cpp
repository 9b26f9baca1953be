// See claims.h.
#include "frontend/engine/claims.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "ir/fork.h"

namespace fermata {
namespace {

/// Where something of a thread lies: which one it is, nothing else. It may have ended when another one compares it.
using ThreadId = const void*;
ThreadId this_thread() {
  static thread_local const char place = 0;
  return &place;
}

struct Claim {
  const Node* node;
  ThreadId thread;
};
struct alignas(64) Shard {
  ForkSafeMutex mutex;
  std::condition_variable released;
  std::vector<Claim> claims;
  auto find(const Node* node) { return std::ranges::find(claims, node, &Claim::node); }
};
/// By the place in memory, since a thread takes its nodes from the same few places again and again: so it writes shards
/// that others do not write.
Shard& shard_of(const Node* node) {
  static auto* shards = new std::array<Shard, 256>;  // outlives every static tensor
  const auto place = reinterpret_cast<std::uintptr_t>(node) >> 13;
  return (*shards)[place * 0x9E3779B97F4A7C15u >> 56];
}

/// This thread waits for another one, unless that waits for this one already.
class Wait {
 public:
  explicit Wait(ThreadId owner) {
    const std::lock_guard lock(mutex());
    const auto waits_for = [](ThreadId thread) {
      const auto wait = std::ranges::find(all(), thread, &Entry::waiting);
      return wait == all().end() ? nullptr : wait->owner;
    };
    for (ThreadId t = owner; t != nullptr; t = waits_for(t))
      if (t == this_thread()) return;
    all().push_back({this_thread(), owner}), ends_ = true;
  }
  ~Wait() {
    if (!ends_) return;
    const std::lock_guard lock(mutex());
    all().erase(std::ranges::find(all(), this_thread(), &Entry::waiting));
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  bool ends() const { return ends_; }

 private:
  struct Entry {
    ThreadId waiting, owner;
  };
  static ForkSafeMutex& mutex() {
    static auto* mutex = new ForkSafeMutex;  // outlives every static tensor
    return *mutex;
  }
  static std::vector<Entry>& all() {
    static auto* entries = new std::vector<Entry>;
    return *entries;
  }
  bool ends_ = false;
};

}  // namespace

bool Claims::take(std::span<Node* const> nodes) {
  const ThreadId me = this_thread();
  held_.reserve(held_.size() + nodes.size());  // what is claimed is held: others wait until it is released
  for (Node* const node : nodes) {
    Shard& shard = shard_of(node);
    std::unique_lock<std::mutex> lock(shard.mutex);
    if (!node->pending()) {
      lock.unlock();
      release();
      return false;
    }
    const auto known = shard.find(node);
    if (known == shard.claims.end()) {
      shard.claims.push_back({node, me});
      held_.push_back(node);
      continue;
    }
    const ThreadId owner = known->thread;
    if (owner == me) continue;  // by a plan of this thread, whose kernel asks for it: it is computed twice
    lock.unlock();
    release();
    const Wait wait(owner);
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
