// See build_kernel.h.
#include "passes/build_kernel.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "ir/complex_form.h"
#include "ir/error.h"
#include "ir/irregular_op.h"
#include "ir/narrow_values.h"
#include "passes/dimensions.h"
#include "passes/fuse.h"
#include "passes/index_map.h"

namespace fermata {
namespace {

/// A member computed under one index map, and where its operands come from.
struct Instance {
  IndexMap map;
  std::vector<std::int32_t>
      operands;                  // per operand: >= 0 an instance (flat number), < 0: access -1 - k; scalars unused
  ValueId result = kNoValue;     // in the scalar program, in the compute dtype
  ValueId imaginary = kNoValue;  // of a complex member, whose real part is the result
};

struct SymbolicAccess {
  KernelSource source;
  IndexMap map;
  DType dtype;
  Half half;  // of a complex value there are two accesses, the real parts first
  bool gathered = false, guarded = false;
  std::uint16_t first_unit_axis = 0;  // elements along axes before it have other parts of a whole between them
};

class KernelBuilder {
 public:
  KernelBuilder(const Program& program, const Dimensions& dims, const Group& group, const std::vector<ValueId>& stored)
      : program_(program),
        g_(program.graph),
        group_(group),
        stored_(stored),
        dims_(dims),
        rank_(g_.nodes[group.domain].shape.rank()) {
    for (std::size_t i = 0; i < group.members.size(); ++i) member_[group.members[i]] = i;
    instances_of_.resize(group.members.size());
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (group.inlined[i]) continue;
      instances_of_[i].push_back(add_instance(home_map(program, group.members[i])));
    }
  }

  BuiltKernel build() {
    demand();
    emit();
    store();
    lay_out();
    built_.domain_record = g_.nodes[group_.domain].record;
    built_.ns_per_point = estimate();
    return std::move(built_);
  }

 private:
  IndexMap home_map(const Program& program, ValueId v) const {
    std::vector<std::int8_t> axes;
    if (!home_axes(program, dims_, group_, v, axes)) throw_internal("a member of a group has no place in its domain");
    IndexMap map;
    for (const std::int8_t a : axes) map.axes.push_back({a, true, true});
    const unsigned own = g_.nodes[v].shape.rank();
    const bool row = std::find(axes.begin(), axes.end(), -1) != axes.end();
    if (row && own < rank_) map.path.push_back({PathStep::Kind::insert, 0, group_.reduced});
    if (row) map.path.push_back({PathStep::Kind::stretch, g_.nodes[group_.domain].record, 0});
    return map;
  }
  std::uint32_t add_instance(IndexMap map) {
    instances_.push_back({std::move(map), {}, kNoValue});
    return static_cast<std::uint32_t>(instances_.size() - 1);
  }

  // ---- Which members are needed under which maps: from the last member to the first
  // -----------------------------------

  void demand() {
    for (std::size_t i = group_.members.size(); i-- > 0;)
      for (std::size_t j = 0; j < instances_of_[i].size(); ++j) demand_operands(group_.members[i], instances_of_[i][j]);
  }

  void demand_operands(ValueId v, std::uint32_t instance) {
    const GraphNode& n = g_.nodes[v];
    const bool reduction = family(n.op) == Family::reduce;
    const IndexMap at = reduction ? identity_map(rank_) : instances_[instance].map;
    std::vector<std::int32_t> operands;
    for (std::size_t k = 0; k < n.operands.size(); ++k) {
      if (n.operands[k].is_scalar()) {
        operands.push_back(0);
        continue;
      }
      const auto map = into_operand(g_, v, at, k);
      auto followed = map ? follow_views(g_, n.operands[k].value, *map) : std::nullopt;
      if (!followed) throw_internal("a view was fused that cannot be folded");
      operands.push_back(reach(followed->source, std::move(followed->map)));
      if (is_gathered(n, k)) accesses_[static_cast<std::size_t>(-1 - operands.back())].gathered = true;
      if (traits(n.op).joins && operands.back() < 0)
        accesses_[static_cast<std::size_t>(-1 - operands.back())].guarded = true;
    }
    instances_[instance].operands = std::move(operands);
  }

