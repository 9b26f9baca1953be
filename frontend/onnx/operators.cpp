// See operators.h.
#include "frontend/onnx/operators.h"

#include <algorithm>
#include <map>

namespace fermata::onnx {
namespace {

const std::map<std::string_view, const OperatorRow*>& table() {
  static const std::map<std::string_view, const OperatorRow*> rows = [] {
    std::map<std::string_view, const OperatorRow*> all;
    for (const Rows family :
         {pointwise_rows(), reduction_rows(), movement_rows(), indexing_rows(), product_rows(), window_rows(),
          normalization_rows(), quantized_rows(), attention_rows(), recurrent_rows(), control_rows(), sequence_rows(),
          creation_rows(), signal_rows(), image_rows(), refused_rows()})
      for (const OperatorRow& row : family) all.emplace(row.name, &row);
    return all;
  }();
  return rows;
}

}  // namespace

const OperatorRow* find_operator(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

std::vector<const OperatorRow*> all_operators() {
  std::vector<const OperatorRow*> rows;
  for (const auto& [name, row] : table()) rows.push_back(row);
  return rows;
}

}  // namespace fermata::onnx
