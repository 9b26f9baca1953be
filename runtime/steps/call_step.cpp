// See call_step.h.
#include "runtime/steps/call_step.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/operation_count.h"
#include "runtime/device_run.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"
#include "runtime/storage.h"

namespace fermata {

SelectCall select_call_step = nullptr;

void CallStep::bind(const Binding& binding, BoundSteps& bound) const {
  bound.add<BoundCall>(binding.step).bind(*this, binding);
}
void BoxedCallStep::bind(const Binding& binding, BoundSteps& bound) const {
  bound.add<BoundBoxedCall>(binding.step).bind(*this, binding);
}

TensorView BoundOperand::view(const Run& run) const {
  const auto rank = static_cast<std::uint8_t>(sizes.rank());
  if (is_scalar) return {&run.scalars[number], dtype, rank, sizes.data(), strides.data()};
  return {run.address(number, byte_offset), dtype, rank, sizes.data(), strides.data(), run.buffers[number]};
}

void BoundCall::bind(const CallStep& step, const Binding& binding) {
  step_ = &step, kernel_ = nullptr, open_ = nullptr, subgraphs_ = nullptr;
  operands_.clear();
  const auto add = [&](const PlanSource& source, DType dtype, std::size_t bytes) {
    const BoundSource at = binding.resolve(source);
    operands_.push_back(
        {dtype, false, source.slot, at.offset * static_cast<std::int64_t>(bytes), at.sizes, at.strides});
  };
  const BoundSource result = binding.resolve(step.output);
  for (const CallOperand o : step.operands) {
    if (!o.is_scalar) {
      add(step.sources[o.number], step.source_dtypes[o.number], step.element_bytes[o.number]);
      continue;
    }
    Shape zeros = result.sizes;
    std::ranges::fill(zeros, 0);
    operands_.push_back(
        {scalar_dtype(step.operand_dtype), true, step.scalars.first + o.number, 0, result.sizes, zeros});
  }
  add(step.output, step.output_dtype, byte_size(binding.records[step.record]->dtype));
  attributes_ = attributes_of(*binding.records[step.record]);
  views_.resize(operands_.size());
  locate(binding.records);
}

CallArgs BoundCall::arguments(const Run& run, Epilogue* epilogue) {
  for (std::size_t i = 0; i < operands_.size(); ++i) views_[i] = operands_[i].view(run);
  const CallArgs args{.op = step_->op,
                      .inputs = {views_.data(), views_.size() - 1},
                      .outputs = {&views_.back(), 1},
                      .attributes = attributes_,
                      .scalars = run.scalars.subspan(step_->scalars.first, step_->scalars.count),
                      .where = where_,
                      .epilogue = epilogue,
                      .context = step_->context,
                      .subgraphs = subgraphs_.get()};
  if (kernel_ == nullptr) {
    const ChosenKernel chosen = select_call_step(*step_, args);
    kernel_ = chosen.call, open_ = chosen.open;
  } else if (open_ != nullptr && open_->is_settled()) [[unlikely]] {
    kernel_ = open_->kernel(kernel_, args), open_ = nullptr;
  }
  return args;
}

void BoundCall::run(Run& run, Epilogue* epilogue) {
  const CallArgs args = arguments(run, epilogue);
  if (open_ != nullptr) [[unlikely]]
    return open_->run(kernel_, args);
  if (run.plan.capabilities.launches_on_caller) [[likely]]
    return kernel_(args);
  const RunSite site{step_->name, where_};
  const RunSiteGuard guard(site);
  kernel_(args);
}

bool BoundCall::has_sizes_of(const BoundCall& other) const {
  const auto same = [](const BoundOperand& a, const BoundOperand& b) { return a.has_layout_of(b); };
  return std::ranges::equal(operands_, other.operands_, same) && attributes_ == other.attributes_;
}

namespace {

/// Whether neighbors in memory are neighbors along another axis than the last one.
bool lies_across(const BoundOperand& o) {
  if (o.sizes.rank() < 2 || o.sizes.back() < 2 || o.strides.back() == 0 || o.strides.back() == 1) return false;
  for (std::size_t d = 0; d + 1 < o.sizes.rank(); ++d)
    if (o.strides[d] == 1 && o.sizes[d] > 1) return true;
  return false;
}

}  // namespace

StepWork BoundCall::work() const {
  StepWork work{.dtype = step_->operand_dtype};
  std::vector<std::span<const std::int64_t>> sizes;
  for (const BoundOperand& o : operands_) {
    if (o.is_scalar) continue;
    auto bytes = static_cast<double>(byte_size(o.dtype));
    for (std::size_t d = 0; d < o.sizes.rank(); ++d)
      if (o.strides[d] != 0) bytes *= static_cast<double>(o.sizes[d]);
    work.bytes += bytes;
    if (lies_across(o) && !is_product(step_->op)) work.strided_bytes += bytes;
    sizes.emplace_back(o.sizes);
  }
  const auto result = sizes.back();
  sizes.pop_back();
  work.operations = operation_count(step_->op, sizes, result);
  return work;
}

std::string BoundCall::description() const {
  std::string text = step_->name;
  for (const BoundOperand& o : operands()) text += " " + to_string(o.sizes);
  return text + " -> " + to_string(output().sizes);
}

void BoundBoxedCall::run(Run& run) {
  CallArgs args = arguments(run);
  const std::uint32_t slot = step_->output.slot;
  StoragePtr given;
  if (run.data[slot] == nullptr) args.result = &given;
  const RunSite site{step_->name, where_};
  const RunSiteGuard guard(site);
  kernel_(args);
  if (given == nullptr) return;
  run.data[slot] = given->data, run.buffers[slot] = given.get();
  run.owners[slot] = std::move(given);
}

}  // namespace fermata