  std::int32_t reach(ValueId source, IndexMap map) {
    const auto member = member_.find(source);
    if (member == member_.end())
      return -1 - static_cast<std::int32_t>(add_accesses(KernelSource::Kind::load, source, map));
    auto& known = instances_of_[member->second];
    if (!group_.inlined[member->second]) return static_cast<std::int32_t>(known[0]);
    for (const std::uint32_t i : known)
      if (instances_[i].map == map) return static_cast<std::int32_t>(i);
    known.push_back(add_instance(std::move(map)));
    return static_cast<std::int32_t>(known.back());
  }

  std::size_t add_access(KernelSource::Kind kind, ValueId value, std::uint16_t mask, const IndexMap& map, DType dtype,
                         Half half = Half::none) {
    for (std::size_t i = 0; i < accesses_.size() && kind != KernelSource::Kind::store; ++i) {
      const SymbolicAccess& a = accesses_[i];
      if (a.source.kind == kind && a.source.value == value && a.source.mask == mask && a.half == half && a.map == map)
        return i;
    }
    accesses_.push_back({{kind, value, mask, map.path}, map, dtype, half});
    if (half != Half::none)
      accesses_.back().source.path.push_back(
          {PathStep::Kind::half, 0, static_cast<std::uint16_t>(half == Half::imaginary ? 1 : 0)});
    return accesses_.size() - 1;
  }
  /// Loads or stores of a value. Those of a complex one are added together; returns the first.
  std::size_t add_accesses(KernelSource::Kind kind, ValueId value, const IndexMap& map) {
    const DType dtype = g_.nodes[value].dtype;
    if (!is_complex(dtype)) return add_access(kind, value, 0, map, dtype);
    const std::size_t first = add_access(kind, value, 0, map, real_dtype(dtype), Half::real);
    add_access(kind, value, 0, map, real_dtype(dtype), Half::imaginary);
    return first;
  }

  // ---- The program
  // ------------------------------------------------------------------------------------------------------

  ScalarProgram& program() { return built_.kernel.program; }

