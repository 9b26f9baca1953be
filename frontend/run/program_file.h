// What a file of an exported program holds, as it is in memory: the plan, the records that it is bound to, the machine
// code of its kernels, and where its constants lie in the file (docs/export.md).
//
// Sizes are expressions of the sizes that may differ from run to run, the *symbols*. A file without symbols has
// constants in their place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/object_compiler.h"
#include "ir/dtype.h"
#include "ir/op.h"
#include "runtime/plan.h"

namespace fermata {

/// A symbol, or a size of an earlier record.
struct SizeVariable {
  static constexpr std::uint32_t kSymbol = ~0u;
  std::uint32_t record = kSymbol;
  std::uint32_t index = 0;  // of the symbol, or of the axis
  bool operator==(const SizeVariable&) const = default;
};
/// coefficient * the product of the factors
struct SizeTerm {
  std::int64_t coefficient = 1;
  std::vector<SizeVariable> factors{};
  bool operator==(const SizeTerm&) const = default;
};
/// (offset + the sum of the terms) / divisor, rounded down.
struct SizeExpression {
  std::int64_t offset = 0;
  std::int64_t divisor = 1;  // positive
  std::vector<SizeTerm> terms{};
  bool is_constant() const { return terms.empty(); }
  bool operator==(const SizeExpression&) const = default;
};

/// A host number of a record: bits, or factor * shape(size) in its dtype.
struct NumberExpression {
  enum class Form : std::uint8_t { bits, value, reciprocal, root, reciprocal_root };
  Form form = Form::bits;
  DType dtype = DType::f32;
  std::uint64_t bits = 0;
  double factor = 1;
  SizeExpression size{};
};

/// What a node of the recording was: enough to give its sizes, attributes and numbers for other symbols.
struct ProgramRecord {
  static constexpr std::uint32_t kNoArgument = ~0u;
  Op op = Op::input;  // pointwise ops stand for each other: their result has the common shape of the operands
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  std::vector<std::uint32_t> operands{};  // tensors only
  std::vector<SizeExpression> sizes{};    // of leaves, and where the shape of the result is an argument
  std::vector<SizeExpression> attributes{};
  std::vector<NumberExpression> scalars{};
  std::vector<std::uint32_t> functions{};  // that it calls: numbers among ProgramFile::functions
  std::uint32_t argument = kNoArgument;    // of a leaf of a function: it has the type of that argument
};

/// A tensor that the plan reads, in the order of Plan::leaf_slots.
struct ProgramLeaf {
  bool is_constant = false;
  std::uint32_t number = 0;           // of the constant or of the input
  std::vector<std::int64_t> strides;  // none where dense
  std::int64_t offset = 0;            // in elements
};
/// Bytes of the file.
struct FilePart {
  std::uint64_t offset = 0, bytes = 0, checksum = 0;
};

/// Machine code of a kernel for one target and some streamed stores (codegen_cpu/loaded_executable.h).
struct ProgramObject {
  std::uint32_t target = 0;  // number among ProgramFile::targets
  ObjectForm form = ObjectForm::plain;
  std::uint64_t streamed = 0;
  FilePart code;
};
struct ProgramKernel {
  std::string description;  // serialize(Kernel)
  std::vector<ProgramObject> objects;
};

/// Machine code of a device for some of the functions that kernels and calls launch (codegen_cuda/image_compiler.h).
struct ProgramImage {
  std::uint32_t target = 0;  // number among ProgramFile::targets
  std::vector<std::string> functions;
  FilePart code;
};

struct ProgramInput {
  std::string name;
  DType dtype = DType::f32;
  std::vector<SizeExpression> sizes;  // of symbols only
};
struct ProgramOutput {
  std::string name;
  std::uint32_t number = 0;  // among Plan::output_slots
};
struct ProgramSymbol {
  std::string name;
  std::int64_t least = 0, most = 0, multiple_of = 1;
  std::uint32_t input = 0, axis = 0;  // where it is read
};
/// A number that moves with the random generator.
struct ProgramDraw {
  std::uint32_t slot = 0;  // in Plan::scalars
  SizeExpression delta{};  // of symbols only
  bool is_key = false;
};

/// A plan with the records that it is bound to.
struct ProgramBody {
  std::vector<ProgramRecord> records;
  std::vector<ProgramLeaf> leaves;
  std::vector<ProgramDraw> draws;
  std::unique_ptr<Plan> plan = std::make_unique<Plan>();
  /// Whether a record is one of the results of a call of control flow. Its only attribute is then the number of the
  /// result, from which its place follows for every size.
  bool is_result_of_call(const ProgramRecord& r) const {
    return r.op == Op::unpack && !records[r.operands[0]].functions.empty();
  }
};
/// What a call of control flow runs. It reads arguments only; functions that it calls itself come before it.
struct ProgramFunction : ProgramBody {
  std::uint32_t arguments = 0;
  std::vector<std::uint32_t> results;  // numbers among Plan::output_slots
};

struct ProgramFile : ProgramBody {
  std::string made_by;  // version of the engine
  std::vector<std::string> targets;
  std::vector<ProgramSymbol> symbols;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
  std::vector<FilePart> constants;
  std::vector<ProgramKernel> kernels;  // by KernelStep::number
  std::vector<ProgramImage> images;    // of a device, whose kernels have no objects
  std::uint64_t draw_count = 0;        // numbers that one run takes
  std::vector<ProgramFunction> functions;

  template <class F> void for_each_plan(F&& f) const {
    for (const ProgramFunction& function : functions) f(*function.plan);
    f(*plan);
  }
};

/// Every part of a file starts at a multiple of this: constants are mapped and read as they lie.
inline constexpr std::uint64_t kPartAlignment = 64;
inline constexpr std::uint32_t kFileVersion = 4;

/// The description of a program as bytes, and back. Reading checks every number: FM2201 for what cannot be. The parts
/// of the file are not looked at.
std::string encode_program(const ProgramFile& program);
ProgramFile decode_program(std::string_view bytes, const std::string& path);
/// FM2201 unless steps, slots, records and kernels of a program refer to what is there.
void check_program(const ProgramFile& program, const std::string& path);

/// The head of a file: where its descriptions lie, one for processors and one for CUDA. At least one of them is there;
/// the other one may have no bytes.
struct ProgramHead {
  FilePart cpu, cuda;
};
inline constexpr std::size_t kHeadBytes = 128;
std::string encode_head(const ProgramHead& head, std::uint64_t file_bytes);
/// FileError FM2202 where the file is none of ours or of another version, FM2201 where it is damaged.
ProgramHead decode_head(std::string_view file, const std::string& path);
/// The bytes of a part. FM2201 where they are not in the file, or not what was written.
std::string_view part_of(std::string_view file, const FilePart& part, const std::string& path);
std::uint64_t checksum_of(std::string_view bytes);

/// FileError FM2201: "model.fermata is damaged: ..."
[[noreturn]] void throw_damaged(const std::string& path, std::string_view what);

}  // namespace fermata
