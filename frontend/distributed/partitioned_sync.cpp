// Syncs of programs with sharded tensors: the walk is partitioned, and the graph of this process runs.
//
// A partitioned program is cached for syncs of the same graph, sizes and shardings; only host numbers may differ.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "dispatch/dump.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/distributed/partitioned_sync.h"
#include "frontend/engine/function_recording.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/per_thread.h"
#include "passes/partition_functions.h"
#include "passes/pipeline.h"
#include "runtime/effects.h"

namespace fermata {
namespace {

/// The inputs of the partitioner for a walk.
struct Walked {
  Graph graph;
  std::shared_ptr<const MeshState> mesh;
  std::vector<GivenSharding> inputs;
};

void take_mesh(std::shared_ptr<const MeshState>& mesh, const std::shared_ptr<const MeshState>& other,
               std::source_location where) {
  if (mesh == nullptr) mesh = other;
  if (mesh != other)
    throw ValueError(7108, format_error(7108, "ValueError", "one computation uses tensors of two meshes", {}, where,
                                        "unshard() one of them, or create both with the same mesh"));
}

Walked look_at(const Walk& walk) {
  Walked w{.graph = import_graph(walk), .mesh = nullptr, .inputs = {}};
  w.inputs.resize(w.graph.nodes.size());
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    const GraphNode& n = w.graph.nodes[i];
    if (n.op == Op::input) {
      if (const ShardedValue* value = sharded_value(*walk.order[i].node))
        take_mesh(w.mesh, value->mesh, n.where), w.inputs[i] = {value->sharding, true, value->is_placed, value->packed};
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
          .constraint = [mesh = w.mesh](const GraphNode& n) -> std::optional<Sharding> {
            const auto constraint = constraint_of(n);
            if (!constraint) return std::nullopt;
            std::shared_ptr<const MeshState> same = mesh;  // also in functions of control flow
            take_mesh(same, mesh_of_number(constraint->mesh), n.where);
            return constraint->sharding;
          },
          .groups = numbers};
}

void add_to_key(std::vector<std::int64_t>& key, const Graph& graph) {
  key.push_back(std::ssize(graph.nodes));
  for (const GraphNode& n : graph.nodes) {
    key.push_back(static_cast<std::int64_t>(n.op) | static_cast<std::int64_t>(n.dtype) << 16 |
                  static_cast<std::int64_t>(n.shape.rank()) << 24 | static_cast<std::int64_t>(n.operands.size()) << 32);
    key.insert(key.end(), n.shape.begin(), n.shape.end());
    for (const GraphOperand& o : n.operands) key.push_back(o.is_scalar() ? -1 - o.scalar : o.value);
    key.push_back(std::ssize(n.attributes));
    key.insert(key.end(), n.attributes.begin(), n.attributes.end());
    key.push_back(static_cast<std::int64_t>(op_generation(n.op)) << 32 | n.context);
    for (std::size_t i = 0; n.subgraphs != nullptr && i < n.subgraphs->size(); ++i)
      add_to_key(key, (*n.subgraphs)[i].graph());
  }
  key.insert(key.end(), graph.outputs.begin(), graph.outputs.end());
}

/// Everything that the result depends on, except host numbers.
std::vector<std::int64_t> key_of(const Walked& w) {
  std::vector<std::int64_t> key{w.mesh->number, is_pass_disabled("bucket_collectives")};
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    const GraphNode& n = w.graph.nodes[i];
    if (n.op != Op::input) continue;
    key.push_back(w.inputs[i].is_divided * 2 + w.inputs[i].is_placed);
    key.insert(key.end(), w.inputs[i].sharding.axes.begin(), w.inputs[i].sharding.axes.begin() + n.shape.rank());
    if (const PackedSharding* const packed = w.inputs[i].packed.get()) {
      for (const Sharding& s : packed->results) key.insert(key.end(), s.axes.begin(), s.axes.end());
      key.insert(key.end(), packed->offsets.begin(), packed->offsets.end());
      key.insert(key.end(), packed->whole_offsets.begin(), packed->whole_offsets.end());
      key.insert(key.end(), packed->sums.begin(), packed->sums.end());
    }
  }
  add_to_key(key, w.graph);
  return key;
}

/// The programs that a thread has partitioned most recently.
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
  void count(const LocalProgram& played) { count(played, 1); }
  const PartitionCounts& counts() const { return counts_; }