  ValueId convert(ValueId v, DType to) {
    if (program()[v].type == to) return v;
    if (is_widened(v, to)) return program()[v].a;
    return program().add({.prim = Prim::convert, .type = to, .a = v});
  }
  /// Rounds to a dtype narrower than what it is computed in, as a store and a load would.
  ValueId round_to(ValueId v, DType dtype) {
    const bool is_exact = compute_dtype(dtype) == dtype || (is_floating(dtype) && is_value_of(program(), v, dtype));
    return is_exact ? v : convert(convert(v, dtype), compute_dtype(dtype));
  }
  /// Whether a value was f16 or bf16 before, which it goes back to unchanged.
  bool is_widened(ValueId v, DType narrow) {
    const Instr& i = program()[v];
    return i.prim == Prim::convert && compute_dtype(narrow) == i.type && narrow != i.type &&
           program()[i.a].type == narrow;
  }
  /// What was rounded to a dtype to become `v`, for ops that may as well be rounded behind: relu is monotone, as
  /// rounding is, and keeps zero.
  ValueId before_rounding(ValueId v, DType dtype) {
    if (!is_floating(dtype) || !is_widened(v, dtype)) return v;
    const Instr& rounded = program()[program()[v].a];
    return rounded.prim == Prim::convert && program()[rounded.a].type == program()[v].type ? rounded.a : v;
  }
  /// The same for the larger or smaller of two, which are monotone, too. Of two zeros they give the first one with its
  /// sign, so what rounds to a zero becomes that zero here.
  ValueId before_rounding_but_zeros(ValueId v, DType dtype) {
    if (dtype != DType::f16 && dtype != DType::bf16) return v;
    const ValueId wide = before_rounding(v, dtype);
    if (wide == v) return v;
    const float largest = dtype == DType::f16 ? 0x1p-25f : 0x1p-134f;  // that rounds to zero
    const auto f32 = [&](Prim prim, ValueId a, ValueId b = kNoValue) {
      return program().add({.prim = prim, .type = DType::f32, .a = a, .b = b});
    };
    const ValueId limit = program().constant(DType::f32, constant_bits(largest)),
                  zero = f32(Prim::mul, wide, program().constant(DType::f32, 0));
    const ValueId is_zero =
        program().add({.prim = Prim::le, .type = DType::boolean, .a = f32(Prim::abs, wide), .b = limit});
    return program().add({.prim = Prim::select, .type = DType::f32, .a = is_zero, .b = zero, .c = wide});
  }
  ValueId load(std::int32_t operand) {
    const auto access = static_cast<std::size_t>(-1 - operand);
    const DType t = accesses_[access].dtype;
    return convert(program().add({.prim = Prim::input, .type = t, .index = static_cast<std::uint16_t>(access)}),
                   compute_dtype(t));
  }
  ValueId scalar(ValueId v, std::uint16_t index, DType dtype) {
    const ScalarSource source{g_.nodes[v].record, index};
    auto at = std::find(built_.scalars.begin(), built_.scalars.end(), source);
    if (at == built_.scalars.end()) {
      built_.scalars.push_back(source);
      built_.kernel.scalars.push_back(dtype);
      at = built_.scalars.end() - 1;
    }
    return program().add(
        {.prim = Prim::scalar, .type = dtype, .index = static_cast<std::uint16_t>(at - built_.scalars.begin())});
  }
  ValueId position(ValueId v, std::uint16_t mask, const IndexMap& map) {
    const std::size_t access = add_access(KernelSource::Kind::position, v, mask, map, DType::i64);
    return program().add({.prim = Prim::offset, .type = DType::i64, .index = static_cast<std::uint16_t>(access)});
  }
  /// The element of operand 0 at the position that operand 1 is.
  ValueId gathered(ValueId v, const Instance& at, unsigned axis) {
    const auto access = static_cast<std::size_t>(-1 - at.operands[0]);
    const std::uint32_t record = g_.nodes[v].record;
    const DType dtype = accesses_[access].dtype;
    const ValueId size = sizes_of_operands(v, 1, axis);
    const ValueId given = convert(operand(v, at, 1), DType::i64);
    const std::size_t number =
        add_access(KernelSource::Kind::position, v, mask_of_positions(g_, v), at.map, DType::i64);
    const ValueId position = program().add({.prim = Prim::position,
                                            .type = DType::i64,
                                            .index = static_cast<std::uint16_t>(number),
                                            .a = given,
                                            .b = size});
    if (std::ranges::find(built_.checked, position, &std::pair<ValueId, ValueId>::first) == built_.checked.end())
      built_.checked.emplace_back(position, v);
    ValueId offset = position;
    if (!steps_by_one(accesses_[access], axis))
      offset = program().add(
          {.prim = Prim::mul, .type = DType::i64, .a = position, .b = step_of_axis(access, record, axis)});
    const ValueId element =
        program().add({.prim = Prim::gather, .type = dtype, .index = static_cast<std::uint16_t>(access), .a = offset});
    return convert(element, compute_dtype(dtype));
  }
  /// The step along the axis that is gathered along.
  ValueId step_of_axis(std::size_t access, std::uint32_t record, unsigned axis) {
    const SymbolicAccess& of = accesses_[access];
    const auto views_end = std::ranges::find(of.map.path, PathStep::Kind::gathered, &PathStep::kind);
    std::vector<PathStep> path(of.map.path.begin(), views_end);
    path.push_back({PathStep::Kind::step, record, static_cast<std::uint16_t>(axis)});
    return number_at(KernelSource::Kind::layout, of.source.value, std::move(path));
  }
  /// The sizes of operands [0, count) of a node along an axis, added.
  ValueId sizes_of_operands(ValueId v, std::size_t count, unsigned axis) {
    std::vector<PathStep> path;
    for (std::size_t k = 0; k < count; ++k)
      path.push_back({k == 0 ? PathStep::Kind::size : PathStep::Kind::plus,
                      g_.nodes[g_.nodes[v].operands[k].value].record, static_cast<std::uint16_t>(axis)});
    return number_at(KernelSource::Kind::position, v, std::move(path));
  }
  /// A number that is the same at all points, found by a path.
  ValueId number_at(KernelSource::Kind kind, ValueId value, std::vector<PathStep> path) {
    IndexMap map;
    map.axes.assign(rank_, {});
    map.path = std::move(path);
    map.path.push_back({PathStep::Kind::stretch, g_.nodes[group_.domain].record, 0});
    const std::size_t number = add_access(kind, value, 0, map, DType::i64);
    return program().add({.prim = Prim::offset, .type = DType::i64, .index = static_cast<std::uint16_t>(number)});
  }
  /// The element of the operand that is at this point; the others are not read there.
  ValueId joined(ValueId v, const Instance& at, unsigned axis) {
    const std::size_t parts = g_.nodes[v].operands.size();
    const ValueId index = position(v, static_cast<std::uint16_t>(1u << axis), at.map);
    // Of each part where it begins, and where the last one ends: nothing is before the first one, or behind the last.
    std::vector<ValueId> bounds{program().constant(DType::i64, constant_bits(INT64_MIN))};
    for (std::size_t k = 1; k < parts; ++k) bounds.push_back(sizes_of_operands(v, k, axis));
    bounds.push_back(program().constant(DType::i64, constant_bits(INT64_MAX)));
    ValueId result = kNoValue;
    for (std::size_t k = parts; k-- > 0;) {
      const ValueId element = part(at.operands[k], index, bounds[k], bounds[k + 1]);
      if (result == kNoValue) {
        result = element;
        continue;
      }
      const ValueId is_here = program().add({.prim = Prim::lt, .type = DType::boolean, .a = index, .b = bounds[k + 1]});
      result = program().add(
          {.prim = Prim::select, .type = program()[element].type, .a = is_here, .b = element, .c = result});
    }
    return result;
  }
  ValueId part(std::int32_t operand, ValueId index, ValueId begin, ValueId end) {
    if (operand >= 0) return instances_[static_cast<std::size_t>(operand)].result;
    const auto access = static_cast<std::uint16_t>(-1 - operand);
    const DType t = accesses_[access].dtype;
    return convert(
        program().add({.prim = Prim::guarded_input, .type = t, .index = access, .a = index, .b = begin, .c = end}),
        compute_dtype(t));
  }
  /// Whether neighbors along an axis that is gathered along are neighbors in memory whatever the sizes: it is the last
  /// one of a dense buffer, or of a reshape of one.
  bool steps_by_one(const SymbolicAccess& a, unsigned axis) const {
    const auto views = std::ranges::find(a.map.path, PathStep::Kind::gathered, &PathStep::kind) - a.map.path.begin();
    return is_dense(a) && !has_channels_last(a) && views == (a.map.reshaped ? 1 : 0) &&
           next_axis(a, static_cast<int>(axis)) == static_cast<int>(g_.nodes[shape_value(a)].shape.rank());
  }
  ValueId operand(ValueId v, const Instance& at, std::size_t k) {
    const GraphNode& n = g_.nodes[v];
    if (n.operands[k].is_scalar()) return scalar(v, n.operands[k].scalar, compute_dtype(operand_dtype(g_, n)));
    const std::int32_t from = at.operands[k];
    return from >= 0 ? instances_[static_cast<std::size_t>(from)].result : load(from);
  }

