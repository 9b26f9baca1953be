// Ranks as threads of one process. A call has two barriers: all publish their operands, each computes its result from
// them, and none continues before all have finished.
#include "frontend/distributed/simulated_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "fermata/mesh.h"
#include "frontend/tensor/host_elements.h"

namespace fermata::distributed {

constinit thread_local const Group* simulated_world = nullptr;

namespace {

/// A message from one rank to another that has not been received.
struct Message {
  std::int64_t from, to, tag;
  std::vector<std::byte> bytes;
};

/// The barrier of the ranks of one group.
struct Meeting {
  std::vector<std::int64_t> members;  // ranks of the world, in the order of the group
  std::vector<CollectiveCall> shown;
  std::vector<std::int64_t> keys;  // of a split
  std::size_t arrived = 0;
  std::uint64_t round = 0, splits = 0;
  std::vector<Message> messages;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::shared_ptr<Meeting>> parts;  // by split and color
};

/// State shared by all ranks.
struct Shared {
  explicit Shared(std::size_t n) : has_ended(n) {}
  std::mutex mutex;
  std::condition_variable moved;
  std::vector<bool> has_ended;  // by rank of the world
};

using Lock = std::unique_lock<std::mutex>;

template <class Done>
void wait(Shared& all, Lock& lock, const Meeting& group, std::source_location where, Done&& done) {
  const auto gone = [&] {
    return std::ranges::find_if(group.members,
                                [&](std::int64_t r) { return all.has_ended[static_cast<std::size_t>(r)]; });
  };
  all.moved.wait(lock, [&] { return done() || gone() != group.members.end(); });
  if (!done())
    throw CollectiveError(
        7110, format_error(7110, "CollectiveError", fmt::format("rank {} has exited while others wait for it", *gone()),
                           {}, where));
}

void meet(Shared& all, Meeting& group, std::source_location where) {
  Lock lock(all.mutex);
  const std::uint64_t round = group.round;
  if (++group.arrived == group.members.size()) {
    group.arrived = 0, ++group.round;
    all.moved.notify_all();
    return;
  }
  wait(all, lock, group, where, [&] { return group.round != round; });
}

template <class T> T combined(T a, T b, CollectiveReduction how) {
  constexpr bool is_complex_number = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
  if constexpr (std::is_same_v<T, bool>) {
    return how == CollectiveReduction::max || how == CollectiveReduction::sum ? a || b : a && b;
  } else if constexpr (is_complex_number) {
    return how == CollectiveReduction::prod ? a * b : a + b;
  } else {
    if constexpr (std::is_floating_point_v<T>)
      if ((how == CollectiveReduction::max || how == CollectiveReduction::min) && (std::isnan(a) || std::isnan(b)))
        return std::numeric_limits<T>::quiet_NaN();
    // Integers wrap.
    using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    switch (how) {
      case CollectiveReduction::prod: return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      case CollectiveReduction::max: return a < b ? b : a;
      case CollectiveReduction::min: return b < a ? b : a;
      default: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    }
  }
}

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(std::shared_ptr<Shared> all, std::shared_ptr<Meeting> group, std::size_t rank)
      : all_(std::move(all)), group_(std::move(group)), rank_(rank) {}

  std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) override {
    struct Ended final : StartedTransfer {
      bool progress() override { return true; }
      void wait() override {}
    };
    run(call);
    return std::make_unique<Ended>();
  }

  void run(const CollectiveCall& call) override {
    if (call.kind == CollectiveKind::send) return send(call);
    if (call.kind == CollectiveKind::receive) return receive(call);
    group_->shown[rank_] = call;
    meet(*all_, *group_, call.where);
    for (const CollectiveCall& other : group_->shown)
      if (other.kind != call.kind || other.count != call.count || other.dtype != call.dtype)
        throw CollectiveError(7111, format_error(7111, "CollectiveError",
                                                 fmt::format("{}: another rank calls {} of {} elements, this one of {}",
                                                             call.name, other.name, other.count, call.count),
                                                 {}, call.where));
    make(call);
    meet(*all_, *group_, call.where);
  }

  Part split(std::int64_t color, std::int64_t key, std::source_location where) override {
    group_->keys[rank_] = key;
    std::shared_ptr<Meeting> part;
    {
      const Lock lock(all_->mutex);
      std::shared_ptr<Meeting>& found = group_->parts[{splits_++, color}];
      if (found == nullptr) found = std::make_shared<Meeting>();
      found->members.push_back(static_cast<std::int64_t>(rank_));  // of this group, until all have arrived
      part = found;
    }
    meet(*all_, *group_, where);
    Part result;
    {
      const Lock lock(all_->mutex);
      result.ranks = part->members;
      std::ranges::sort(result.ranks, {},
                        [&](std::int64_t r) { return std::pair(group_->keys[static_cast<std::size_t>(r)], r); });
    }
    meet(*all_, *group_, where);
    {
      const Lock lock(all_->mutex);
      part->members.clear();
      for (const std::int64_t r : result.ranks) part->members.push_back(group_->members[static_cast<std::size_t>(r)]);
      part->shown.resize(result.ranks.size()), part->keys.resize(result.ranks.size());
    }
    meet(*all_, *group_, where);
    const auto own = std::ranges::find(result.ranks, static_cast<std::int64_t>(rank_)) - result.ranks.begin();
    result.transport = std::make_unique<SimulatedTransport>(all_, part, static_cast<std::size_t>(own));
    return result;
  }
  std::string_view name() const override { return "threads of one process"; }

