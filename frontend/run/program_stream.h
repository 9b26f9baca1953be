// The fields of a program in the order in which a file has them, once for writing and reading.
//
// `stream(a, b, ...)` passes on fields: a Writer appends them, a Reader fills them in. Integers are LEB128, negative
// ones by zigzag; lists begin with their length.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/run/program_file.h"
#include "frontend/run/reported_checks.h"

namespace fermata {

template <class S> void transfer(S& stream, SizeVariable& x) { stream(x.record, x.index); }
template <class S> void transfer(S& stream, SizeTerm& x) { stream(x.coefficient, x.factors); }
template <class S> void transfer(S& stream, SizeExpression& x) { stream(x.offset, x.divisor, x.terms); }
template <class S> void transfer(S& stream, NumberExpression& x) { stream(x.form, x.dtype, x.bits, x.factor, x.size); }
template <class S> void transfer(S& stream, ProgramRecord& x) {
  stream(x.op, x.dtype, x.rank, x.operands, x.sizes, x.attributes, x.scalars, x.functions, x.argument);
}
template <class S> void transfer(S& stream, ProgramLeaf& x) { stream(x.is_constant, x.number, x.strides, x.offset); }
template <class S> void transfer(S& stream, FilePart& x) { stream(x.offset, x.bytes, x.checksum); }
template <class S> void transfer(S& stream, ProgramObject& x) { stream(x.target, x.form, x.streamed, x.code); }
template <class S> void transfer(S& stream, ProgramKernel& x) { stream(x.description, x.objects); }
template <class S> void transfer(S& stream, ProgramImage& x) { stream(x.target, x.functions, x.code); }
template <class S> void transfer(S& stream, ProgramInput& x) { stream(x.name, x.dtype, x.sizes); }
template <class S> void transfer(S& stream, ProgramOutput& x) { stream(x.name, x.number); }
template <class S> void transfer(S& stream, ProgramSymbol& x) {
  stream(x.name, x.least, x.most, x.multiple_of, x.input, x.axis);
}
template <class S> void transfer(S& stream, ProgramDraw& x) { stream(x.slot, x.delta, x.is_key); }
template <class S> void transfer_body(S& stream, ProgramBody& x) { stream(x.records, x.leaves, x.draws, *x.plan); }
template <class S> void transfer(S& stream, ProgramFunction& x) {
  transfer_body(stream, x);
  stream(x.arguments, x.results);
}
template <class S> void transfer(S& stream, ProgramFile& x) {
  stream(x.made_by, x.targets, x.symbols, x.inputs, x.outputs, x.constants, x.kernels, x.images, x.draw_count,
         x.functions);
  transfer_body(stream, x);
}

// ---- The plan

template <class S> void transfer(S& stream, PathStep& x) { stream(x.kind, x.record, x.mask); }
template <class S> void transfer(S& stream, PlanSource& x) { stream(x.slot, x.path); }
template <class S> void transfer(S& stream, ScalarSource& x) { stream(x.record, x.index); }
template <class S> void transfer(S& stream, ScalarRange& x) { stream(x.first, x.count); }
template <class S> void transfer(S& stream, PlanSlot& x) {
  stream(x.kind, x.record, x.mask, x.first_step, x.last_step);
}
template <class S> void transfer(S& stream, SharedPlace& x) { stream(x.temporary, x.output); }
template <class S> void transfer(S& stream, AxisRun& x) { stream(x.first, x.last); }
template <class S> void transfer(S& stream, CallOperand& x) { stream(x.is_scalar, x.number); }
template <class S> void transfer_part(S& stream, StepPart& x) {
  stream(x.record, x.sources, x.element_bytes, x.scalars, x.name);
}
template <class S> void transfer(S& stream, PositionChecks::Operand& x) { stream(x.record, x.dtype); }
template <class S> void transfer(S& stream, PositionChecks::Node& x) { stream(x.record, x.x, x.index, x.op, x.axis); }
template <class S> void transfer(S& stream, KernelStep& x) {
  transfer_part(stream, x);
  stream(x.axes, x.stores, x.reduced, x.ns_per_point, x.number);
  std::vector<PositionChecks::Node> checked;
  if (x.checks != nullptr) checked = x.checks->nodes();
  stream(checked);
  if (x.checks == nullptr && !checked.empty()) x.checks = std::make_shared<ReportedChecks>(std::move(checked));
}
template <class S> void transfer(S& stream, CallStep& x) {
  transfer_part(stream, x);
  stream(x.op, x.operand_dtype, x.output_dtype, x.source_dtypes, x.operands, x.output);
}
template <class S> void transfer(S& stream, BoxedCallStep& x) { stream(static_cast<CallStep&>(x)); }
template <class S> void transfer(S& stream, EpilogueStep& x) { stream(x.call, x.epilogue, x.form); }
template <class S> void transfer(S& stream, ProductChainStep& x) { stream(x.first, x.last); }
template <class S> void transfer(S& stream, CallBatchStep& x) { stream(x.calls); }
template <class S> void transfer(S& stream, StartStep& x) { stream(x.call, x.number); }
template <class S> void transfer(S& stream, WaitStep& x) { stream(x.call, x.number); }
template <class S> void transfer(S& stream, Plan& x) {
  stream(x.slots, x.steps, x.scalars, x.leaf_slots, x.leaf_records, x.output_slots, x.output_records, x.shared_places);
}

/// The last enumerator of each enumeration in a program.
template <class E> inline constexpr E last_of = E::of_an_enumeration_that_has_no_last;
template <> inline constexpr NumberExpression::Form last_of<NumberExpression::Form> =
    NumberExpression::Form::reciprocal_root;
template <> inline constexpr PathStep::Kind last_of<PathStep::Kind> = PathStep::Kind::plus;
template <> inline constexpr PlanSlot::Kind last_of<PlanSlot::Kind> = PlanSlot::Kind::position;
template <> inline constexpr ObjectForm last_of<ObjectForm> = ObjectForm::results;
template <> inline constexpr EpilogueForm last_of<EpilogueForm> = EpilogueForm::whole;
template <> inline constexpr DType last_of<DType> = static_cast<DType>(kDTypeCount - 1);

template <class T> inline constexpr bool is_list = false;
template <class T> inline constexpr bool is_list<std::vector<T>> = true;
template <class T> inline constexpr bool is_variant = false;
template <class... T> inline constexpr bool is_variant<std::variant<T...>> = true;

}  // namespace fermata