  void emit() {
    for (std::size_t i = 0; i < group_.members.size(); ++i)
      for (const std::uint32_t j : instances_of_[i]) {
        Instance& at = instances_[j];
        if (is_of_complex(g_, g_.nodes[group_.members[i]])) {
          const ComplexValue made = emit_complex(group_.members[i], at);
          at.result = made.re, at.imaginary = made.im;
        } else {
          at.result = emit_node(group_.members[i], at);
        }
      }
  }

  ComplexValue complex_operand(ValueId v, const Instance& at, std::size_t k) {
    const GraphNode& n = g_.nodes[v];
    if (n.operands[k].is_scalar()) return {scalar(v, n.operands[k].scalar, scalar_dtype(operand_dtype(g_, n)))};
    const std::int32_t from = at.operands[k];
    if (from < 0) {
      const bool has_halves = accesses_[static_cast<std::size_t>(-1 - from)].half != Half::none;
      return {load(from), has_halves ? load(from - 1) : kNoValue};
    }
    const Instance& made = instances_[static_cast<std::size_t>(from)];
    return {made.result, made.imaginary};
  }
  ComplexValue emit_complex(ValueId v, const Instance& at) {
    const GraphNode& n = g_.nodes[v];
    std::vector<ComplexValue> operands;
    for (std::size_t k = 0; k < n.operands.size(); ++k) operands.push_back(complex_operand(v, at, k));
    const std::optional<ComplexValue> made = append_complex(program(), n.op, operand_dtype(g_, n), n.dtype, operands);
    if (!made) throw_internal("an op without a complex form was fused");
    return *made;
  }

