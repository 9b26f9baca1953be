// See fermata/compile.h.
//
// A capture runs the function once on stand-ins (other identities over the same buffers, to tell arguments from
// everything else), walks what it returned or wrote, and keeps the plan bound to these sizes. A replay looks up buffers
// and runs. The recording itself is thrown away, and in-place writes of it are undone: the replay does them.
#include "fermata/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "dispatch/devices.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/random.h"
#include "frontend/alias.h"
#include "frontend/capture_scope.h"
#include "frontend/compile_policy.h"
#include "frontend/transforms/autocast.h"
#include "frontend/transforms/autograd.h"
#include "frontend/transforms/batched.h"
#include "frontend/transforms/tracer.h"
#include "ir/error.h"
#include "runtime/bound_plan.h"
#include "runtime/device_memory.h"
#include "runtime/plan_cache.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

/// Signatures kept per function; the least recently used goes.
constexpr std::size_t kMaxCaptures = 64;

struct Layout {
  TensorType type;
  Shape strides;  // rank 0 where dense
  std::int64_t offset = 0;
  BackendKey backend = BackendKey::cpu;
  static Layout of(const Node& n) {
    Layout l{n.type(), {}, 0, n.backend};
    if (!n.is_dense_leaf()) l.strides = n.extra->strides, l.offset = n.extra->offset;
    return l;
  }
  bool matches(const Node& n) const {
    if (n.dtype != type.dtype || n.rank != type.shape.rank() || n.backend != backend) return false;
    if (!std::equal(type.shape.begin(), type.shape.end(), n.sizes().begin())) return false;
    if (n.is_dense_leaf()) return strides.rank() == 0 && offset == 0;
    return n.extra->strides == strides && n.extra->offset == offset;
  }
};

/// Where the buffer of a leaf comes from at replay.
struct LeafSource {
  std::int32_t argument = -1;
  Tensor hidden;   // an identity outside, or a constant of the recording
  Layout layout;
};

/// What becomes of a result.
struct ResultSource {
  std::int32_t output = -1;    // of the plan
  std::int32_t argument = -1;  // handed through
  Tensor constant;
};

struct WriteBack {
  std::int32_t argument = -1;
  Tensor hidden;
  std::int32_t output = -1;
};

/// A scalar that moves with the generator: Plan's flat scalar number, and how far into the reserved range it lies.
struct RandomScalar {
  std::size_t slot;
  std::uint64_t delta;
  bool is_key;
};

struct Captured {
  std::vector<Layout> arguments;
  std::vector<std::uint64_t> numbers;
  std::vector<bool> wants_grad;
  std::vector<std::size_t> identities;  // per argument: the first one that is the same tensor
  PlanEntryPtr entry;
  const Plan* plan = nullptr;
  BoundPlan bound;
  std::vector<LeafSource> leaves;
  std::vector<ResultSource> results;
  std::vector<WriteBack> writes;
  std::vector<TensorType> output_types;
  std::vector<RandomScalar> random;
  std::uint64_t random_count = 0;
  std::uint64_t used = 0;
  bool grad_enabled = false;  // when it was captured
  std::uint64_t autocast = 0;
  bool differentiable = false;  // results carry a history or parts, which no replay could: the function is run instead

  // Of a replay, empty between them.
  struct {
    std::vector<LeafBuffer> leaves;
    std::vector<void*> buffers;
    std::vector<StoragePtr> staged, storage;
    std::vector<Tensor> outputs, results;
  } scratch;
};

bool check_replay() {
  static const bool on = [] {
    const char* value = std::getenv("FERMATA_CHECK_REPLAY");
    return value != nullptr && std::string_view(value) != "0";
  }();
  return on;
}

std::size_t first_of_identity(std::span<const Tensor> args, std::size_t i) {
  return static_cast<std::size_t>(
      std::find_if(args.begin(), args.end(), [&](const Tensor& t) { return t.impl() == args[i].impl(); }) - args.begin());
}

Tensor stand_in(const Tensor& t) {
  const Node& n = *t.node();
  Storage* storage = n.storage.load(std::memory_order_acquire);
  storage->retain();
  const Layout l = Layout::of(n);
  Node* leaf = n.is_dense_leaf() ? make_leaf(l.type, storage, n.backend, Node::kTensor)
                                 : make_strided_leaf(l.type, l.strides, l.offset, storage, n.backend, Node::kTensor);
  Tensor out(leaf, t.keys() & kDataKeys);
  if (t.requires_grad()) out.requires_grad(true);
  return out;
}

}  // namespace

