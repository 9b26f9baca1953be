// The recorded program of a function, with sizes, host numbers, attributes, and the tensors that it reads. Recordings
// of a function can be compared, down to the source line (docs/adr/021-compiled-functions-check-themselves.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/custom_op.h"
#include "ir/graph.h"
#include "runtime/distributed_value.h"
#include "runtime/tensor.h"
#include "runtime/walk.h"

namespace fermata {

struct LeafGradient;

/// Type, strides, offset, device and sharding of a materialized tensor.
struct Layout {
  TensorType type;
  Shape strides{};  // rank 0 if dense
  std::int64_t offset = 0;
  BackendKey backend = BackendKey::cpu;
  std::shared_ptr<const DistributedValue> division{};  // null if it is not sharded
  static Layout of(const Node& n);
  bool matches(const Node& n) const {
    const Storage* const storage = n.storage.load(std::memory_order_acquire);
    const bool has_buffer = storage == nullptr || storage->data != nullptr;
    if ((!has_buffer || division != nullptr) && !is_divided_as(has_buffer ? nullptr : distributed_value(*storage)))
      return false;
    if (n.dtype != type.dtype || n.rank != type.shape.rank() || n.backend != backend) return false;
    if (!std::equal(type.shape.begin(), type.shape.end(), n.sizes().begin())) return false;
    if (n.is_dense_leaf()) return strides.rank() == 0 && offset == 0;
    return n.extra->strides == strides && n.extra->offset == offset;
  }
  bool operator==(const Layout& o) const {
    return type == o.type && strides == o.strides && offset == o.offset && backend == o.backend &&
           is_divided_as(o.division.get());
  }

 private:
  bool is_divided_as(const DistributedValue* other) const {
    return (division == nullptr) == (other == nullptr) && (other == nullptr || division->is_divided_like(*other));
  }
};

/// A leaf over the buffer of a materialized value, with its layout; the caller gets a kTensor reference.
Node* leaf_like(const Node& n);

/// A tensor that existed before a call: an argument or a captured tensor, or the grad() of either.
struct Place {
  std::int32_t argument = -1;
  bool is_gradient = false;              // of that argument, or of its base
  bool is_base = false;                  // the tensor that the argument is a view of
  Tensor hidden{};                       // a captured tensor, or a constant created by the function
  bool is_constant = false;              // such a constant
  std::shared_ptr<LeafGradient> leaf{};  // the gradient of a captured leaf

  bool is_of_argument() const { return argument >= 0; }
  bool is_of_leaf() const { return is_gradient || leaf != nullptr; }
  /// Whether `held` keeps the tensor.
  bool is_indirect() const { return is_of_leaf() || is_base; }
  const Tensor& find(std::span<const Tensor> arguments, Tensor& held) const {
    if (is_indirect()) [[unlikely]]
      return find_indirect(arguments, held);
    return is_of_argument() ? arguments[static_cast<std::size_t>(argument)] : hidden;
  }
  const Tensor& find_indirect(std::span<const Tensor> arguments, Tensor& held) const;
};
/// The leaf of a gradient.
const std::shared_ptr<LeafGradient>& leaf_of(const Place& gradient, std::span<const Tensor> arguments);

/// A node of the program with all its data, for comparison.
struct ProgramNode {
  Op op = Op::input;
  Layout type{};
  std::vector<std::uint32_t> operands{};  // kScalarOperand for host numbers
  std::vector<std::uint64_t> scalars{};   // of random ops: relative to the call's draws
  std::vector<std::int64_t> attributes{};
  DType scalar_dtype = DType::f32;
  bool is_drawn = false;   // from this thread's generator
  std::int32_t leaf = -1;  // its index among the leaves
  Location where{};
  std::shared_ptr<const Subgraphs> subgraphs{};  // its functions
};

struct Program {
  std::vector<ProgramNode> nodes;  // in walk order
  std::vector<Place> leaves;       // origins of the leaf nodes
};

/// The range of generator numbers that a program draws.
struct DrawnRange {
  std::uint64_t key = 0, first = 0, count = 0;
  bool has(std::span<const std::uint64_t> scalars) const {
    return scalars.size() == 2 && scalars[0] == key && scalars[1] - first < count;
  }
};
/// Whether an op draws numbers, with key and offset as its two scalars.
inline bool draws_numbers(Op op) { return family(op) == Family::random || effect_of(op) != Effect::pure; }
/// Makes the program node of a walk's node; leaves are numbered from `leaves` on.
ProgramNode program_node(const Walk& walk, std::uint32_t number, const DrawnRange& drawn, std::size_t leaves);

/// Converts a program whose leaves are arguments or unused to a graph with all arguments as inputs. Drawn numbers use
/// `key`.
Graph graph_of(const Program& program, std::span<const TensorType> arguments, std::span<const std::uint32_t> results,
               std::uint64_t key);

/// Converts the program as recorded, with all leaves as inputs.
Graph graph_of(const Program& program, std::span<const std::uint32_t> results);

/// A difference, as the end of a sentence, and its source line.
struct Difference {
  std::string what;
  Location where;
  bool is_inside = false;  // inside a function that the program calls
};
std::optional<Difference> find_difference(const Place& now, const Place& before, Location where);
std::optional<Difference> find_difference(const Program& now, const Program& before, Location where);

}  // namespace fermata
