// Images: boxes of them.
#include <array>

#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

constexpr std::array<OperatorRow, 0> kRows{};

}  // namespace

Rows image_rows() { return kRows; }

}  // namespace fermata::onnx
