// The records of a program for the sizes at hand: what a plan is bound to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frontend/run/program_file.h"
#include "runtime/node.h"

namespace fermata {

class ShippedFunction;

/// The bits of a number for its size.
std::uint64_t bits_of_number(const NumberExpression& x, std::int64_t size);
/// The value of an expression of symbols alone. FM2201 where it overflows.
std::int64_t value_of(const SizeExpression& x, std::span<const std::int64_t> symbols, const std::string& path);

class RecordTable {
 public:
  /// Of the program, or of one of its functions.
  RecordTable(const ProgramFile& program, const ProgramBody& body, const std::string& path);
  ~RecordTable();
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;

  /// Infers all sizes. The errors of the calls that have been recorded, where they cannot be made with these sizes.
  /// Those of a function follow from the types of its arguments, too.
  void set(std::span<const std::int64_t> symbols, std::span<const TensorType> arguments = {});
  std::span<const Node* const> nodes() const { return pointers_; }
  /// The functions that its calls run, with the sizes at hand.
  std::vector<const ShippedFunction*> functions() const;

 private:
  /// A record that calls functions.
  struct Call {
    std::vector<ShippedFunction*> functions;
    std::vector<TensorType> results;  // before they are packed
  };
  TensorType set_call(std::size_t record, const std::vector<TensorType>& operands,
                      const std::vector<std::int64_t>& attributes, std::span<const std::int64_t> symbols);
  void set_record(std::size_t record, std::span<const std::int64_t> symbols, std::span<const TensorType> arguments);
  std::int64_t value(const SizeExpression& x, std::span<const std::int64_t> symbols) const;
  TensorType type_of(const ProgramRecord& r, const std::vector<TensorType>& operands,
                     const std::vector<std::int64_t>& attributes, std::span<const std::int64_t> symbols) const;

  const ProgramBody& body_;
  const std::string& path_;
  const std::unique_ptr<Node[]> nodes_;
  std::vector<NodeExtra> extras_;
  std::vector<const Node*> pointers_;
  std::map<std::size_t, Call> calls_;  // by record
};

}  // namespace fermata
