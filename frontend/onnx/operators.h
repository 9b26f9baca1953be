// The table of operators: one list of rows for each family, beside the functions.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "frontend/onnx/graph.h"

namespace fermata::onnx {

using Rows = std::span<const OperatorRow>;
Rows pointwise_rows();
Rows reduction_rows();
Rows movement_rows();
Rows indexing_rows();
Rows product_rows();
Rows window_rows();
Rows normalization_rows();
Rows quantized_rows();
Rows attention_rows();
Rows recurrent_rows();
Rows control_rows();
Rows sequence_rows();
Rows creation_rows();
Rows signal_rows();
Rows image_rows();
Rows refused_rows();

/// The row of an operator of ai.onnx; null if there is none of that name.
const OperatorRow* find_operator(std::string_view name);
/// All rows by name.
std::vector<const OperatorRow*> all_operators();

}  // namespace fermata::onnx