  ValueId emit_node(ValueId v, const Instance& at) {
    const GraphNode& n = g_.nodes[v];
    const std::uint16_t all_axes = static_cast<std::uint16_t>((1u << n.shape.rank()) - 1);
    switch (family(n.op)) {
      case Family::unary:
      case Family::binary:
      case Family::ternary: {
        const Formula& f = pointwise_formula(n.op, compute_dtype(operand_dtype(g_, n)));
        std::vector<ValueId> operands;
        for (std::size_t k = 0; k < n.operands.size(); ++k) operands.push_back(operand(v, at, k));
        if (n.op == Op::relu) operands[0] = before_rounding(operands[0], n.dtype);
        if (n.op == Op::maximum || n.op == Op::minimum)
          for (ValueId& operand : operands) operand = before_rounding_but_zeros(operand, n.dtype);
        return round_to(program().inline_program(f.program, operands, f.results)[0], n.dtype);
      }
      case Family::random: {
        const Formula& f = random_formula(n.op, compute_dtype(n.dtype));
        const std::vector<ValueId> operands{position(v, all_axes, at.map), scalar(v, 0, DType::u64),
                                            scalar(v, 1, DType::u64)};
        return round_to(program().inline_program(f.program, operands, f.results)[0], n.dtype);
      }
      case Family::reduce: return emit_reduction(v, at);
      default: break;
    }
    if (traits(n.op).emit == nullptr) throw_internal("an op without an emit form was fused");
    Emitter emitter(*this, v, at);
    return traits(n.op).emit(arguments_of(n), emitter);
  }

  /// What irregular ops ask for their form in a kernel.
  class Emitter final : public KernelEmitter {
   public:
    Emitter(KernelBuilder& builder, ValueId node, const Instance& at) : builder_(builder), node_(node), at_(at) {}
    ValueId operand(std::size_t k) override { return builder_.operand(node_, at_, k); }
    ValueId scalar(std::uint16_t index, DType dtype) override { return builder_.scalar(node_, index, dtype); }
    ValueId position(std::uint16_t axes) override { return builder_.position(node_, axes, at_.map); }
    ValueId convert(ValueId value, DType to) override { return builder_.convert(value, to); }
    ValueId gathered(unsigned axis) override { return builder_.gathered(node_, at_, axis); }
    ValueId joined(unsigned axis) override { return builder_.joined(node_, at_, axis); }
    ValueId rounded(ValueId value) override { return builder_.round_to(value, builder_.g_.nodes[node_].dtype); }

