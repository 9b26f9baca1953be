// Syncs of programs with divided tensors: what was walked is partitioned, and the graph of this process played.
//
// A partitioned program is kept for the next sync of the same graph, sizes and shardings; only host numbers may differ.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "dispatch/dump.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/function_recording.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/per_thread.h"
#include "passes/pipeline.h"
#include "runtime/effects.h"

namespace fermata {
namespace {

/// What a walk is partitioned by.
struct Walked {
  Graph graph;
  std::shared_ptr<const MeshState> mesh;
  std::vector<GivenSharding> inputs;
};

void take_mesh(std::shared_ptr<const MeshState>& mesh, const std::shared_ptr<const MeshState>& other,
               std::source_location where) {
  if (mesh == nullptr) mesh = other;
  if (mesh != other)
    throw ValueError(7108, format_error(7108, "ValueError", "tensors of two meshes meet in one computation", {}, where,
                                        "unshard() one of them, or make both with one mesh"));
}

Walked look_at(const Walk& walk) {
  Walked w{.graph = import_graph(walk), .mesh = nullptr, .inputs = {}};
  w.inputs.resize(w.graph.nodes.size());
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    const GraphNode& n = w.graph.nodes[i];
    if (n.op == Op::input) {
      if (const ShardedValue* value = sharded_value(*walk.order[i].node))
        take_mesh(w.mesh, value->mesh, n.where), w.inputs[i] = {value->sharding, true, value->is_placed};
    } else if (const auto constraint = constraint_of(n)) {
      take_mesh(w.mesh, mesh_of_number(constraint->mesh), n.where);
    }
  }
  return w;
}

PartitionRequest request_of(const Walked& w) {
  std::vector<std::int64_t> numbers;
  for (const distributed::Group& group : w.mesh->groups) numbers.push_back(group.number());
  return {.graph = w.graph,
          .mesh = w.mesh->axes,
          .coordinates = w.mesh->coordinates,
          .inputs = w.inputs,
          .constraint = [](const GraphNode& n) -> std::optional<Sharding> {
            const auto constraint = constraint_of(n);
            return constraint ? std::optional(constraint->sharding) : std::nullopt;
          },
          .groups = numbers};
}

/// All that the result depends on, but for host numbers.
std::vector<std::int64_t> key_of(const Walked& w) {
  std::vector<std::int64_t> key{w.mesh->number};
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    const GraphNode& n = w.graph.nodes[i];
    key.push_back(static_cast<std::int64_t>(n.op) | static_cast<std::int64_t>(n.dtype) << 16 |
                  static_cast<std::int64_t>(n.shape.rank()) << 24 | static_cast<std::int64_t>(n.operands.size()) << 32);
    key.insert(key.end(), n.shape.begin(), n.shape.end());
    for (const GraphOperand& o : n.operands) key.push_back(o.is_scalar() ? -1 - o.scalar : o.value);
    key.push_back(static_cast<std::int64_t>(n.attributes.size()));
    key.insert(key.end(), n.attributes.begin(), n.attributes.end());
    key.push_back(static_cast<std::int64_t>(op_generation(n.op)) << 32 | n.context);
    if (n.op != Op::input) continue;
    key.push_back(w.inputs[i].is_divided * 2 + w.inputs[i].is_placed);
    key.insert(key.end(), w.inputs[i].sharding.axes.begin(), w.inputs[i].sharding.axes.begin() + n.shape.rank());
  }
  key.insert(key.end(), w.graph.outputs.begin(), w.graph.outputs.end());
  return key;
}