struct CompiledCore::State {
  std::mutex mutex;
  std::vector<std::unique_ptr<Captured>> captured;
  std::uint64_t clock = 0;

  Captured* find(std::span<const Tensor> args, std::span<const std::uint64_t> numbers);
  std::unique_ptr<Captured> capture(std::span<const Tensor> args, std::span<const std::uint64_t> numbers, Body body, Location where);
  static bool hidden_fit(const Captured& c);
  static void replay(Captured& c, std::span<const Tensor> args, Deliver deliver, Location where);
};

Captured* CompiledCore::State::find(std::span<const Tensor> args, std::span<const std::uint64_t> numbers) {
  for (auto& c : captured) {
    if (c->arguments.size() != args.size() || !std::equal(numbers.begin(), numbers.end(), c->numbers.begin(), c->numbers.end()))
      continue;
    bool fits = c->grad_enabled == grad_enabled() && c->autocast == autocast_signature();
    for (std::size_t i = 0; i < args.size() && fits; ++i)
      fits = c->arguments[i].matches(*args[i].node()) && c->wants_grad[i] == args[i].requires_grad() &&
             c->identities[i] == first_of_identity(args, i);
    if (!fits || !hidden_fit(*c)) continue;
    c->used = ++clock;
    return c.get();
  }
  return nullptr;
}

/// Hidden inputs keep their layout as a rule; where one has changed, the function is captured again.
bool CompiledCore::State::hidden_fit(const Captured& c) {
  return std::all_of(c.leaves.begin(), c.leaves.end(), [](const LeafSource& l) {
    return l.argument >= 0 || l.hidden.node()->pending() || l.layout.matches(*l.hidden.node());
  });
}

