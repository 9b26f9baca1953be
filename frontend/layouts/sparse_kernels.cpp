// The kernels of the SparseCOO and SparseCSR keys. Each calls public functions on the parts, which are recorded, fused,
// run and differentiated like anything a user writes; only what depends on where elements lie is worked out at once.
//
// Which pointwise ops have a kernel follows from the op table: those whose formula makes zeros of zeros.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "dispatch/kernel_table.h"
#include "dispatch/registration.h"
#include "dispatch/value.h"
#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

using Tensors = std::span<const Tensor>;
constexpr std::string_view kToDense = "to_dense() returns a dense tensor, which every op accepts";

std::vector<ErrorOperand> lines(Tensors tensors) {
  constexpr std::string_view kPair[] = {"lhs", "rhs"};
  std::vector<ErrorOperand> result;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    result.push_back({tensors.size() == 2 ? kPair[i] : "x", to_string(tensors[i].dtype(), tensors[i].shape()),
                      sparse_payload(tensors[i]) != nullptr ? "sparse" : ""});
  return result;
}

[[noreturn]] void refuse(const Call& call, int code, const std::string& what, Tensors tensors) {
  throw UnsupportedError(code, format_error(code, "UnsupportedError", fmt::format("{}: {}", call.entry.name, what),
                                            lines(tensors), call.where, kToDense));
}
[[noreturn]] void throw_missing(const Call& call, Tensors tensors) {
  const std::size_t cell = call.keys.cell();
  refuse(call, 2001,
         fmt::format("no kernel for {}/{}", kFunctionalityNames[cell / 8 - 1],
                     kBackendNames[static_cast<std::size_t>(call.keys.backend())]),
         tensors);
}

/// The same positions with other values.
Tensor with_values(const SparsePayload& x, const SparseStructure& structure, const Tensor& values,
                   std::shared_ptr<const SparseStructure> shared, Location where) {
  if (!structure.target.defined())
    return x.is_csr() ? make_csr(x.pattern, values, x.sizes, std::move(shared))
                      : make_coo(structure.indices, values, x.sizes, std::move(shared));
  auto unique = std::make_shared<SparseStructure>(structure);
  unique->target = Tensor();
  return x.is_csr() ? make_csr(pattern_of(*unique, x.sizes, where), values, x.sizes, unique)
                    : make_coo(unique->indices, values, x.sizes, unique);
}

/// Each position once, then f on the values: what ops need that are not linear.
template <class F> Tensor map_values(const SparsePayload& x, const char* reason, Location where, F&& f) {
  const auto structure = structure_of(x, reason, where);
  return with_values(x, *structure, f(ordered_values(x, *structure, where)), structure, where);
}
/// f on the values as they are: for linear ops, which need not know where they lie.
template <class F> Tensor map_linear(const SparsePayload& x, F&& f) {
  const Tensor values = f(x.values);
  return x.is_csr() ? make_csr(x.pattern, values, x.sizes, known_structure(x))
                    : make_coo(x.indices, values, x.sizes, known_structure(x));
}

/// What the op makes of zeros, and of a host number where there is one, at a promoted dtype. Nothing where it does
/// not take the dtype.
std::optional<double> at_zero(Op op, DType promoted, std::size_t operands, std::size_t scalar_at,
                              const Scalar* scalar) {
  const auto rule = apply_rule(info(op).rule, promoted);
  if (!rule) return std::nullopt;
  const DType compute = compute_dtype(rule->operand);
  const Formula& formula = pointwise_formula(op, compute);
  std::vector<std::uint64_t> parameters(operands, 0);
  if (scalar != nullptr) parameters[scalar_at] = scalar_bits(*scalar, compute);
  FormulaInterpreter run(formula);
  const std::uint64_t bits = run(parameters)[0];
  return std::bit_cast<double>(convert_slot(formula.program[formula.results[0]].type, DType::f64, bits));
}

