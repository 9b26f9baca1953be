// See captured_blocks.h.
#include "frontend/distributed/captured_blocks.h"

#include "dispatch/call.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "frontend/distributed/partitioned_sync.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/ops/calls.h"
#include "ir/ops/control.h"
#include "passes/bucket_collectives.h"
#include "passes/pipeline.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

/// Random numbers of a range come from the stream of the run.
Graph with_stream(Graph graph, const DrawnRange& drawn) {
  for (GraphNode& n : graph.nodes)
    if (draws_numbers(n.op) && drawn.has(n.scalars)) n.scalars = {ops::kStreamKey, n.scalars[1] - drawn.first};
  return graph;
}

/// A materialized row-major tensor.
Tensor dense_on(const Tensor& x, BackendKey backend, Location where) {
  Tensor value = x.detach(where);
  if (value.node()->pending()) tensor_hooks.materialize(value.node(), "a partitioned program runs", where);
  if (value.node()->backend != backend) value = value.to(Device(backend), where).sync(where);
  return value.node()->is_dense_leaf() ? value : copy(value, where).sync(where);
}

}  // namespace

CapturedBlocks::CapturedBlocks(const Graph& local, BackendKey backend, const DrawnRange& drawn, Location where)
    : backend_(backend) {
  std::vector<TensorType> arguments;
  for (const GraphNode& n : local.nodes)
    if (n.op == Op::input) arguments.push_back({n.dtype, n.shape});
  const PlainThread plain;
  const ModeGuard recorded(Mode::compiled);
  const auto body = [graph = with_stream(local, drawn), where](std::span<const Tensor> given) {
    return run_graph(graph, given, where);
  };
  function_ = std::make_unique<CapturedFunction>(body, arguments, backend, "compile", where,
                                                 CapturedFunction::Collectives::joined);
  constants_ = function_->captures();
  std::vector<std::size_t> places(arguments.size() + constants_.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  for (Tensor& t : constants_) t = dense_on(t, backend, where), arguments.push_back({t.dtype(), t.shape()});
  function_->arrange(places, arguments);
}

std::vector<Tensor> CapturedBlocks::run(std::span<const Tensor> blocks, std::uint64_t key, std::uint64_t first,
                                        Location where) const {
  std::vector<Tensor> given;
  for (const Tensor& t : blocks) given.push_back(dense_on(t, backend_, where));
  given.insert(given.end(), constants_.begin(), constants_.end());
  std::vector<Shape> strides(given.size());
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < given.size(); ++i) views.push_back(view_of(*given[i].node(), strides[i]));
  std::vector<StoragePtr> storage;
  std::vector<void*> results;
  for (const TensorType& type : function_->results()) {
    storage.emplace_back(allocate_on(backend_, static_cast<std::size_t>(element_count(type.shape)) *
                                                   static_cast<std::size_t>(byte_size(type.dtype))));
    results.push_back(storage.back()->data);
  }
  if (function_->has_effects()) run_effects(where);  // after the pending effects of the thread
  function_->run(views, results, key, first);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < storage.size(); ++i)
    outputs.push_back(Tensor(make_leaf(function_->results()[i], storage[i].release(), backend_, Node::kTensor),
                             DispatchKeySet(backend_) | Functionality::dense));
  return outputs;
}

ProgramOfRanks::ProgramOfRanks(const Walk& walk) : backend_(walk.backend) {
  for (const std::uint32_t i : walk.outputs) types_.push_back(walk.order[i].node->type());
}

std::unique_ptr<const ProgramOfRanks> ProgramOfRanks::of(const Walk& walk, const DrawnRange& drawn, Location where) {
  std::unique_ptr<ProgramOfRanks> made(new ProgramOfRanks(walk));
  if (is_partitioned(walk)) {
    PartitionedWalk partitioned = partition_walk(walk);
    made->mesh_ = std::move(partitioned.mesh), made->program_ = std::move(partitioned.program);
    made->blocks_ = std::make_unique<const CapturedBlocks>(made->program_->graph, walk.backend, drawn, where);
    return made;
  }
  if (!walk.has_effects || is_pass_disabled("bucket_collectives")) return nullptr;
  Graph graph = import_graph(walk);
  if (bucket_collectives(graph).buckets.empty()) return nullptr;
  made->blocks_ = std::make_unique<const CapturedBlocks>(graph, walk.backend, drawn, where);
  return made;
}

std::vector<Tensor> ProgramOfRanks::run(std::span<const Tensor> leaves, std::uint64_t key, std::uint64_t first,
                                        Location where) const {
  std::vector<Tensor> blocks, results;
  for (const Tensor& t : leaves) {
    const ShardedValue* const value = sharded_value(*t.node());
    blocks.push_back(value != nullptr ? value->block : t);
  }
  std::vector<Tensor> outputs = blocks_->run(blocks, key, first, where);
  if (program_ == nullptr) return outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    StoragePtr storage = storage_of_output(outputs[i], i, *program_, mesh_);
    results.push_back(Tensor(make_leaf(types_[i], storage.release(), backend_, Node::kTensor),
                             DispatchKeySet(backend_) | Functionality::dense));
  }
  count_partitioned(*program_);
  return results;
}

}  // namespace fermata
