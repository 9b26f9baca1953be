// Operators of ai.onnx that models cannot have here, and why.
#include <array>

#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

constexpr std::string_view kStrings = "string tensors are not supported";
constexpr std::array kRows{
    OperatorRow{"ImageDecoder", nullptr, "the input is an image file: decode it before"},
    OperatorRow{"RegexFullMatch", nullptr, kStrings},
    OperatorRow{"StringConcat", nullptr, kStrings},
    OperatorRow{"StringNormalizer", nullptr, kStrings},
    OperatorRow{"StringSplit", nullptr, kStrings},
};

}  // namespace

Rows refused_rows() { return kRows; }

}  // namespace fermata::onnx
