// Random programs over the whole op table: calls that the table's own descriptions give (ir/op_traits.h), joined to
// each other by reshapes, casts and gathers. A new op is in them without being listed.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor.h"

namespace fermata::testing {

struct TableProgram {
  Graph graph;
  std::vector<Tensor> inputs;  // one for each input node
  std::vector<Tensor> run(std::span<const Tensor> given) const;
};

TableProgram random_table_program(std::mt19937_64& random, std::size_t calls);

/// How much a result may depend on the order in which floats are added up (docs/adr/004), per node: not at all; it is
/// such a sum; it is made of one.
enum class Order : std::uint8_t { exact, sum, unknown };
std::vector<Order> orders_of(const Graph& graph);

/// The smallest program that `fails` still: with fewer outputs, and inputs in the place of calls.
TableProgram reduced(TableProgram program, const std::function<bool(const TableProgram&)>& fails);

/// A function that makes the inputs and runs the program, as C++ for a test.
std::string to_cpp(const TableProgram& program);

}  // namespace fermata::testing
