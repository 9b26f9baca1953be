// See graph.h and graph_attributes.h.
#include "ir/graph.h"

#include <algorithm>

#include "ir/external_op.h"
#include "ir/graph_attributes.h"

namespace fermata {

std::vector<std::uint32_t> count_uses(const Graph& graph) {
  std::vector<std::uint32_t> uses(graph.nodes.size(), 0);
  for (const GraphNode& node : graph.nodes)
    for (const GraphOperand& operand : node.operands)
      if (!operand.is_scalar()) ++uses[operand.value];
  for (const ValueId output : graph.outputs) ++uses[output];
  return uses;
}

DType operand_dtype(const Graph& graph, const GraphNode& node) {
  if (family(node.op) == Family::random) return DType::u64;
  if (info(node.op).rule == DTypeRule::choose) return node.dtype;
  const auto tensor = std::find_if(node.operands.begin(), node.operands.end(),
                                   [](const GraphOperand& operand) { return !operand.is_scalar(); });
  if (tensor == node.operands.end()) return node.dtype;
  const DType dtype = graph.nodes[tensor->value].dtype;
  const auto rule = apply_rule(info(node.op).rule, dtype);
  return rule ? rule->operand : dtype;
}

std::span<const AttributeField> attribute_fields(Op op) {
  using enum AttributeKind;
  static constexpr AttributeField kReduce[] = {{"axes", axes}, {"keepdims", boolean}}, kAxis[] = {{"axis", integer}},
                                  kAxes[] = {{"axes", axes}}, kPermute[] = {{"axes", list}},
                                  kSlice[] = {{"start", list}, {"step", list}},
                                  kUpdate[] = {{"offset", integer}, {"strides", list}},
                                  kExternal[] = {{"arguments", list}}, kPacked[] = {{"columns", integer}},
                                  kSort[] = {{"axis", integer}, {"descending", boolean}},
                                  kTopK[] = {{"axis", integer}, {"k", integer}, {"largest", boolean}},
                                  kSearch[] = {{"right", boolean}},
                                  kSparse[] = {{"columns", integer}, {"transposed", boolean}},
                                  kUnfold[] = {{"axis", integer},
                                               {"size", integer},
                                               {"step", integer},
                                               {"dilation", integer}},
                                  kFold[] = {{"axis", integer}, {"step", integer}, {"dilation", integer}},
                                  kConvolution[] = {{"groups", integer},
                                                    {"strides", list},
                                                    {"padding", list},
                                                    {"padding_end", list},
                                                    {"dilation", list}},
                                  kUnpack[] = {{"offset", integer}}, kUpper[] = {{"upper", boolean}},
                                  kComplete[] = {{"complete", boolean}}, kFull[] = {{"full", boolean}},
                                  kTriangle[] = {{"upper", boolean}, {"unit", boolean}},
                                  kFft[] = {{"axis", integer}, {"inverse", boolean}},
                                  kIrfft[] = {{"axis", integer}, {"count", integer}};
  if (family(op) == Family::reduce) return kReduce;
  if (family(op) == Family::external) return kExternal;
  switch (op) {
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name:
#include "ir/ops.def"
    case Op::iota:
    case Op::concat:
    case Op::take:
    case Op::rfft:
    case Op::index_add:
    case Op::gather:
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum: return kAxis;
    case Op::unfold: return kUnfold;
    case Op::fold: return kFold;
    case Op::convolution:
    case Op::convolution_data_gradient:
    case Op::convolution_weight_gradient: return kConvolution;
    case Op::expand_dims:
    case Op::squeeze: return kAxes;
    case Op::permute: return kPermute;
    case Op::slice: return kSlice;
    case Op::update: return kUpdate;
    case Op::matmul_packed: return kPacked;
    case Op::unpack: return kUnpack;
    case Op::csr_matmul: return kSparse;
    case Op::sort:
    case Op::argsort: return kSort;
    case Op::top_k_indices: return kTopK;
    case Op::searchsorted: return kSearch;
    case Op::cholesky: return kUpper;
    case Op::solve_triangular: return kTriangle;
    case Op::qr: return kComplete;
    case Op::svd: return kFull;
    case Op::fft: return kFft;
    case Op::irfft: return kIrfft;
    default: return {};
  }
}

std::optional<std::size_t> attribute_list_length(Op op, std::size_t count) {
  const auto fields = attribute_fields(op);
  const auto lists = static_cast<std::size_t>(std::count_if(
      fields.begin(), fields.end(), [](const AttributeField& f) { return f.kind == AttributeKind::list; }));
  const std::size_t single = fields.size() - lists;
  if (count < single || (lists == 0 ? count != single : (count - single) % lists != 0)) return std::nullopt;
  return lists == 0 ? 0 : (count - single) / lists;
}

std::size_t scalar_argument_count(Op op) {
  if (family(op) == Family::random || effect_of(op) == Effect::random) return 2;
  return op == Op::full ? 1 : 0;
}

}  // namespace fermata
