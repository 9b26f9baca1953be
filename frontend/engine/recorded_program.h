// What a function has recorded, with everything that it is made of: sizes, host numbers, attributes, and the tensors
// that it reads. Two recordings of one function can be compared by it, to the line
// (docs/adr/021-compiled-functions-check-themselves.md).
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

/// Sizes, strides and device of a tensor that is there, and how it is divided among processes.
struct Layout {
  TensorType type;
  Shape strides{};  // rank 0 where dense
  std::int64_t offset = 0;
  BackendKey backend = BackendKey::cpu;
  std::shared_ptr<const DistributedValue> division{};  // null where it is not divided
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

/// A tensor from before a call: an argument, or one from outside; or the grad() of a leaf that is one or the other.
struct Place {
  std::int32_t argument = -1;
  bool is_gradient = false;              // of that argument
  Tensor hidden{};                       // from outside, or a constant that the function makes
  bool is_constant = false;              // nobody else can reach it
  std::shared_ptr<LeafGradient> leaf{};  // from outside: its gradient

  bool is_of_argument() const { return argument >= 0; }
  bool is_of_leaf() const { return is_gradient || leaf != nullptr; }
  /// `held` is for one that nobody else might hold.
  const Tensor& find(std::span<const Tensor> arguments, Tensor& held) const {
    if (is_of_leaf()) [[unlikely]]
      return find_gradient(arguments, held);
    return is_of_argument() ? arguments[static_cast<std::size_t>(argument)] : hidden;
  }
  const Tensor& find_gradient(std::span<const Tensor> arguments, Tensor& held) const;
};
/// The leaf whose gradient that is.
const std::shared_ptr<LeafGradient>& leaf_of(const Place& gradient, std::span<const Tensor> arguments);

/// A node of the program with everything that it is made of, to be compared.
struct ProgramNode {
  Op op = Op::input;
  Layout type{};
  std::vector<std::uint32_t> operands{};  // kScalarOperand for host numbers
  std::vector<std::uint64_t> scalars{};   // of random ops: relative to the numbers that the call draws
  std::vector<std::int64_t> attributes{};
  DType scalar_dtype = DType::f32;
  bool is_drawn = false;   // by this thread's generator
  std::int32_t leaf = -1;  // its number among leaves
  Location where{};
  std::shared_ptr<const Subgraphs> subgraphs{};  // the functions that it owns
};

struct Program {
  std::vector<ProgramNode> nodes;  // in the order of a walk
  std::vector<Place> leaves;       // of the nodes that are leaves
};

/// Numbers of a generator that a program draws: what moves with it.
struct DrawnRange {
  std::uint64_t key = 0, first = 0, count = 0;
  bool has(std::span<const std::uint64_t> scalars) const {
    return scalars.size() == 2 && scalars[0] == key && scalars[1] - first < count;
  }
};
/// Whether an op draws numbers: then its two scalars, key and offset, are where they come from.
inline bool draws_numbers(Op op) { return family(op) == Family::random || effect_of(op) != Effect::pure; }
/// One node of a walk; leaves are numbered from `leaves` on.
ProgramNode program_node(const Walk& walk, std::uint32_t number, const DrawnRange& drawn, std::size_t leaves);

/// A program whose leaves are arguments, or read by nobody, as a graph with all its arguments as inputs. What is drawn
/// has `key`.
Graph graph_of(const Program& program, std::span<const TensorType> arguments, std::span<const std::uint32_t> results,
               std::uint64_t key);

/// The program as it was recorded: all leaves are inputs.
Graph graph_of(const Program& program, std::span<const std::uint32_t> results);

/// What is different, as the rest of a sentence, and where.
struct Difference {
  std::string what;
  Location where;
  bool is_inside = false;  // a function that the program calls
};
std::optional<Difference> find_difference(const Place& now, const Place& before, Location where);
std::optional<Difference> find_difference(const Program& now, const Program& before, Location where);

}  // namespace fermata