void require_zero(const Call& call, std::optional<double> result, Tensors tensors) {
  if (result && *result != 0)
    refuse(call, 2021, fmt::format("the zeros of a sparse tensor would become {}", *result), tensors);
}

Tensor run_unary(const Call& call, const Operand& a) {
  const SparsePayload& x = require_sparse(call.entry.name, a.tensor(), call.where);
  const auto apply = [&](const Tensor& values) {
    return Dispatcher<UnaryCall>::call(call.entry, call.where, Operand(values, call.where));
  };
  require_zero(call, at_zero(call.entry.op, x.values.dtype(), 1, 0, nullptr), {&a.tensor(), 1});
  if (call.entry.op == Op::negative) return map_linear(x, apply);
  return map_values(x, "an op on a sparse tensor", call.where, apply);
}

Tensor call_binary(const Call& call, const Operand& a, const Operand& b) {
  return Dispatcher<BinaryCall>::call(call.entry, call.where, a, b);
}

/// A sparse tensor and one number, on either side.
Tensor with_number(const Call& call, const Tensor& sparse, const Operand& number, bool number_first) {
  const SparsePayload& x = *sparse_payload(sparse);
  const auto apply = [&](const Tensor& values) {
    const Operand own(values, call.where);
    return number_first ? call_binary(call, number, own) : call_binary(call, own, number);
  };
  const Op op = call.entry.op;
  if (op == Op::multiply) return map_linear(x, apply);
  const Scalar scalar = number.scalar();
  const DType promoted = promote_scalar(x.values.dtype(), scalar.kind);
  require_zero(call, at_zero(op, promoted, 2, number_first ? 0 : 1, &scalar), {&sparse, 1});
  return map_values(x, "an op on a sparse tensor", call.where, apply);
}

/// Positions of either, with the values of both there.
Tensor on_union(const Call& call, const SparsePayload& a, const SparsePayload& b) {
  const Location where = call.where;
  const auto sa = structure_of(a, "an op on sparse tensors", where),
             sb = structure_of(b, "an op on sparse tensors", where);
  std::vector<std::int64_t> all;
  std::ranges::set_union(sa->positions, sb->positions, std::back_inserter(all));
  const auto spread = [&](const SparsePayload& x, const SparseStructure& s) {
    std::vector<std::int64_t> places;
    for (const std::int64_t p : s.positions) places.push_back(std::ranges::lower_bound(all, p) - all.begin());
    const Tensor values = ordered_values(x, s, where);
    const bool truth = values.dtype() == DType::boolean;  // index_add takes numbers
    const Tensor numbers = truth ? astype(values, DType::u8, where) : values;
    const Tensor nothing = zeros({static_cast<std::int64_t>(all.size())}, numbers.dtype(), where);
    const Tensor spread_out = index_add(nothing, tensor(places, where), numbers, 0, where);
    return truth ? astype(spread_out, DType::boolean, where) : spread_out;
  };
  const Tensor values = call_binary(call, {spread(a, *sa), where}, {spread(b, *sb), where});
  const auto structure = structure_of_positions(all, a.sizes, where);
  return a.is_csr() && b.is_csr() ? make_csr(pattern_of(*structure, a.sizes, where), values, a.sizes, structure)
                                  : make_coo(structure->indices, values, a.sizes, structure);
}

/// Positions of both.
Tensor on_intersection(const Call& call, const SparsePayload& a, const SparsePayload& b) {
  const Location where = call.where;
  const auto sa = structure_of(a, "an op on sparse tensors", where),
             sb = structure_of(b, "an op on sparse tensors", where);
  std::vector<std::int64_t> both;
  std::ranges::set_intersection(sa->positions, sb->positions, std::back_inserter(both));
  const auto chosen = [&](const SparsePayload& x, const SparseStructure& s) {
    std::vector<std::int64_t> places;
    for (const std::int64_t p : both) places.push_back(std::ranges::lower_bound(s.positions, p) - s.positions.begin());
    return take(ordered_values(x, s, where), tensor(places, where), 0, where);
  };
  const Tensor values = call_binary(call, {chosen(a, *sa), where}, {chosen(b, *sb), where});
  const auto structure = structure_of_positions(both, a.sizes, where);
  return a.is_csr() && b.is_csr() ? make_csr(pattern_of(*structure, a.sizes, where), values, a.sizes, structure)
                                  : make_coo(structure->indices, values, a.sizes, structure);
}

