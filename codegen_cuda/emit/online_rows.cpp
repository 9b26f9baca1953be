// See online_rows.h.
#include "codegen_cuda/emit/online_rows.h"

#include <algorithm>
#include <array>

#include "codegen_cuda/emit/program_match.h"
#include "ir/op.h"

namespace fermata::gpu {
namespace {

bool is(const Reduction& r, Op op) {
  const ReduceFormula& wanted = reduce_formula(op, DType::f32);
  return r.types == wanted.types && r.identity == wanted.identity && r.lifted.size() == 1 &&
         same_formula(r.combine, wanted.combine);
}

class Search {
 public:
  Search(const Kernel& kernel, const KernelSchedule& schedule)
      : kernel_(kernel), schedule_(schedule), program_(kernel.program), needs_(program_.size()) {
    for (ValueId v = 0; v < program_.size(); ++v) {
      const Instr& i = program_[v];
      needs_[v] = i.prim == Prim::reduced ? 1u << i.index : 0;
      for (const ValueId operand : {i.a, i.b, i.c})
        if (operand != kNoValue) needs_[v] |= needs_[operand];
    }
  }

  std::optional<OnlineRows> find() {
    const bool last_axis_only = kernel_.reduced == 1u << (kernel_.rank - 1u);
    if (!last_axis_only || kernel_.stores.size() != 1 || kernel_.reductions.empty() || kernel_.reductions.size() > 2)
      return {};
    for (std::size_t i = 0; i < kernel_.reductions.size(); ++i) {
      const auto r = static_cast<std::uint16_t>(i);
      if (is(kernel_.reductions[r], Op::sum) && !has_total_)
        found_.total = r, has_total_ = true;
      else if (is(kernel_.reductions[r], Op::max))
        found_.top = r, found_.has_top = true;
      else
        return {};
    }
    if (!has_total_ || (kernel_.reductions.size() == 2) != found_.has_top) return {};
    found_.weight = kernel_.reductions[found_.total].lifted[0];
    found_.result = kernel_.stores[0].access;
    const bool whole_rows = (kernel_.accesses[found_.result].axes >> (kernel_.rank - 1u) & 1u) != 0;
    if (!whole_rows || schedule_.row_level[found_.weight] || !find_factors() || !find_exponent()) return {};
    return found_;
  }

 private:
  /// A value before it was rounded to another floating dtype, if it was.
  ValueId unrounded(ValueId v) const {
    while (program_[v].prim == Prim::convert && is_floating(program_[v].type) &&
           is_floating(program_[program_[v].a].type))
      v = program_[v].a;
    return v;
  }
  bool is_row(ValueId v) const { return schedule_.row_level[v]; }

  bool find_factors() {
    const ValueId weight = unrounded(found_.weight);
    for (ValueId v = unrounded(kernel_.stores[0].value); v != weight;) {
      const Instr& i = program_[v];
      if (i.type != DType::f32 || (i.prim != Prim::mul && i.prim != Prim::div)) return false;
      const bool swapped = i.prim == Prim::mul && is_row(i.a);
      const ValueId rest = swapped ? i.b : i.a, by = swapped ? i.a : i.b;
      if (is_row(rest) || !is_row(by)) return false;
      found_.factors.push_back({i.prim, by});
      v = unrounded(rest);
    }
    std::ranges::reverse(found_.factors);
    return true;
  }

  bool find_exponent() {
    std::vector<ValueId> wanted{found_.weight};
    if (found_.has_top) {
      const auto operands = match(program_, unrounded(found_.weight), pointwise_formula(Op::exp, DType::f32));
      if (!operands) return false;
      const Instr& difference = program_[unrounded(operands->at(0))];
      if (difference.prim != Prim::sub || difference.type != DType::f32 || !is_row(difference.b) ||
          is_row(difference.a))
        return false;
      found_.exponent = difference.a, found_.base = difference.b;
      if (needs_[found_.base] != 1u << found_.top) return false;
      wanted = {found_.exponent, kernel_.reductions[found_.top].lifted[0]};
    }
    if (std::ranges::any_of(wanted, [&](ValueId v) { return needs_[v] != 0; })) return false;
    std::vector<bool> used(program_.size());
    for (const ValueId v : wanted) used[v] = true;
    for (ValueId v = static_cast<ValueId>(program_.size()); v-- > 0;) {
      if (!used[v] || is_row(v)) continue;
      for (const ValueId operand : {program_[v].a, program_[v].b, program_[v].c})
        if (operand != kNoValue) used[operand] = true;
    }
    for (ValueId v = 0; v < program_.size(); ++v)
      if (used[v] && !is_row(v)) found_.elements.push_back(v);
    return true;
  }

  const Kernel& kernel_;
  const KernelSchedule& schedule_;
  const ScalarProgram& program_;
  std::vector<unsigned> needs_;  // per value: the reductions that it depends on
  OnlineRows found_{};
  bool has_total_ = false;
};

}  // namespace

std::optional<OnlineRows> online_rows(const Kernel& kernel, const KernelSchedule& schedule) {
  return Search(kernel, schedule).find();
}

}  // namespace fermata::gpu