std::unique_ptr<Captured> CompiledCore::State::capture(std::span<const Tensor> args, std::span<const std::uint64_t> numbers,
                                                       Body body, Location where) {
  auto c = std::make_unique<Captured>();
  CaptureScope scope;
  std::vector<Tensor> stand_ins;
  for (const Tensor& t : args) {
    c->identities.push_back(first_of_identity(args, stand_ins.size()));
    const bool again = c->identities.back() < stand_ins.size();
    stand_ins.push_back(again ? stand_ins[c->identities.back()] : stand_in(t));
    scope.mark(stand_ins.back().node());
    c->arguments.push_back(Layout::of(*t.node()));
    c->wants_grad.push_back(t.requires_grad());
  }
  c->numbers.assign(numbers.begin(), numbers.end());
  std::vector<const Node*> argument_nodes;
  std::vector<std::uint64_t> versions;
  for (const Tensor& t : stand_ins) argument_nodes.push_back(t.node()), versions.push_back(t.version());
  Generator& generator = default_generator();
  const std::uint64_t first_offset = generator.offset();

  const FreshAutocastCache casts;
  struct Undo {
    CaptureScope& scope;
    ~Undo() { scope.undo_writes(); }
  } undo{scope};
  std::vector<Tensor> results = body(stand_ins);
  c->grad_enabled = grad_enabled(), c->autocast = autocast_signature();
  c->differentiable = std::any_of(results.begin(), results.end(), [](const Tensor& t) {
    return has_live_history(t) || t.impl()->payload != nullptr;
  });
  const bool argument_gradient = std::any_of(stand_ins.begin(), stand_ins.end(), [](const Tensor& t) { return t.grad().defined(); });
  if (scope.changed_gradient() != nullptr || argument_gradient)
    throw UnsupportedError(
        2702, format_error(2702, "UnsupportedError",
                           "backward() inside a compiled function adds to the grad() of a tensor from outside", {}, where,
                           "use gradients() inside it, clear grad() before it returns, or call backward() outside"));
  c->random_count = generator.offset() - first_offset;
  generator.set_offset(first_offset);  // the run that follows takes the numbers

  std::vector<Node*> roots;
  const auto root = [&](const Tensor& t) {
    Node* n = t.node();
    if (n->pending() && std::find(roots.begin(), roots.end(), n) == roots.end()) roots.push_back(n);
    return n;
  };
  if (c->differentiable) return c;
  for (const Tensor& t : results) root(t);
  for (std::size_t i = 0; i < stand_ins.size(); ++i)
    if (stand_ins[i].version() != versions[i]) root(stand_ins[i]);
  for (const CaptureScope::Write& w : scope.writes()) root(w.target);

  for (const Node* n : roots)
    if (n->backend != roots.front()->backend)
      throw DeviceError(1404, format_error(1404, "DeviceError",
                                           fmt::format("a compiled function computes on {} and on {}",
                                                       kBackendNames[static_cast<std::size_t>(roots.front()->backend)],
                                                       kBackendNames[static_cast<std::size_t>(n->backend)]),
                                           {}, where, "compile the part of each device by itself"));
  Walk walk;
  walk.run(roots, true);
  const auto output_of = [&](const Node* n) {
    for (std::size_t i = 0; i < walk.outputs.size(); ++i)
      if (walk.order[walk.outputs[i]].node == n) return static_cast<std::int32_t>(i);
    return std::int32_t{-1};
  };
  const auto argument_of = [&](const Node* n) {
    const auto at = std::find(argument_nodes.begin(), argument_nodes.end(), n);
    return at == argument_nodes.end() ? std::int32_t{-1} : static_cast<std::int32_t>(at - argument_nodes.begin());
  };
  for (const Tensor& t : results) {
    const Node* n = t.node();
    const Tensor* hidden = scope.identity_of(n);
    c->results.push_back({output_of(n), argument_of(n), hidden != nullptr ? *hidden : t.detach()});
    if (c->results.back().output >= 0) c->results.back().constant = Tensor();
  }
  for (std::size_t i = 0; i < stand_ins.size(); ++i)
    if (stand_ins[i].version() != versions[i] && c->identities[i] == i)
      c->writes.push_back({static_cast<std::int32_t>(i), Tensor(), output_of(stand_ins[i].node())});
  for (const CaptureScope::Write& w : scope.writes()) c->writes.push_back({-1, w.target, output_of(w.target.node())});
  for (const WriteBack& w : c->writes)
    if (w.output < 0)
      throw UnsupportedError(2701, format_error(2701, "UnsupportedError",
                                                "a compiled function writes a tensor that existed before into another one", {},
                                                where, "assign a computed value, or copy() it"));
  if (walk.order.empty()) return c;

  c->entry = PlanCache::instance().find(roots.back()->hash, walk.key);
  c->plan = compile_entry(*c->entry, walk);
  std::vector<const Node*> records;
  for (const Walk::Entry& e : walk.order) records.push_back(e.node);
  c->bound.bind(*c->plan, records);
  for (const std::uint32_t record : c->plan->leaf_records) {
    const Node* n = walk.order[record].node;
    LeafSource leaf{argument_of(n), {}, Layout::of(*n)};
    if (leaf.argument < 0) {
      const Tensor* hidden = scope.identity_of(n);
      if (hidden != nullptr) {
        leaf.hidden = *hidden;
      } else {
        const_cast<Node*>(n)->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
        leaf.hidden = Tensor(const_cast<Node*>(n), DispatchKeySet(n->backend) | Functionality::dense);
      }
    }
    c->leaves.push_back(std::move(leaf));
  }
  for (const std::uint32_t i : walk.outputs) c->output_types.push_back(walk.order[i].node->type());
  std::size_t slot = 0;
  for (const PlanStep& step : c->plan->steps)
    for (const ScalarSource& s : step.scalars) {
      const Node& n = *walk.order[s.record].node;
      // Numbers of another generator are those that it gave at the capture.
      const auto is_drawn = [&] {
        const std::vector<std::uint64_t>& drawn = n.extra->scalars;
        return drawn[0] == generator.key() && drawn[1] - first_offset < c->random_count;
      };
      if (family(n.op) == Family::random && is_drawn())
        c->random.push_back({slot, s.index == 1 ? n.extra->scalars[1] - first_offset : 0, s.index == 0});
      ++slot;
    }
  return c;
}

/// Takes the numbers of a replay, and gives them back if it fails.
class ReplayDraws {
 public:
  explicit ReplayDraws(std::uint64_t count)
      : generator_(default_generator()), before_(generator_.offset()), first_(generator_.reserve(static_cast<std::int64_t>(count))) {}
  ~ReplayDraws() {
    if (!done_) generator_.set_offset(before_);
  }
  ReplayDraws(const ReplayDraws&) = delete;
  ReplayDraws& operator=(const ReplayDraws&) = delete;
  std::uint64_t first() const { return first_; }
  std::uint64_t key() const { return generator_.key(); }
  void keep() { done_ = true; }

 private:
  Generator& generator_;
  std::uint64_t before_, first_;
  bool done_ = false;
};