Tensor two_sparse(const Call& call, const Tensor& lhs, const Tensor& rhs) {
  const SparsePayload &a = *sparse_payload(lhs), &b = *sparse_payload(rhs);
  const Location where = call.where;
  const Tensor both[] = {lhs, rhs};
  if (a.sizes != b.sizes)
    throw ShapeError(
        1051, format_error(1051, "ShapeError", fmt::format("{}: sparse tensors do not broadcast", call.entry.name),
                           lines(both), where, kToDense));
  const Op op = call.entry.op;
  if ((op == Op::add || op == Op::subtract) && !a.is_csr() && !b.is_csr()) {
    const Tensor right = op == Op::add ? b.values : negative({b.values, where});
    return make_coo(concat({a.indices, b.indices}, 1, where), concat({a.values, right}, 0, where), a.sizes);
  }
  if (op == Op::multiply) return on_intersection(call, a, b);
  if (const auto promoted = promote(lhs.dtype(), rhs.dtype()))
    require_zero(call, at_zero(op, *promoted, 2, 0, nullptr), both);
  return on_union(call, a, b);
}

/// dense + sparse, or dense - sparse, or sparse - dense: everything is stored.
Tensor dense_sum(const Call& call, const SparsePayload& x, const Tensor& dense, bool sparse_first) {
  const Location where = call.where;
  const DType dtype = promote(x.values.dtype(), dense.dtype()).value_or(dense.dtype());
  const bool subtracts = call.entry.op == Op::subtract;
  const StoredElements stored = stored_elements(x, where);
  Tensor base = astype(dense, dtype, where), values = astype(stored.values, dtype, where);
  if (subtracts) (sparse_first ? base : values) = negative({sparse_first ? base : values, where});
  const Tensor flat = flat_positions(stored.indices, dense_strides(x.sizes), where);
  const Tensor line = reshape(broadcast_to(base, x.sizes, where), -1, where);
  return reshape(index_add(line, flat, values, 0, where), x.sizes, where);
}

/// The elements of a dense tensor that meet the stored ones.
Tensor gathered(const Tensor& dense, const StoredElements& stored, const Shape& sizes, Location where) {
  const Shape own = dense.shape(), dense_own = dense_strides(own);
  Shape strides;
  const unsigned lead = sizes.rank() - own.rank();
  for (unsigned i = 0; i < sizes.rank(); ++i)
    strides.push_back(i < lead || own[i - lead] == 1 ? 0 : dense_own[i - lead]);
  return take(reshape(dense, -1, where), flat_positions(stored.indices, strides, where), 0, where);
}

Tensor with_dense(const Call& call, const Tensor& sparse, const Tensor& dense, bool sparse_first) {
  const SparsePayload& x = *sparse_payload(sparse);
  const Tensor both[] = {sparse_first ? sparse : dense, sparse_first ? dense : sparse};
  const auto common = broadcast_shapes(x.sizes, dense.shape());
  if (!common || *common != x.sizes)
    throw ShapeError(
        1051, format_error(1051, "ShapeError", fmt::format("{}: sparse tensors do not broadcast", call.entry.name),
                           lines(both), call.where, kToDense));
  const Op op = call.entry.op;
  if (op == Op::add || op == Op::subtract) return dense_sum(call, x, dense, sparse_first);
  if (op != Op::multiply) throw_missing(call, both);
  const StoredElements stored = stored_elements(x, call.where);
  const Tensor other = gathered(dense, stored, x.sizes, call.where);
  const Tensor values = multiply({stored.values, call.where}, other);
  if (!x.is_csr()) return make_coo(x.indices, values, x.sizes, known_structure(x));
  const auto structure = known_structure(x);
  return with_values(x, *structure, values, structure, call.where);
}