   private:
    KernelBuilder& builder_;
    ValueId node_;
    const Instance& at_;
  };

  ValueId emit_reduction(ValueId v, const Instance& at) {
    const GraphNode& n = g_.nodes[v];
    const DType x = g_.nodes[n.operands[0].value].dtype;
    const DType lifted = compute_dtype(apply_rule(info(n.op).rule, x)->operand);
    const ReduceFormula& f = reduce_formula(n.op, lifted);
    const ValueId index =
        uses_index(f.lift) ? position(n.operands[0].value, group_.reduced, identity_map(rank_)) : kNoValue;
    Reduction reduction{
        .lifted = program().inline_program(f.lift.program, {convert(operand(v, at, 0), lifted), index}, f.lift.results),
        .types = f.types,
        .identity = f.identity,
        .combine = f.combine};
    const auto number = static_cast<std::uint16_t>(built_.kernel.reductions.size());
    built_.kernel.reductions.push_back(std::move(reduction));
    std::vector<ValueId> state;
    for (std::size_t c = 0; c < f.types.size(); ++c)
      state.push_back(program().add({.prim = Prim::reduced, .type = f.types[c], .index = number, .bits = c}));
    return round_to(program().inline_program(f.finish.program, state, f.finish.results)[0], n.dtype);
  }

  static bool uses_index(const Formula& lift) {
    ValueId parameter = kNoValue;
    for (ValueId i = 0; i < lift.program.size(); ++i)
      if (lift.program[i].prim == Prim::parameter && lift.program[i].index == 1) parameter = i;
    return std::find(lift.results.begin(), lift.results.end(), parameter) != lift.results.end();
  }

  /// Values to store; those of one whole after each other, as they lie in it.
  std::vector<ValueId> in_order_of_parts() const {
    std::vector<ValueId> ordered;
    const auto whole = [&](ValueId v) { return part_of(program_, v).whole; };
    for (const ValueId v : stored_) {
      if (std::ranges::find(ordered, v) != ordered.end()) continue;
      const auto begin = static_cast<std::ptrdiff_t>(ordered.size());
      if (whole(v) == kNoValue)
        ordered.push_back(v);
      else
        std::ranges::copy_if(stored_, std::back_inserter(ordered), [&](ValueId u) { return whole(u) == whole(v); });
      std::ranges::stable_sort(ordered.begin() + begin, ordered.end(), {},
                               [&](ValueId u) { return part_of(program_, u).operand; });
    }
    return ordered;
  }

  void store() {
    for (const ValueId v : in_order_of_parts()) {
      const Instance& home = instances_[instances_of_[member_.at(v)][0]];
      IndexMap map = home.map;
      if (const Part part = part_of(program_, v); part.whole != kNoValue)
        for (AxisMap& a : map.axes) a.whole = a.whole && a.axis != static_cast<std::int8_t>(part.axis);
      const std::size_t access = add_accesses(KernelSource::Kind::store, v, map);
      for (std::size_t half = access; half < accesses_.size(); ++half)
        accesses_[half].first_unit_axis = part_of(program_, v).axis;
      const DType dtype = real_dtype(g_.nodes[v].dtype);
      built_.kernel.stores.push_back({static_cast<std::uint16_t>(access), convert(home.result, dtype)});
      if (is_complex(g_.nodes[v].dtype))
        built_.kernel.stores.push_back({static_cast<std::uint16_t>(access + 1), convert(home.imaginary, dtype)});
    }
  }

  // ---- The loop nest
  // ------------------------------------------------------------------------------------------------------

  bool is_reduced(unsigned d) const { return (group_.reduced >> d & 1) != 0; }
  bool is_one(unsigned d) const { return dims_.has_one_element(group_.domain, d); }