/// The programs that a thread has partitioned last.
class Programs {
 public:
  static Programs& of_thread() {
    static constinit thread_local PerThread<Programs> programs;
    return programs.get();
  }
  std::shared_ptr<LocalProgram> of(const Walked& w) {
    std::vector<std::int64_t> key = key_of(w);
    const auto found = std::ranges::find_if(kept_, [&](const Kept& k) { return k.key == key; });
    if (found != kept_.end()) {
      ++counts_.cached;
      std::rotate(kept_.begin(), found, found + 1);
      return kept_.front().program;
    }
    ++counts_.partitions;
    kept_.push_front({std::move(key), std::make_shared<LocalProgram>(partition(request_of(w)))});
    if (kept_.size() > kMost) kept_.pop_back();
    if (is_dump_enabled("partition") && w.mesh->rank == 0)
      dump("partition", fmt::format("{} values", w.graph.nodes.size()),
           describe_partition(request_of(w), *kept_.front().program));
    return kept_.front().program;
  }
  void count(const LocalProgram& played) {
    counts_.collectives += played.collectives.size(), counts_.gathered_calls += played.gathered.size();
    for (const PlacedExchange& c : played.collectives) counts_.wire_bytes += c.wire_bytes;
  }
  const PartitionCounts& counts() const { return counts_; }

 private:
  static constexpr std::size_t kMost = 64;
  struct Kept {
    std::vector<std::int64_t> key;
    std::shared_ptr<LocalProgram> program;
  };
  std::deque<Kept> kept_;
  PartitionCounts counts_;
};

/// Calls are those of a program that nobody transforms, whatever the thread is in.
class PlainThread {
 public:
  PlainThread() : keys_(thread_keys) {
    const bool records = keys_.included.has(Functionality::capture);
    thread_keys.included = records ? kDefaultKeys : kDefaultKeys - DispatchKeySet(Functionality::capture);
    thread_keys.excluded = Functionality::autograd;
    // The frame sets keys of its own, and gives back those that it found.
    outside_.emplace(nullptr);
  }
  ~PlainThread() {
    outside_.reset();
    thread_keys = keys_;
  }
  PlainThread(const PlainThread&) = delete;
  PlainThread& operator=(const PlainThread&) = delete;

 private:
  ThreadKeys keys_;
  std::optional<InsideLevel> outside_;
  EffectScope effects_;
};

/// The buffer of a value that is whole.
StoragePtr buffer_of(Tensor value) {
  value = value.node()->is_dense_leaf() ? value : copy(value).sync();
  Storage* const storage = value.node()->storage.load(std::memory_order_acquire);
  storage->retain();
  return StoragePtr(storage);
}

}  // namespace

bool is_partitioned(const Walk& walk) {
  if (walk.has_distributed) return true;
  if (!walk.has_boxed) [[likely]]
    return false;
  return std::ranges::any_of(walk.order, [](const Walk::Entry& e) {
    if (e.storage != nullptr || !is_boxed(e.node->op)) return false;
    GraphNode node;
    node.op = e.node->op, node.attributes = attributes_of(*e.node);
    return constraint_of(node).has_value();
  });
}

void run_partitioned(const Walk& walk, std::span<StoragePtr> results) {
  const Walked w = look_at(walk);
  const PlainThread plain;
  Programs& programs = Programs::of_thread();
  const std::shared_ptr<LocalProgram> program = programs.of(w);
  for (std::size_t i = 0; i < program->graph.nodes.size(); ++i)
    if (const ValueId from = program->scalars_of[i]; from != kNoValue)
      program->graph.nodes[i].scalars = w.graph.nodes[from].scalars;
  std::vector<Tensor> blocks;
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    if (w.graph.nodes[i].op != Op::input) continue;
    const ShardedValue* const value = sharded_value(*walk.order[i].node);
    blocks.push_back(value != nullptr ? value->block : tensor_of(walk.order[i].node));
  }
  const std::vector<Tensor> outputs = run_graph(program->graph, blocks);
  blocks.clear();
  sync(outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    results[i] = program->outputs[i].is_whole() && !program->is_placed[i]
                     ? buffer_of(outputs[i])
                     : make_distributed_storage(std::make_unique<ShardedValue>(outputs[i], w.mesh, program->outputs[i],
                                                                               program->is_placed[i]));
  programs.count(*program);
}

std::string explain_partitioned(const Walk& walk) {
  const Walked w = look_at(walk);
  const PartitionRequest request = request_of(w);
  const LocalProgram program = partition(request);
  return describe_partition(request, program) + "\nthe program of this process\n" + to_string(program.graph, true);
}

PartitionCounts partition_counts() { return Programs::of_thread().counts(); }

}  // namespace fermata