Tensor run_binary(const Call& call, const Operand& a, const Operand& b) {
  if (!a.is_tensor()) return with_number(call, b.tensor(), a, true);
  if (!b.is_tensor()) return with_number(call, a.tensor(), b, false);
  const bool left = sparse_payload(a.tensor()) != nullptr, right = sparse_payload(b.tensor()) != nullptr;
  if (left && right) return two_sparse(call, a.tensor(), b.tensor());
  const Tensor both[] = {a.tensor(), b.tensor()};
  if (!left && !right) throw_missing(call, both);
  return left ? with_dense(call, a.tensor(), b.tensor(), true) : with_dense(call, b.tensor(), a.tensor(), false);
}

Tensor run_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  std::vector<Tensor> tensors;
  for (const Operand* o : {&a, &b, &c})
    if (o->is_tensor()) tensors.push_back(o->tensor());
  throw_missing(call, tensors);
}

const SparsePayload& part(const Call& call, Tensors x) {
  const SparsePayload* payload = sparse_payload(x[0]);
  if (payload == nullptr) throw_missing(call, x);
  return *payload;
}

/// Adds stored values to the elements that `strides` send them to.
Tensor added_up(const StoredElements& stored, const Shape& strides, const Shape& sizes, DType dtype, Location where) {
  const Tensor nothing = zeros({element_count(sizes)}, dtype, where);
  const Tensor flat = flat_positions(stored.indices, strides, where);
  return reshape(index_add(nothing, flat, astype(stored.values, dtype, where), 0, where), sizes, where);
}

Tensor run_to_dense(const Call& call, Tensors x, const Attributes&) {
  const SparsePayload& s = part(call, x);
  const Location where = call.where;
  if (s.values.dtype() != DType::boolean)
    return added_up(stored_elements(s, where), dense_strides(s.sizes), s.sizes, s.values.dtype(), where);
  return not_equal({added_up(stored_elements(s, where), dense_strides(s.sizes), s.sizes, DType::i64, where), where}, 0);
}
Tensor hand_back(const Call&, Tensors x, const Attributes&) { return x[0]; }

Tensor run_cast(const Call& call, Tensors x, const Attributes& attributes) {
  const DType to = attributes.wanted.dtype, from = x[0].dtype();
  const auto apply = [&](const Tensor& values) { return astype(values, to, call.where); };
  // Rounding a sum is not summing what is rounded.
  if (is_floating(to) && byte_size(to) >= byte_size(from)) return map_linear(part(call, x), apply);
  return map_values(part(call, x), "an op on a sparse tensor", call.where, apply);
}

Tensor run_copy(const Call& call, Tensors x, const Attributes&) {
  return map_linear(part(call, x), [&](const Tensor& values) { return copy(values, call.where); });
}

/// The result is dense: it has few zeros.
Tensor run_sum(const Call& call, Tensors x, const Attributes& attributes) {
  const SparsePayload& s = part(call, x);
  const auto reduction = attributes_of<ops::Reduction>(attributes);
  Shape kept, shown;
  for (unsigned i = 0; i < s.sizes.rank(); ++i) {
    const bool reduced = reduction.is_reduced(i);
    kept.push_back(reduced ? 1 : s.sizes[i]);
    if (!reduced || reduction.keepdims.value) shown.push_back(reduced ? 1 : s.sizes[i]);
  }
  Shape strides = dense_strides(kept);
  for (unsigned i = 0; i < s.sizes.rank(); ++i)
    if (reduction.is_reduced(i)) strides[i] = 0;
  const auto rule = apply_rule(info(Op::sum).rule, s.values.dtype());
  const Location where = call.where;
  if (element_count(kept) == 1) return reshape(sum(s.values, {}, false, where), shown, where);
  return reshape(added_up(stored_elements(s, where), strides, kept, rule->result, where), shown, where);
}

