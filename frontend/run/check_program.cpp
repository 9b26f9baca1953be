// Whether all that a program refers to is there. What is checked are numbers, ranks and dtypes: kernels are machine
// code, which nothing can check (docs/export.md).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "frontend/run/program_file.h"
#include "ir/infer.h"
#include "ir/kernel.h"
#include "ir/op_traits.h"

namespace fermata {
namespace {

/// Of the program, or of one of its functions.
class Check {
 public:
  Check(const ProgramFile& program, const ProgramBody& body, const ProgramFunction* function,
        std::span<const Kernel> kernels, const std::string& path)
      : file_(program), p_(body), function_(function), plan_(*body.plan), kernels_(kernels), path_(path) {}

  void run() {
    if (function_ == nullptr)
      check_io();
    else
      for (const std::uint32_t output : function_->results)
        require(output < plan_.output_slots.size(), "a result of a function does not exist");
    for (std::size_t i = 0; i < p_.records.size(); ++i) check_record(i);
    check_slots();
    check_leaves();
    for (const ScalarSource& s : plan_.scalars) {
      require(s.record < p_.records.size(), "a scalar does not exist");
      const ProgramRecord& r = p_.records[s.record];
      require(s.index < std::max<std::size_t>(r.scalars.size(), family(r.op) == Family::reduce),
              "a scalar does not exist");
    }
    for (const ProgramDraw& d : p_.draws)
      require(d.slot < plan_.scalars.size(), "a random scalar does not exist"), check_expression(d.delta);
    for (const ProgramKernel& k : file_.kernels)
      for (const ProgramObject& o : k.objects)
        require(o.target < file_.targets.size(), "the target of machine code does not exist");
    for (const ProgramImage& image : file_.images)
      require(image.target < file_.targets.size(), "the target of machine code does not exist");
    for (const PlanStep& step : plan_.steps) for_each_part(step, [&](const auto& part) { check(part); });
    for (const PlanStep& step : plan_.steps) std::visit([&](const auto& s) { check_form(s); }, step);
  }

 private:
  void require(bool holds, std::string_view what) const {
    if (!holds) throw_damaged(path_, what);
  }
  std::size_t rank(std::uint32_t record) const { return p_.records[record].rank; }

  /// Of symbols, and of the sizes of records before `at`.
  void check_expression(const SizeExpression& x, std::size_t at = 0) const {
    require(x.divisor > 0, "the divisor of a size is not positive");
    for (const SizeTerm& t : x.terms)
      for (const SizeVariable& v : t.factors) {
        const bool is_there = v.record == SizeVariable::kSymbol ? v.index < file_.symbols.size()
                                                                : v.record < at && v.index < rank(v.record);
        require(is_there, "a size refers to a missing record");
      }
  }

  void check_io() const {
    std::set<std::string_view> names;
    for (const ProgramInput& in : file_.inputs) {
      require(names.insert(in.name).second && in.sizes.size() <= kMaxRank, "its inputs are invalid");
      for (const SizeExpression& x : in.sizes) check_expression(x);
    }
    std::set<std::uint32_t> outputs;
    for (const ProgramOutput& out : file_.outputs)
      require(out.number < plan_.output_slots.size() && outputs.insert(out.number).second, "its outputs are invalid");
    for (const ProgramSymbol& s : file_.symbols) {
      require(s.multiple_of > 0 && s.least >= 0 && s.least <= s.most, "the range of a dynamic size is invalid");
      require(s.input < file_.inputs.size() && s.axis < file_.inputs[s.input].sizes.size(),
              "the input of a dynamic size does not exist");
    }
  }

  /// Whether ranks and sizes are those of the operands is seen when sizes are known (run/record_table.h).
  void check_record(std::size_t at) const {
    const ProgramRecord& r = p_.records[at];
    const OpTraits& op = traits(r.op);
    for (const std::uint32_t in : r.operands) require(in < at, "an operand does not precede its record");
    for (const auto* list : {&r.sizes, &r.attributes})
      for (const SizeExpression& x : *list) check_expression(x, at);
    for (const NumberExpression& x : r.scalars) check_expression(x.size, at);
    require(family(r.op) != Family::composite, "a record has a composite op");
    require(r.rank <= kMaxRank, "a record has too many axes");
    require(r.functions.size() == op.subgraphs.size(), "an op has the wrong number of functions");
    if (r.argument != ProgramRecord::kNoArgument)
      return require(function_ != nullptr && r.argument < function_->arguments && r.op == Op::input,
                     "an argument does not exist");
    if (r.op == Op::unpack) require(r.operands.size() == 1, "a record has the wrong number of operands");
    const bool has_shape = r.op == Op::input || (op.takes_shape && !p_.is_result_of_call(r));
    if (has_shape) require(r.sizes.size() == r.rank, "a record has the wrong number of sizes");
    if (is_pointwise(r.op)) return require(!r.operands.empty(), "an op has no operands");
    require(r.op == Op::input || family(r.op) == Family::random ||
                attribute_list_length(op, r.attributes.size()).has_value(),
            "an op has the wrong number of attributes");
  }