  /// The axis of an access that domain axis d moves along, or -1.
  int axis_of(const SymbolicAccess& a, unsigned d) const {
    const int axis = a.map.axes[d].axis;
    if (axis >= 0 && a.source.kind == KernelSource::Kind::position && (a.source.mask >> axis & 1) == 0) return -1;
    return axis;
  }
  static bool has_memory(const SymbolicAccess& a) {
    return a.source.kind == KernelSource::Kind::load || a.source.kind == KernelSource::Kind::store;
  }
  /// The value whose axes the map speaks of.
  ValueId shape_value(const SymbolicAccess& a) const { return a.map.reshaped ? a.map.reshape : a.source.value; }
  bool is_dense(const SymbolicAccess& a) const {
    return a.source.kind != KernelSource::Kind::load || g_.nodes[a.source.value].op != Op::input ||
           g_.nodes[a.source.value].dense;
  }
  /// Whether the buffer has its second axis innermost. Then no reshape stands between it and the domain.
  bool has_channels_last(const SymbolicAccess& a) const {
    return has_memory(a) && is_channels_last(program_, a.source.value);
  }
  /// The domain axis that loop i goes along: where channels are innermost, those that are reduced are before them.
  unsigned axis_of_loop(unsigned i) const {
    if (!group_.channels_last || i == 0) return i;
    if (i + 1 == rank_) return 1;
    const auto reduced = static_cast<unsigned>(std::popcount(static_cast<unsigned>(group_.reduced)));
    const unsigned places = rank_ - 2 - reduced;  // which come after those that are reduced
    return i <= places ? i + 1 + reduced : i + 1 - places;
  }
  /// The next axis of the access after `axis` that is not known to be 1; its rank if there is none.
  int next_axis(const SymbolicAccess& a, int axis) const {
    const ValueId v = shape_value(a);
    const int rank = static_cast<int>(g_.nodes[v].shape.rank());
    do ++axis;
    while (axis < rank && dims_.has_one_element(v, static_cast<unsigned>(axis)));
    return axis;
  }

  /// Whether the axes behind `axis` are all stretched, as those of [C, 1, 1] are by an image: they have one element.
  bool is_stretched_behind(const SymbolicAccess& a, int axis) const {
    const ValueId v = shape_value(a);
    const auto is_view_of_another = [&](const PathStep& s) {
      return s.kind == PathStep::Kind::view && s.record != g_.nodes[v].record;
    };
    if (std::ranges::any_of(a.map.path, is_view_of_another)) return false;  // which may leave axes out
    const int rank = static_cast<int>(g_.nodes[v].shape.rank());
    for (int behind = axis + 1; behind < rank; ++behind)
      if (std::ranges::any_of(a.map.axes, [&](const AxisMap& m) { return m.axis == behind; })) return false;
    return true;
  }

  bool mergeable(unsigned d) const {
    if (is_reduced(d) != is_reduced(d + 1)) return false;
    if (is_one(d) || is_one(d + 1)) return true;
    return std::all_of(accesses_.begin(), accesses_.end(), [&](const SymbolicAccess& a) {
      const int outer = axis_of(a, d), inner = axis_of(a, d + 1);
      if (outer < 0 && inner < 0) return true;
      if (outer < 0 || inner < 0 || !is_dense(a)) return false;
      if (has_channels_last(a) && std::min(outer, inner) < 2) return false;
      const AxisMap &o = a.map.axes[d], &i = a.map.axes[d + 1];
      return next_axis(a, outer) == inner && o.unit && i.unit && i.whole;
    });
  }