Tensor run_permute(const Call& call, Tensors x, const Attributes& attributes) {
  const SparsePayload& s = part(call, x);
  const Location where = call.where;
  const TensorType type =
      infer(Op::permute, std::vector{TensorType{x[0].dtype(), s.sizes}}, attributes.integers, {}, where);
  const StoredElements stored = stored_elements(s, where);
  const Integers axes = attributes_of<ops::Permute>(attributes).axes.value;
  const Tensor order = tensor(std::vector<std::int64_t>(axes.begin(), axes.end()), where);
  const Tensor moved = make_coo(take(stored.indices, order, 0, where), stored.values, type.shape);
  return s.is_csr() ? to_sparse_csr(moved, where) : moved;
}

Tensor run_matmul(const Call& call, Tensors x, const Attributes&) {
  const SparsePayload *left = sparse_payload(x[0]), *right = sparse_payload(x[1]);
  infer(Op::matmul, std::vector{type_of(x[0]), type_of(x[1])}, {}, {}, call.where);
  const Tensor& dense = x[left != nullptr ? 1 : 0];
  if ((left != nullptr) == (right != nullptr)) refuse(call, 2020, "products of two sparse matrices have no kernel", x);
  if (x[0].rank() != 2 || x[1].rank() != 2) refuse(call, 2020, "sparse matrices cannot have batch axes", x);
  if (left != nullptr) return sparse_matmul(*left, false, dense, call.where);
  return transpose(sparse_matmul(*right, true, transpose(dense, 0, 1, call.where), call.where), 0, 1, call.where);
}

/// x times the transpose of a sparse weight.
Tensor run_linear(const Call& call, Tensors x, const Attributes&) {
  const SparsePayload* weight = sparse_payload(x[1]);
  const Location where = call.where;
  if (weight == nullptr || sparse_payload(x[0]) != nullptr) throw_missing(call, x);
  const DType dtype = promote(x[0].dtype(), x[1].dtype()).value_or(x[0].dtype());
  const Tensor rows = reshape(astype(x[0], dtype, where), {-1, weight->sizes[1]}, where);
  const Tensor product = transpose(sparse_matmul(*weight, false, transpose(rows, 0, 1, where), where), 0, 1, where);
  Shape shape = x[0].shape();
  shape[shape.rank() - 1u] = weight->sizes[0];
  const Tensor result = reshape(product, shape, where);
  return x.size() > 2 ? add({result, where}, x[2]) : result;
}

Tensor refuse_general(const Call& call, Tensors x, const Attributes&) { throw_missing(call, x); }

struct GeneralRow {
  Op op;
  Dispatcher<GeneralCall>::Kernel run;
};
constexpr GeneralRow kGeneralRows[] = {
    {Op::to_dense, &run_to_dense}, {Op::cast, &run_cast},     {Op::copy, &run_copy},    {Op::sum, &run_sum},
    {Op::permute, &run_permute},   {Op::matmul, &run_matmul}, {Op::linear, &run_linear}};

/// Custom operators that are not pointwise.
void refuse_boxed(const Call& call, Stack& stack) { throw_missing(call, tensors_of(stack)); }

}  // namespace

void register_sparse_kernels() {
  for (const Functionality layout : {Functionality::sparse_coo, Functionality::sparse_csr}) {
    const RegistrationKey here = RegistrationKey::cell(layout, BackendKey::cpu);
    set_family_kernels(here, {&run_unary, &run_binary, &run_ternary, &refuse_general});
    for (const GeneralRow& row : kGeneralRows) set_kernel<GeneralCall>(row.op, here, row.run);
    set_family_kernel<GeneralCall>(Family::composite, here, &refuse_general);  // its parts would fail one by one
    register_fallback({.boxed = &refuse_boxed, .where = std::source_location::current(), .key = here}).keep();
  }
  const RegistrationKey parts = RegistrationKey::composite();
  set_kernel<GeneralCall>(Op::to_dense, parts, &hand_back);
}

}  // namespace fermata
