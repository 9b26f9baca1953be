// See sync.h. Syncs hold no lock: who meets what another thread computes waits for it (frontend/engine/claims.h,
// docs/adr/002).
#include "frontend/engine/sync.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "dispatch/devices.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/claims.h"
#include "frontend/engine/compile_policy.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/few_calls.h"
#include "frontend/engine/habit_warnings.h"
#include "frontend/engine/interpreter.h"
#include "frontend/engine/pending_bound.h"
#include "frontend/engine/profiled_plans.h"
#include "frontend/engine/shown_views.h"
#include "frontend/engine/takeovers.h"
#include "frontend/engine/value_checks.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "ir/per_thread.h"
#include "passes/pipeline.h"
#include "runtime/backend_memory.h"
#include "runtime/bound_plan.h"
#include "runtime/cancellation.h"
#include "runtime/effects.h"
#include "runtime/events.h"
#include "runtime/function_ref.h"
#include "runtime/node_visits.h"
#include "runtime/plan_cache.h"
#include "runtime/retained_leaves.h"
#include "runtime/stats.h"
#include "runtime/tensor.h"
#include "runtime/walk.h"

namespace fermata {
namespace {

/// The plan that the innermost sync of this thread has run, while somebody profiles.
constinit thread_local std::uint64_t plan_of_sync = 0;
/// Nodes that this thread had recorded at its last sync.
constinit thread_local std::uint64_t recorded_before = 0;

/// What a thread keeps from sync to sync. `epoch_` is odd while the thread may be reading nodes of other threads, and
/// `visits_` has those nodes; the inputs of a published node are cut off only when every thread that was inside a sync
/// at that moment, and may have visited the node, has left it. Sequential consistency (of visits, of epochs, and of
/// Node::storage here) is what makes "I saw nobody there" and "I saw it published" exclude each other. A sync looks at
/// the visits first: they rarely change, and an epoch changes twice with every sync of its thread.
class Player {
 public:
  /// A player of this thread for one sync: what a kernel computes while its plan runs is played by another one.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Player* operator->() const { return player_; }

   private:
    Player *player_, *outer_ = nullptr;
  };
  void play(std::span<Node* const> roots, const char* reason);
  void look(FunctionRef<void()> read) {
    const Inside inside(*this);
    visits_.note_all();
    read();
  }
  static void forget_plans();
  static void prepare_thread();
  static void stop_for_fork();
  static void go_on_after_fork();
  static void begin_in_child();