  void check_slots() const {
    for (const PlanSlot& slot : plan_.slots) {
      require(slot.record < p_.records.size(), "the record of a buffer does not exist");
      require(slot.first_step <= plan_.steps.size() && slot.last_step <= plan_.steps.size(),
              "the lifetime of a buffer is invalid");
    }
    const auto require_slots = [&](const std::vector<std::uint32_t>& slots, PlanSlot::Kind kind) {
      for (const std::uint32_t s : slots)
        require(s < plan_.slots.size() && plan_.slots[s].kind == kind,
                "the buffer of an input or output does not exist");
    };
    require_slots(plan_.leaf_slots, PlanSlot::Kind::leaf);
    require_slots(plan_.output_slots, PlanSlot::Kind::output);
    require(plan_.output_records.size() == plan_.output_slots.size(), "an output has no buffer");
    for (const std::uint32_t r : plan_.output_records)
      require(r < p_.records.size(), "the record of an output does not exist");
    for (const SharedPlace& s : plan_.shared_places) {
      require(std::max(s.temporary, s.output) < plan_.slots.size(), "a shared buffer is invalid");
      require(plan_.slots[s.temporary].kind == PlanSlot::Kind::temporary &&
                  plan_.slots[s.output].kind == PlanSlot::Kind::output,
              "a shared buffer is invalid");
    }
    std::size_t leaves = 0, outputs = 0;
    for (const PlanSlot& slot : plan_.slots)
      leaves += slot.kind == PlanSlot::Kind::leaf, outputs += slot.kind == PlanSlot::Kind::output;
    require(leaves == plan_.leaf_slots.size() && outputs == plan_.output_slots.size(),
            "an input or output buffer is unused");
  }

  void check_leaves() const {
    require(plan_.leaf_records.size() == plan_.leaf_slots.size() && p_.leaves.size() == plan_.leaf_slots.size(),
            "an input has no buffer");
    for (std::size_t i = 0; i < p_.leaves.size(); ++i) {
      const ProgramLeaf& leaf = p_.leaves[i];
      const std::uint32_t record = plan_.leaf_records[i];
      require(record < p_.records.size() && p_.records[record].op == Op::input, "a leaf is not an input record");
      require(plan_.slots[plan_.leaf_slots[i]].record == record, "a leaf has the buffer of another one");
      require(leaf.number < leaf_count(leaf), "a leaf does not exist");
      require(leaf.strides.empty() || leaf.strides.size() == rank(record), "a leaf has the wrong number of strides");
      if (leaf.is_constant) {
        require_constant(p_.records[record], leaf);
        continue;
      }
      if (function_ != nullptr) {
        require(p_.records[record].argument == leaf.number, "an argument has the wrong index");
        continue;
      }
      const ProgramInput& in = file_.inputs[leaf.number];
      require(leaf.strides.empty() && leaf.offset == 0 && in.dtype == p_.records[record].dtype &&
                  in.sizes == p_.records[record].sizes,
              "an input has the wrong type");
    }
  }

  /// All its elements lie in its part of the file.
  void require_constant(const ProgramRecord& r, const ProgramLeaf& leaf) const {
    const FilePart& part = file_.constants[leaf.number];
    Shape sizes, strides(leaf.strides);
    for (const SizeExpression& x : r.sizes) {
      require(x.is_constant() && x.divisor == 1 && x.offset >= 0, "the sizes of a constant are not constant");
      sizes.push_back(x.offset);
    }
    const auto count = checked_element_count(sizes);
    require(count.has_value(), "a constant has too many elements");
    if (*count == 0) return;
    if (leaf.strides.empty()) strides = dense_strides(sizes);
    std::int64_t low = leaf.offset, high = leaf.offset;
    for (unsigned i = 0; i < sizes.rank(); ++i) {
      std::int64_t reach = 0;
      require(!__builtin_mul_overflow(strides[i], sizes[i] - 1, &reach) &&
                  !__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high),
              "the strides of a constant overflow");
    }
    const auto bytes = static_cast<std::int64_t>(byte_size(r.dtype));
    require(low >= 0 && high < static_cast<std::int64_t>(part.bytes / static_cast<std::uint64_t>(bytes)) &&
                part.offset % kPartAlignment == 0,
            "a constant is outside the file");
  }