 private:
  /// A loop whose length depends on values counts as one run.
  void count(const LocalProgram& played, std::uint64_t runs) {
    counts_.collectives += played.calls * runs, counts_.gathered_calls += played.gathered.size();
    for (const PlacedExchange& c : played.collectives) counts_.wire_bytes += c.wire_bytes * static_cast<double>(runs);
    for (const LocalFunctions& f : played.functions) {
      const bool is_counted = played.graph.nodes[f.local].op == Op::scan;
      for (const LocalProgram& program : f.programs)
        count(program, is_counted ? runs * static_cast<std::uint64_t>(f.runs) : runs);
    }
  }
  static constexpr std::size_t kMost = 64;
  struct Kept {
    std::vector<std::int64_t> key;
    std::shared_ptr<LocalProgram> program;
  };
  std::deque<Kept> kept_;
  PartitionCounts counts_;
};

/// The buffer of a value that is whole.
StoragePtr buffer_of(Tensor value) {
  value = value.node()->is_dense_leaf() ? value : copy(value).sync();
  Storage* const storage = value.node()->storage.load(std::memory_order_acquire);
  storage->retain();
  return StoragePtr(storage);
}

}  // namespace

PlainThread::PlainThread() : keys_(thread_keys) {
  const bool records = keys_.included.has(Functionality::capture);
  thread_keys.included = records ? kDefaultKeys : kDefaultKeys - DispatchKeySet(Functionality::capture);
  thread_keys.excluded = Functionality::autograd;
  // The frame sets its own keys and restores the previous ones.
  outside_.emplace(nullptr);
}
PlainThread::~PlainThread() {
  outside_.reset();
  thread_keys = keys_;
}

PartitionedWalk partition_walk(const Walk& walk) {
  const Walked w = look_at(walk);
  auto program = std::make_shared<LocalProgram>(*Programs::of_thread().of(w));
  take_numbers(*program, w.graph);
  return {w.mesh, std::move(program)};
}

StoragePtr storage_of_output(const Tensor& block, std::size_t output, const LocalProgram& program,
                             const std::shared_ptr<const MeshState>& mesh) {
  if (program.outputs[output].is_whole() && !program.is_placed[output]) return buffer_of(block);
  auto value = std::make_unique<ShardedValue>(block, mesh, program.outputs[output], program.is_placed[output]);
  value->packed = program.packed[output];
  return make_distributed_storage(std::move(value));
}

void count_partitioned(const LocalProgram& program) { Programs::of_thread().count(program); }

bool is_partitioned(const Walk& walk) {
  if (walk.has_distributed) return true;
  if (!walk.has_boxed) [[likely]]
    return false;
  return std::ranges::any_of(
      walk.order, [](const Walk::Entry& e) { return e.storage == nullptr && constraint_of(*e.node).has_value(); });
}

void run_partitioned(const Walk& walk, std::span<StoragePtr> results) {
  const Walked w = look_at(walk);
  const PlainThread plain;
  Programs& programs = Programs::of_thread();
  const std::shared_ptr<LocalProgram> program = programs.of(w);
  take_numbers(*program, w.graph);
  std::vector<Tensor> blocks;
  for (std::size_t i = 0; i < w.graph.nodes.size(); ++i) {
    if (w.graph.nodes[i].op != Op::input) continue;
    const ShardedValue* const value = sharded_value(*walk.order[i].node);
    blocks.push_back(value != nullptr ? value->block : tensor_of(walk.order[i].node));
  }
  const std::vector<Tensor> outputs = run_graph(program->graph, blocks);
  blocks.clear();
  sync(outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) results[i] = storage_of_output(outputs[i], i, *program, w.mesh);
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