void CompiledCore::State::replay(Captured& c, std::span<const Tensor> args, Deliver deliver, Location where) {
  auto& [leaves, buffers, staged, storage, outputs, results] = c.scratch;
  struct Clear {
    Captured& c;
    ~Clear() {
      auto& [leaves, buffers, staged, storage, outputs, results] = c.scratch;
      leaves.clear(), buffers.clear(), staged.clear(), storage.clear(), outputs.clear(), results.clear();
    }
  } const clear{c};
  ReplayDraws draws(c.random_count);  // also where nothing needs the numbers
  for (const RandomScalar& r : c.random) c.bound.scalars()[r.slot] = r.is_key ? draws.key() : draws.first() + r.delta;
  if (c.plan != nullptr) {
    for (const LeafSource& l : c.leaves) {
      const Tensor& t = l.argument >= 0 ? args[static_cast<std::size_t>(l.argument)] : l.hidden;
      if (t.node()->pending()) tensor_hooks.materialise(t.node(), "a compiled function uses a pending tensor", where);
      leaves.push_back(leaf_buffer(*t.node(), *t.node()->storage.load(std::memory_order_acquire), c.plan->backend, staged));
    }
    for (std::size_t i = 0; i < c.output_types.size(); ++i) {
      storage.emplace_back(allocate_on(c.plan->backend, c.bound.output_bytes(i)));
      buffers.push_back(storage.back()->data);
    }
    c.bound.run(*c.plan, leaves, buffers);
    for (std::size_t i = 0; i < storage.size(); ++i)
      outputs.emplace_back(make_leaf(c.output_types[i], storage[i].release(), c.plan->backend, Node::kTensor),
                           DispatchKeySet(c.plan->backend) | Functionality::dense);
  }
  for (const WriteBack& w : c.writes) {
    const Tensor& target = w.argument >= 0 ? args[static_cast<std::size_t>(w.argument)] : w.hidden;
    if (target.impl()->pinned != nullptr) {  // its buffer is known outside: the elements go there
      const NoGradGuard no_grad;
      write(target, outputs[static_cast<std::size_t>(w.output)], where);
      continue;
    }
    Node* value = outputs[static_cast<std::size_t>(w.output)].node();
    value->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    target.set_node(value);
  }
  for (const ResultSource& r : c.results)
    results.push_back(r.output >= 0     ? outputs[static_cast<std::size_t>(r.output)]
                      : r.argument >= 0 ? args[static_cast<std::size_t>(r.argument)]
                                        : r.constant);
  draws.keep();
  deliver(results);
}

CompiledCore::CompiledCore() : state_(std::make_unique<State>()) {}
CompiledCore::~CompiledCore() = default;
CompiledCore::CompiledCore(CompiledCore&&) noexcept = default;
CompiledCore& CompiledCore::operator=(CompiledCore&&) noexcept = default;

std::size_t CompiledCore::captures() const {
  std::lock_guard lock(state_->mutex);
  return state_->captured.size();
}

void CompiledCore::call(std::span<const Tensor> args, std::span<const std::uint64_t> numbers, Body body, Deliver deliver,
                        Location where) {
  const auto run_body = [&] {
    std::vector<Tensor> results = body(args);
    deliver(results);
  };
  if (mode() == Mode::eager || in_capture_scope() || tracing()) return run_body();  // it is part of another one
  // A wrapper tensor has no buffer to bind: the function is run, and what it does to the parts is recorded.
  if (std::ranges::any_of(args, [](const Tensor& t) { return t.impl()->payload != nullptr; })) return run_body();
  // Inside vmap it is part of what is batched, and so of what that is compiled as.
  if (vmap_frame != nullptr) return run_body();
  for (const Tensor& t : args)
    if (t.node()->pending()) tensor_hooks.materialise(t.node(), "an argument of a compiled function", where);
  std::unique_lock lock(state_->mutex);
  Captured* c = state_->find(args, numbers);
  if (c != nullptr && check_replay()) [[unlikely]] {
    const auto again = state_->capture(args, numbers, body, where);
    if (again->entry != c->entry || again->results.size() != c->results.size())
      throw UserError(1702, format_error(1702, "UserError",
                                         "a compiled function records another program than at its first call", {}, where,
                                         "it depends on something that is not an argument; pass that as one"));
  }
  if (c == nullptr) {
    if (state_->captured.size() >= kMaxCaptures) {
      const auto oldest = std::min_element(state_->captured.begin(), state_->captured.end(),
                                           [](const auto& a, const auto& b) { return a->used < b->used; });
      state_->captured.erase(oldest);
    }
    state_->captured.push_back(state_->capture(args, numbers, body, where));
    c = state_->captured.back().get();
    c->used = ++state_->clock;
  } else if (!c->differentiable) {
    counters.replays.fetch_add(1, std::memory_order_relaxed);
  }
  if (c->differentiable) {
    lock.unlock();
    return run_body();
  }
  State::replay(*c, args, deliver, where);
}

}  // namespace fermata