  /// The rank of a source for its reader.
  std::size_t check_source(const PlanSource& source) const {
    require(source.slot < plan_.slots.size(), "the buffer of a step does not exist");
    std::size_t r = rank(plan_.slots[source.slot].record);
    for (const PathStep& step : source.path) {
      if (step.kind == PathStep::Kind::insert) {
        const auto inserted = static_cast<std::size_t>(std::popcount(step.mask));
        require(r + inserted <= kMaxRank && std::bit_width(step.mask) <= static_cast<int>(r + inserted),
                "an inserted axis is out of range");
        r += inserted;
        continue;
      }
      if (step.kind == PathStep::Kind::drop) {
        require(step.mask < r, "an axis that is dropped is out of range");
        --r;
        continue;
      }
      if (step.kind == PathStep::Kind::half) {
        require(is_complex(p_.records[plan_.slots[source.slot].record].dtype) && step.mask < 2 &&
                    &step == &source.path.back(),
                "a part of what is not complex");
        continue;
      }
      require(step.record < p_.records.size(), "the record of a view does not exist");
      const ProgramRecord& record = p_.records[step.record];
      if (step.kind == PathStep::Kind::step || step.kind == PathStep::Kind::size || step.kind == PathStep::Kind::plus) {
        require(step.mask < (step.kind == PathStep::Kind::step ? r : rank(step.record)),
                "the axis of a number is out of range");
        r = 0;
        continue;
      }
      if (step.kind == PathStep::Kind::gathered)
        require(step.mask < r && rank(step.record) + 1 >= r, "the axis of positions is out of range");
      else if (step.kind == PathStep::Kind::after || step.kind == PathStep::Kind::part ||
               step.kind == PathStep::Kind::before || step.kind == PathStep::Kind::widened)
        require(rank(step.record) == r && step.mask < r, "the axis of a part is out of range");
      else if (step.kind == PathStep::Kind::view)
        require(is_view(record.op) && !record.operands.empty() &&
                    (record.op == Op::reshape || rank(record.operands[0]) == r),  // also of what its operand reshapes
                "a view has the wrong rank");
      else
        require(rank(step.record) >= r, "a broadcast removes axes");
      r = rank(step.record);
    }
    return r;
  }
  static bool takes_half(const PlanSource& source, Half half) {
    return source.is_half() && (source.path.back().mask == 1) == (half == Half::imaginary);
  }
  /// Of the elements that a kernel sees.
  DType dtype_of(const PlanSource& source) const {
    const DType whole = p_.records[plan_.slots[source.slot].record].dtype;
    return source.is_half() ? real_dtype(whole) : whole;
  }
  void require_written(std::uint32_t slot) const {
    const PlanSlot::Kind kind = plan_.slots[slot].kind;
    require(kind == PlanSlot::Kind::output || kind == PlanSlot::Kind::temporary, "a step writes an input");
  }
  void check_part(const StepPart& part) const {
    require(part.record < p_.records.size(), "the record of a step does not exist");
    require(part.element_bytes.size() == part.sources.size(), "the operands of a step are invalid");
    require(
        part.scalars.first <= plan_.scalars.size() && part.scalars.count <= plan_.scalars.size() - part.scalars.first,
        "a scalar of a step does not exist");
  }

  void check(const KernelStep& step) const {
    check_part(step);
    require(step.number < kernels_.size(), "the kernel of a step does not exist");
    const Kernel& k = kernels_[step.number];
    require(step.axes.size() == k.rank && step.reduced == k.reduced && step.sources.size() == k.accesses.size() &&
                step.scalars.count == k.scalars.size() && step.stores.size() == k.stores.size(),
            "a step does not match its kernel");
    require(has_positions(k) == step.may_fail(), "a step does not say what its kernel reads at positions");
    if (step.may_fail())
      for (const PositionChecks::Node& n : step.checks->nodes())
        require(n.record < p_.records.size() && n.x.record < p_.records.size() && n.index.record < p_.records.size() &&
                    n.axis >= 0 && static_cast<std::size_t>(n.axis) < rank(n.x.record),
                "what a kernel reads at positions does not exist");
    const std::size_t domain = rank(step.record);
    for (std::size_t i = 0; i < step.sources.size(); ++i) {
      const PlanSlot& slot = (check_source(step.sources[i]), plan_.slots[step.sources[i].slot]);
      require(check_source(step.sources[i]) == domain, "an operand has another rank than its kernel");
      const bool has_memory = slot.kind != PlanSlot::Kind::position;
      require(k.accesses[i].address_only || (has_memory && dtype_of(step.sources[i]) == k.accesses[i].dtype),
              "an operand has another dtype than its kernel");
      require(k.accesses[i].half == Half::none || takes_half(step.sources[i], k.accesses[i].half),
              "an operand is not the part that its kernel reads");
      require(step.element_bytes[i] == (k.accesses[i].address_only ? 0 : byte_size(k.accesses[i].dtype)),
              "the operands of a step are invalid");
    }
    for (std::size_t i = 0; i < step.stores.size(); ++i) {
      require(step.stores[i] == k.stores[i].access, "the results of a step are invalid");
      require_written(step.sources[step.stores[i]].slot);
    }
  }