  void lay_out() {
    for (unsigned loop = 0; loop < rank_; ++loop) {
      const unsigned d = axis_of_loop(loop);
      // An axis of size 1 between two others hides whether they can merge: only direct neighbors are merged.
      if (loop > 0 && axis_of_loop(loop - 1) + 1 == d && mergeable(d - 1) &&
          !(is_one(d - 1) && d > 1 && !built_.axes.empty() && built_.axes.back().first < d - 1))
        built_.axes.back().last = static_cast<std::uint8_t>(d);
      else
        built_.axes.push_back({static_cast<std::uint8_t>(d), static_cast<std::uint8_t>(d)});
    }
    if (built_.axes.empty()) built_.axes.push_back({1, 0});  // a 0-d domain: one axis of size 1
    Kernel& k = built_.kernel;
    k.rank = static_cast<std::uint8_t>(built_.axes.size());
    for (std::size_t r = 0; r < built_.axes.size(); ++r)
      if (rank_ > 0 && is_reduced(built_.axes[r].first)) k.reduced = static_cast<std::uint16_t>(k.reduced | 1u << r);
    for (const SymbolicAccess& a : accesses_) {
      k.accesses.push_back(lay_out_access(a));
      Access& access = k.accesses.back();
      if (a.half != Half::none && std::exchange(access.unit_stride, false) && (access.axes >> (k.rank - 1u) & 1u) != 0)
        access.half = a.half;
      built_.sources.push_back(a.source);
    }
  }

  Access lay_out_access(const SymbolicAccess& a) const {
    Access out{.dtype = a.dtype,
               .axes = 0,
               .unit_stride = false,
               .address_only = !has_memory(a),
               .gathered = a.gathered,
               .guarded = a.guarded};
    if (rank_ == 0) return out;
    for (std::size_t r = 0; r < built_.axes.size(); ++r)
      for (unsigned d = built_.axes[r].first; d <= built_.axes[r].last; ++d)
        if (axis_of(a, d) >= 0 && (!is_one(d) || is_reduced(d)))
          out.axes = static_cast<std::uint16_t>(out.axes | 1u << r);
    const AxisRun run = built_.axes.back();
    int inner = run.last;
    while (inner > run.first && is_one(static_cast<unsigned>(inner))) --inner;
    const int axis = axis_of(a, static_cast<unsigned>(inner));
    if (axis < a.first_unit_axis || !a.map.axes[static_cast<std::size_t>(inner)].unit) return out;
    if (a.source.kind == KernelSource::Kind::position) {  // counted in row-major order over the axes of its mask
      out.unit_stride = (out.axes >> (built_.axes.size() - 1) & 1u) != 0 && a.source.mask >> (axis + 1) == 0;
      return out;
    }
    if (has_channels_last(a)) {
      out.unit_stride = axis == 1;
      return out;
    }
    const ValueId v = shape_value(a);
    const int rank = static_cast<int>(g_.nodes[v].shape.rank());
    const bool last = is_dense(a) ? next_axis(a, axis) == rank || (group_.channels_last && is_stretched_behind(a, axis))
                                  : axis == rank - 1 && g_.nodes[v].unit_inner && !a.map.reshaped;
    out.unit_stride = last;
    return out;
  }

  /// ns per point of the domain on one core, roughly: by counting primitives.
  double estimate() const {
    double ns = 0.05 * static_cast<double>(accesses_.size());
    for (const Instr& i : built_.kernel.program.instrs())
      ns += i.prim == Prim::div || i.prim == Prim::sqrt || i.prim == Prim::rem ? 0.1 : 0.012;
    return ns;
  }

  const Program& program_;
  const Graph& g_;
  const Group& group_;
  const std::vector<ValueId>& stored_;
  const Dimensions& dims_;
  unsigned rank_;
  std::unordered_map<ValueId, std::size_t> member_;
  std::vector<std::vector<std::uint32_t>> instances_of_;
  std::vector<Instance> instances_;
  std::vector<SymbolicAccess> accesses_;
  BuiltKernel built_;
};

}  // namespace

BuiltKernel build_kernel(const Program& program, const Dimensions& dims, const Group& group,
                         const std::vector<ValueId>& stored) {
  return KernelBuilder(program, dims, group, stored).build();
}

}  // namespace fermata