 private:
  static Player& mine();
  struct Inside {
    explicit Inside(Player& p) : player(p) {
      player.visits_.forget_if_many();
      ++player.epoch_;
      if (forks.load() != 0) [[unlikely]]
        player.let_fork();
    }
    /// Only this thread writes it; who sees it late waits longer.
    ~Inside() { player.epoch_.store(player.epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    Player& player;
  };

  void let_fork();

  static Player* take();
  Player() : next_(players.load()) {
    walk_.visits = &visits_;
    while (!players.compare_exchange_weak(next_, this)) {}
  }
  void prime(Node* root);
  void compute(std::span<Node* const> roots, Claims& claims);
  bool claim(Claims& claims);
  bool play_effects_first(std::span<Node* const> roots);
  void run_plan(const Plan& plan);
  BoundPlan& bound_for(const Plan& plan);
  template <class F> void for_each_reader(std::span<const Node* const> nodes, F&& f) const;
  bool has_readers(std::span<const Node* const> nodes) const;
  bool claim_few_calls(Claims& claims);
  void make_few_calls(const char* reason);
  void publish();
  void publish(Node* node, StoragePtr& result);
  void cut_published(bool roots_only);
  static void cut(std::span<Node* const> nodes);
  void collect(bool wait);

  static constexpr int kForkedInside = -1;              // this process began in the middle of somebody's sync
  static inline std::atomic<int> forks{0};              // that are about to happen
  static inline std::atomic<int> threads{0};            // that have a player
  static inline std::atomic<Player*> players{nullptr};  // only grows; players of ended threads are taken over
  // What others read at each of their syncs has lines that a sync does not write.
  NodeVisits visits_;
  alignas(64) Player* next_;
  std::atomic<bool> taken_{true};
  alignas(64) std::atomic<std::uint64_t> epoch_{0};
  std::atomic<const void*> user_{nullptr};  // an address of the thread that plays
  bool plays_ = false;
  bool is_inner_ = false;  // what a kernel of a plan asks for
  FewCalls few_;
  Walk walk_;
  static constexpr std::size_t kMostBound = 16;
  std::vector<std::unique_ptr<BoundPlan>> bound_;  // the plans that this thread ran last, that one first
  std::uint64_t bound_generation_ = 0;             // of the plan cache, when they were bound
  std::vector<const Node*> records_;
  std::vector<LeafBuffer> leaves_;
  std::vector<void*> buffers_;
  std::vector<StoragePtr> results_, staged_;
  Takeovers takeovers_;
  std::vector<Node*> claimed_;
  std::vector<Node*> published_, waiting_;                        // waiting: published, inputs not cut yet, because of
  std::vector<std::pair<const Player*, std::uint64_t>> readers_;  // these threads in these epochs
  std::vector<Node*> later_;                                      // whose turn comes after those that wait
};

Player* Player::take() {
  Player* player = players.load();
  while (player != nullptr && player->taken_.exchange(true)) player = player->next_;
  return player != nullptr ? player : new Player;
}

Player& Player::mine() {
  struct Lease {
    Player* player = take();
    Lease() { threads.fetch_add(1); }
    ~Lease() { player->collect(true), player->taken_ = false, threads.fetch_sub(1); }
  };
  static constinit thread_local PerThread<Lease> lease;
  return *lease.get().player;
}

Player::Use::Use() : player_(&mine()) {
  if (player_->plays_) [[unlikely]]
    outer_ = std::exchange(player_, take());
  player_->plays_ = true, player_->is_inner_ = outer_ != nullptr;
  player_->user_.store(&thread_keys, std::memory_order_relaxed);
}

Player::Use::~Use() {
  player_->plays_ = false;
  if (outer_ == nullptr) [[likely]]
    return;
  // What waits for threads to leave their syncs, this one among them, waits with the player that stays.
  for (std::vector<Node*>* const nodes : {&player_->waiting_, &player_->later_}) {
    outer_->later_.insert(outer_->later_.end(), nodes->begin(), nodes->end());
    nodes->clear();
  }
  player_->readers_.clear();
  player_->taken_ = false;
}

/// A fork that is about to happen goes first: in the child nobody would end this sync.
void Player::let_fork() {
  while (forks.load() != 0) {
    if (forks.load() == kForkedInside) {
      ++epoch_;
      throw UnsupportedError(
          2031, format_error(2031, "UnsupportedError",
                             "this process was forked while another thread was computing, so it cannot compute", {}, {},
                             "fork before computing, or exec another program"));
    }
    if (is_inner_) return;
    ++epoch_;
    for (int now = forks.load(); now > 0; now = forks.load()) forks.wait(now);
    ++epoch_;
  }
}

void Player::stop_for_fork() {
  ++forks;
  constexpr auto kPatience = std::chrono::seconds(10);
  const auto begin = std::chrono::steady_clock::now();
  for (const Player* p = players.load(); p != nullptr; p = p->next_)
    while (p->epoch_.load() % 2 != 0 && p->user_.load() != &thread_keys &&
           std::chrono::steady_clock::now() - begin < kPatience)
      std::this_thread::yield();
}

void Player::forget_plans() {
  Use()->bound_.clear();
  for (Player* p = players.load(); p != nullptr; p = p->next_) {
    if (p->taken_.exchange(true)) continue;
    p->bound_.clear();
    p->taken_ = false;
  }
}

void Player::go_on_after_fork() {
  --forks;
  forks.notify_all();
}

void Player::begin_in_child() {
  forks = 0, threads = 1;
  for (Player* p = players.load(); p != nullptr; p = p->next_) {
    if (p->user_.load() == &thread_keys) continue;
    if (p->epoch_.load() % 2 != 0)
      forks = kForkedInside;
    else
      p->taken_ = false;
  }
}

void Player::play(std::span<Node* const> roots, const char* reason) {
  if (!waiting_.empty() || !later_.empty()) [[unlikely]]
    collect(false);
  published_.clear();
  const Inside inside(*this);
  const std::uint8_t checks = value_checks();
  if (checks == 0 && may_play_calls() && few_.list(roots, visits_)) {
    Claims claims;
    if (claim_few_calls(claims)) return make_few_calls(reason);
    few_.clear();  // another thread has made them, or some of them
  }
  if (std::all_of(roots.begin(), roots.end(), [](const Node* n) { return n->storage.load() != nullptr; })) return;
  count_sync(reason);
  results_.clear();
  Claims claims;  // until what they are about is published, or has failed
  compute(roots, claims);
  publish();
}

void Player::prime(Node* root) {
  results_.clear(), published_.clear();
  const Inside inside(*this);
  walk_.run({&root, 1});
  PlanCache::instance().find(root->hash, walk_.key);
  static_cast<void>(ThreadCounts::mine());
  results_.resize(walk_.outputs.size());
  interpret(walk_, results_);
  publish();
}

/// What a thread makes first is destroyed last. So a single copy is computed: that makes what a sync keeps in its
/// thread, whether it plays calls or runs a plan.
void Player::prepare_thread() {
  Node* const leaf = make_leaf({DType::f32, {}}, Storage::allocate(sizeof(float)), BackendKey::cpu, Node::kEdge);
  *static_cast<float*>(leaf->storage.load()->data) = 0;
  Node* const copy = ::new (allocate_node()) Node{.refs{Node::kTensor},
                                                  .storage{nullptr},
                                                  .op = Op::copy,
                                                  .dtype = DType::f32,
                                                  .rank = 0,
                                                  .arity = 1,
                                                  .backend = BackendKey::cpu,
                                                  .inline_sizes = {},
                                                  .where = {},
                                                  .inputs = {leaf, nullptr, nullptr},
                                                  .scalar = 0,
                                                  .extra = nullptr,
                                                  .hash = 1,
                                                  .hint{0},
                                                  .depth{1},
                                                  .tape{0},
                                                  .stretched = {0, 0, 0}};
  const Tensor value(copy, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
  const Use use;
  use->prime(copy);
}

/// Sees to it that no other thread makes the same calls. False where one has, meanwhile.
bool Player::claim(Claims& claims) {
  const bool is_once = walk_.has_boxed || walk_.has_effects;  // calls that may not be made twice
  if (!is_once && threads.load(std::memory_order_relaxed) <= 1) [[likely]]
    return true;
  claimed_.clear();
  for (const std::uint32_t i : walk_.outputs) claimed_.push_back(walk_.order[i].node);
  for (const Walk::ShownView& v : walk_.views) claimed_.push_back(walk_.order[v.view].node);
  for (const Walk::Entry& e : walk_.order)
    if (is_once && e.storage == nullptr && (is_boxed(e.node->op) || effect_of(e.node->op) == Effect::effect))
      claimed_.push_back(e.node);
  return claims.take(claimed_);
}

/// Where a program is partitioned, calls with an effect are made first, each by itself. Another rank may have made them
/// already, so neither their place beside the collectives of the partitioner nor its buckets may depend on them.
/// Returns whether there were any besides the root.
bool Player::play_effects_first(std::span<Node* const> roots) {
  std::vector<Node*> effects;
  for (const Walk::Entry& e : walk_.order)
    if (e.storage == nullptr && has_effect(*e.node)) effects.push_back(e.node);
  if (effects.empty() || (roots.size() == 1 && effects[0] == roots[0]) || !is_partitioned(walk_)) return false;
  for (Node* const effect : effects)
    if (effect->pending()) Use()->play({&effect, 1}, "effects that were recorded");
  return true;
}

void Player::compute(std::span<Node* const> roots, Claims& claims) {
  for (bool is_claimed = false; !is_claimed;) {
    walk_.run(roots);
    if (walk_.outputs.empty() && walk_.views.empty()) return;  // another thread has computed all of it
    if (walk_.has_distributed || walk_.has_boxed) [[unlikely]]
      if (play_effects_first(roots)) continue;
    is_claimed = claim(claims);
  }
  show_views(walk_, ViewsOf::leaves, published_);  // before a plan takes what only they refer to for a result
  if (walk_.outputs.empty()) return;
  results_.resize(walk_.outputs.size());
  if (walk_.has_distributed || walk_.has_boxed) [[unlikely]]
    if (is_partitioned(walk_)) return run_partitioned(walk_, results_);
  const std::uint8_t checks = value_checks();
  if ((checks & kCheckNan) != 0 && can_check(walk_, kCheckNan)) [[unlikely]]
    return interpret_looking_for_nan(walk_, results_);
  const PlanCache::Use use(roots.back()->hash, walk_.key);
  const PlanEntryPtr& entry = *use;
  if ((checks & kCheckModes) != 0 && can_check(walk_, kCheckModes)) [[unlikely]] {
    run_plan(*compile_entry(*entry, walk_));
    return compare_with_calls(walk_, results_);
  }
  PlanRun run(entry, walk_);
  if (run.plan() != nullptr) {
    run_plan(*run.plan());
  } else {
    ThreadCounts::add_one(ThreadCounts::mine().call_plays);
    interpret(walk_, results_);
  }
  run.end();
}

/// What is bound to the plan already, or else takes the place of what has not been used for longest: a program that
/// runs a few plans in turn then binds none of them anew.
BoundPlan& Player::bound_for(const Plan& plan) {
  if (!bound_.empty() && bound_[0]->plan_number() == plan.number) [[likely]]
    return *bound_[0];
  if (const std::uint64_t now = PlanCache::instance().generation(); bound_generation_ != now) [[unlikely]]
    bound_.clear(), bound_generation_ = now;
  auto found = std::ranges::find_if(bound_, [&](const auto& b) { return b->plan_number() == plan.number; });
  if (found == bound_.end() && bound_.size() < kMostBound)
    bound_.push_back(std::make_unique<BoundPlan>()), found = bound_.end() - 1;
  if (found == bound_.end()) --found;
  std::rotate(bound_.begin(), found, found + 1);
  return *bound_[0];
}

void Player::run_plan(const Plan& plan) {
  records_.clear(), leaves_.clear(), buffers_.clear(), staged_.clear();
  for (const Walk::Entry& e : walk_.order) records_.push_back(e.node);
  if (wants_events()) [[unlikely]]
    plan_of_sync = plan.number, note_profiled_plan(plan.number, [&] {
      return ProfiledPlan{import_graph(walk_), walk_.backend};
    });
  BoundPlan& bound = bound_for(plan);
  bound.bind(plan, records_);
  for (const std::uint32_t record : plan.leaf_records)
    leaves_.push_back(leaf_buffer(*walk_.order[record].node, *walk_.order[record].storage, plan.backend, staged_));
  const bool may_overwrite = value_checks() == 0;  // else the calls are to run on the same leaves
  takeovers_.choose(walk_, plan, may_overwrite ? bound.overwrites() : std::span<const Overwrite>());
  takeovers_.announce([&](const Node* leaf) { return has_readers({&leaf, 1}); });
  takeovers_.take(leaves_, results_);
  try {
    for (std::size_t i = 0; i < walk_.outputs.size(); ++i) {
      const bool is_given = bound.has_boxed() && plan.slots[plan.output_slots[i]].is_given;
      if (results_[i] == nullptr && !is_given) results_[i].reset(allocate_on(plan.backend, bound.output_bytes(i)));
      buffers_.push_back(is_given ? nullptr : results_[i]->data);
    }
    bound.run(plan, leaves_, buffers_, results_);
    for (std::size_t i = 0; bound.has_boxed() && i < results_.size(); ++i)
      if (results_[i] == nullptr) results_[i] = bound.take_output(i);
  } catch (...) {
    takeovers_.give_back(bound.has_overwritten(), results_);
    throw;
  }
  staged_.clear();
}

bool Player::claim_few_calls(Claims& claims) {
  if (threads.load(std::memory_order_relaxed) <= 1 || few_.calls().empty()) [[likely]]
    return true;
  claimed_.clear();
  for (const FewCalls::Call& call : few_.calls())
    if (call.is_wanted()) claimed_.push_back(call.node);
  return claims.take(claimed_);
}

void Player::make_few_calls(const char* reason) {
  if (few_.calls().empty()) return;
  count_sync(reason);
  try {
    few_.run();
  } catch (...) {
    few_.clear();
    throw;
  }
  ThreadCounts::add_one(ThreadCounts::mine().call_plays);
  bool roots_only = true;
  for (FewCalls::Call& call : few_.calls())
    if (call.is_wanted()) publish(call.node, call.result), roots_only = roots_only && call.is_root;
  few_.clear();
  cut_published(roots_only);
}

void Player::publish() {
  for (std::size_t i = 0; i < results_.size(); ++i) publish(walk_.order[walk_.outputs[i]].node, results_[i]);
  results_.clear();
  show_views(walk_, ViewsOf::outputs, published_);
  cut_published(walk_.has_roots_only());
}

/// Unless another thread was first.
void Player::publish(Node* node, StoragePtr& result) {
  Storage* pending = nullptr;
  if (!node->storage.compare_exchange_strong(pending, result.get())) return;
  const std::size_t bytes = result.release()->bytes;
  if (bytes >= kLeastListed && static_cast<std::uint32_t>(node->refs.load(std::memory_order_relaxed)) != 0)
    note_leaf(node, bytes);
  published_.push_back(node);
}

/// The players of other threads that are inside a sync in which they may have visited one of the nodes, and their
/// epochs.
template <class F> void Player::for_each_reader(std::span<const Node* const> nodes, F&& f) const {
  for (const Player* p = players.load(std::memory_order_acquire); p != nullptr; p = p->next_) {
    if (p == this || std::ranges::none_of(nodes, [p](const Node* n) { return p->visits_.may_have(n); })) continue;
    if (const std::uint64_t epoch = p->epoch_.load(); epoch % 2 != 0) f(p, epoch);
  }
}

bool Player::has_readers(std::span<const Node* const> nodes) const {
  bool found = false;
  for_each_reader(nodes, [&](const Player*, std::uint64_t) { found = true; });
  return found;
}

void Player::cut_published(bool roots_only) {
  const bool are_read = has_readers(published_);
  if (!are_read && roots_only) return cut(published_);  // the caller has them all
  // Operands first, so that no cut frees a node still in this list; the edge taken here keeps each one until then.
  for (Node* n : published_) n->refs.fetch_add(Node::kEdge, std::memory_order_relaxed);
  if (are_read) {
    later_.insert(later_.end(), published_.begin(), published_.end());
    return;
  }
  cut(published_);
  for (Node* n : published_) drop_edge(n);
}

/// Gives up the operands of nodes that somebody else has. Edges to one node that follow each other go together.
void Player::cut(std::span<Node* const> nodes) {
  Node* shared = nullptr;
  std::uint64_t edges = 0;
  const auto drop = [&](Node* in) {
    if (in == shared) {
      ++edges;
      return;
    }
    if (shared != nullptr && drop_references(shared->refs, edges * Node::kEdge)) destroy_node(shared);
    shared = in, edges = 1;
  };
  for (Node* n : nodes) {
    for (Node*& in : n->inputs)
      if (in != nullptr) drop(std::exchange(in, nullptr));
    if (n->extra != nullptr)
      for (Node* in : std::exchange(n->extra->more_inputs, {})) drop(in);
  }
  drop(nullptr);
}

/// The nodes that wait do so for the threads that read them when their turn began, not for syncs that began after it.
void Player::collect(bool wait) {
  while (!waiting_.empty() || !later_.empty()) {
    std::erase_if(readers_, [](const auto& r) { return r.first->epoch_.load() != r.second; });
    if (!readers_.empty() && !wait) return;
    if (!readers_.empty()) {
      std::this_thread::yield();
      continue;
    }
    const std::vector<Node*> nodes = std::exchange(waiting_, std::exchange(later_, {}));
    for_each_reader(waiting_, [this](const Player* p, std::uint64_t epoch) { readers_.emplace_back(p, epoch); });
    cut(nodes);
    for (Node* n : nodes) drop_edge(n);
  }
}

void play_parts(std::span<Node* const> roots, const char* reason) {
  const BackendKey first = roots.front()->backend;
  const auto elsewhere = [first](const Node* n) { return n->backend != first; };
  if (std::ranges::none_of(roots, elsewhere)) [[likely]]
    return Player::Use()->play(roots, reason);
  // A plan is of one backend: the roots of each are played apart.
  std::vector<Node*> here(roots.begin(), roots.end());
  const auto others = std::stable_partition(here.begin(), here.end(), [&](const Node* n) { return !elsewhere(n); });
  Player::Use()->play({here.begin(), others}, reason);
  play_parts({others, here.end()}, reason);
}

void play_roots(std::span<Node* const> roots, const char* reason) try {
  play_parts(roots, reason);
} catch (const std::bad_alloc&) {
  throw OutOfMemoryError(3001,
                         format_error(3001, "OutOfMemoryError", "sync: cannot allocate temporary memory", {}, {}));
}

/// The roots, and the calls with effects that this thread has recorded. What fails is over: calls after it do not
/// happen, so that the thread can go on.
void play_with_effects(Node* effect, std::span<Node* const> roots, const char* reason) {
  std::vector<Node*> all{effect};
  for (Node* const root : roots)
    if (root != effect) all.push_back(root);
  try {
    play_roots(all, reason);
  } catch (const OutOfMemoryError&) {
    throw;  // before the first step
  } catch (...) {
    set_last_effect(nullptr);
    throw;
  }
}

void play_now(std::span<Node* const> roots, const char* reason, std::source_location where) {
  if (in_capture_scope()) [[unlikely]]
    throw UserError(
        1701, format_error(1701, "UserError", "a value is read inside a function that is being compiled", {}, where,
                           "return the tensor and read it outside, or keep this part out of compile()"));
  check_stop_of_thread();
  if (last_effect != nullptr) [[unlikely]]
    if (Node* const effect = pending_effect(); effect != nullptr) return play_with_effects(effect, roots, reason);
  play_roots(roots, reason);
}

void play_as_event(EventScope& event, std::span<Node* const> roots, const char* reason, std::source_location where) {
  event.value = recorded_nodes - std::exchange(recorded_before, recorded_nodes);
  const std::uint64_t outer = std::exchange(plan_of_sync, 0);
  play_now(roots, reason, where);
  event.plan = std::exchange(plan_of_sync, outer), event.memory = memory_in_use();
}

void play_noting_habits(std::span<Node* const> roots, const char* reason, std::source_location where,
                        std::uint64_t recorded) {
  const std::uint64_t misses = counters.plan_misses.load(std::memory_order_relaxed);
  play_now(roots, reason, where);
  note_habit(where, recorded, counters.plan_misses.load(std::memory_order_relaxed) - misses);
}

void materialize(Node* node, const char* reason, std::source_location where) {
  Node* const roots[] = {node};
  sync_nodes(roots, reason, where);
}

}  // namespace

void sync_nodes(std::span<Node* const> roots, const char* reason, std::source_location where) {
  EventScope event([&] { return event_info(EventKind::sync, reason, where); });
  if (event.is_wanted()) [[unlikely]]
    return play_as_event(event, roots, reason, where);
  const std::uint64_t recorded = recorded_nodes - std::exchange(recorded_before, recorded_nodes);
  if (habit_warnings.load(std::memory_order_relaxed)) [[unlikely]]
    return play_noting_habits(roots, reason, where, recorded);
  play_now(roots, reason, where);
}

void forget_bound_plans() { Player::forget_plans(); }

void look_at_nodes(FunctionRef<void()> read) { Player::Use()->look(read); }

void install_sync() {
  tensor_hooks.materialize = &materialize;
  prepare_thread = &Player::prepare_thread;
  at_fork(ForkStage::syncs, {&Player::stop_for_fork, &Player::go_on_after_fork, &Player::begin_in_child});
  tensor_hooks.written = [](TensorImpl* impl) {
    if (in_capture_scope()) [[unlikely]]
      capture_scope->written(impl);
  };
}

}  // namespace fermata