  void check(const CallStep& step) const {
    check_part(step);
    require(family(step.op) != Family::composite && step.op != Op::input, "a call has an op without kernels");
    require(traits(step.op).subgraphs.empty() || p_.records[step.record].op == step.op, "a call has no functions");
    require(step.source_dtypes.size() == step.sources.size() && step.operands.size() >= traits(step.op).least_operands,
            "the operands of a call are invalid");
    for (std::size_t i = 0; i < step.sources.size(); ++i) {
      check_source(step.sources[i]);
      const PlanSlot& slot = plan_.slots[step.sources[i].slot];
      require(slot.kind != PlanSlot::Kind::position && p_.records[slot.record].dtype == step.source_dtypes[i] &&
                  step.element_bytes[i] == byte_size(step.source_dtypes[i]),
              "an operand has another dtype than its call");
    }
    for (const CallOperand& o : step.operands) {
      require(!o.is_scalar || is_pointwise(step.op), "a call does not take a scalar");
      require(o.number < (o.is_scalar ? step.scalars.count : step.sources.size()),
              "the operands of a call are invalid");
    }
    require(step.output.path.empty(), "the result of a call is invalid");
    check_source(step.output);
    require_written(step.output.slot);
    require(p_.records[plan_.slots[step.output.slot].record].dtype == step.output_dtype,
            "the result of a call is invalid");
  }
  void check(const BoxedCallStep&) const { throw_damaged(path_, "boxed calls are not supported"); }

  template <class S> void check_form(const S&) const {}
  void check_form(const EpilogueStep& step) const {
    require(access_of(step.epilogue, step.call.output.slot) != kNoAccess || step.form != EpilogueForm::none,
            "an epilogue does not read its product");
  }
  void check_form(const StartStep&) const { throw_damaged(path_, "collectives are not supported"); }
  void check_form(const WaitStep&) const { throw_damaged(path_, "collectives are not supported"); }
  void check_form(const CallBatchStep& step) const { require(!step.calls.empty(), "a batch has no calls"); }

  /// A function reads arguments only.
  std::size_t leaf_count(const ProgramLeaf& leaf) const {
    if (function_ != nullptr) return leaf.is_constant ? 0 : function_->arguments;
    return leaf.is_constant ? file_.constants.size() : file_.inputs.size();
  }

  const ProgramFile& file_;
  const ProgramBody& p_;
  const ProgramFunction* const function_;  // null for the program
  const Plan& plan_;
  const std::span<const Kernel> kernels_;
  const std::string& path_;
};

}  // namespace

void check_program(const ProgramFile& program, const std::string& path) {
  // Every call has tables of its own for the functions that it runs, and so for those that these run.
  constexpr std::size_t kMostTables = 1 << 16;
  std::vector<std::size_t> tables;
  const auto count_tables = [&](const ProgramBody& body) {
    std::size_t count = 1;
    for (const ProgramRecord& r : body.records)
      for (const std::uint32_t f : r.functions) {
        if (f >= tables.size()) throw_damaged(path, "a function does not precede its call");
        count = std::min(count + tables[f], kMostTables);
      }
    return count;
  };
  for (const ProgramFunction& f : program.functions) tables.push_back(count_tables(f));
  if (count_tables(program) == kMostTables) throw_damaged(path, "functions call too many other functions");
  std::vector<Kernel> kernels;
  for (const ProgramKernel& k : program.kernels) kernels.push_back(deserialize_kernel(k.description));
  for (const ProgramFunction& f : program.functions) Check(program, f, &f, kernels, path).run();
  Check(program, program, nullptr, kernels, path).run();
}

}  // namespace fermata