 private:
  const std::byte* block(std::size_t of, std::size_t number, std::size_t bytes) const {
    return static_cast<const std::byte*>(group_->shown[of].from) + number * bytes;
  }

  void make(const CollectiveCall& call) {
    const std::size_t n = group_->members.size(), bytes = static_cast<std::size_t>(call.count) * byte_size(call.dtype);
    const auto root = static_cast<std::size_t>(call.peer);
    const auto put = [&](std::size_t at, const std::byte* from) {
      if (bytes != 0) std::memmove(static_cast<std::byte*>(call.to) + at * bytes, from, bytes);
    };
    switch (call.kind) {
      case CollectiveKind::all_reduce: return reduce(call, 0);
      case CollectiveKind::reduce:
        if (rank_ == root) return reduce(call, 0);
        return meet(*all_, *group_, call.where);
      case CollectiveKind::reduce_scatter: return reduce(call, static_cast<std::int64_t>(rank_) * call.count);
      case CollectiveKind::gather:
        if (rank_ != root) return;
        [[fallthrough]];
      case CollectiveKind::all_gather:
        for (std::size_t r = 0; r < n; ++r) put(r, block(r, 0, bytes));
        return;
      case CollectiveKind::all_to_all:
        for (std::size_t r = 0; r < n; ++r) put(r, block(r, rank_, bytes));
        return;
      case CollectiveKind::broadcast: return put(0, block(root, 0, bytes));
      case CollectiveKind::scatter: return put(0, block(root, rank_, bytes));
      case CollectiveKind::permute:
        if (bytes != 0) std::memset(call.to, 0, bytes);
        for (std::size_t i = 0; i + 1 < call.pairs.size(); i += 2)
          if (static_cast<std::size_t>(call.pairs[i + 1]) == rank_)
            put(0, block(static_cast<std::size_t>(call.pairs[i]), 0, bytes));
        return;
      default: return;
    }
  }

  /// In the order of ranks, so that all have the same bits.
  void reduce(const CollectiveCall& call, std::int64_t begin) {
    const auto plain = [&]<class T>() {
      std::vector<T> sum(static_cast<std::size_t>(call.count));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(begin) + i;
        T value = static_cast<const T*>(group_->shown[0].from)[at];
        for (std::size_t r = 1; r < group_->shown.size(); ++r)
          value = combined(value, static_cast<const T*>(group_->shown[r].from)[at], call.reduction);
        sum[i] = value;
      }
      made_.resize(sum.size() * sizeof(T));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const T value = sum[i];
        std::memcpy(made_.data() + i * sizeof(T), &value, sizeof(T));
      }
    };
    if (!visit_complex(call.dtype, plain)) visit_compute(call.dtype, plain);
    meet(*all_, *group_, call.where);  // the operand may overlap the result
    if (!made_.empty()) std::memcpy(call.to, made_.data(), made_.size());
  }

  void send(const CollectiveCall& call) {
    const Lock lock(all_->mutex);
    const auto* const from = static_cast<const std::byte*>(call.from);
    const std::size_t bytes = static_cast<std::size_t>(call.count) * byte_size(call.dtype);
    group_->messages.push_back({static_cast<std::int64_t>(rank_), call.peer, call.tag, {from, from + bytes}});
    all_->moved.notify_all();
  }
  void receive(const CollectiveCall& call) {
    Lock lock(all_->mutex);
    const auto find = [&] {
      return std::ranges::find_if(group_->messages, [&](const Message& m) {
        return m.from == call.peer && m.to == static_cast<std::int64_t>(rank_) && m.tag == call.tag;
      });
    };
    wait(*all_, lock, *group_, call.where, [&] { return find() != group_->messages.end(); });
    const auto found = find();
    if (!found->bytes.empty()) std::memcpy(call.to, found->bytes.data(), found->bytes.size());
    group_->messages.erase(found);
  }

  std::shared_ptr<Shared> all_;
  std::shared_ptr<Meeting> group_;
  std::size_t rank_;
  std::uint64_t splits_ = 0;
  std::vector<std::byte> made_;
};

}  // namespace

void simulate(int processes, const std::function<void(int rank)>& fn) {
  const auto count = static_cast<std::size_t>(processes);
  const auto all = std::make_shared<Shared>(count);
  const auto everybody = std::make_shared<Meeting>();
  for (std::int64_t r = 0; r < processes; ++r) everybody->members.push_back(r);
  everybody->shown.resize(count), everybody->keys.resize(count);
  std::exception_ptr first;
  const auto run = [&](int rank) {
    const Group world(add_group(rank, everybody->members,
                                std::make_unique<SimulatedTransport>(all, everybody, static_cast<std::size_t>(rank)),
                                rank));
    simulated_world = &world;
    std::exception_ptr error;
    try {
      fn(rank);
    } catch (...) { error = std::current_exception(); }
    simulated_world = nullptr;
    const Lock lock(all->mutex);
    // Errors of ranks that only waited for a failed one are less informative.
    if (first == nullptr) first = error;
    all->has_ended[static_cast<std::size_t>(rank)] = true;
    all->moved.notify_all();
  };
  std::vector<std::thread> others;
  for (int rank = 0; rank < processes; ++rank) others.emplace_back(run, rank);
  for (std::thread& t : others) t.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace fermata::distributed
