// Operators of ai.onnx that models cannot have here, and why.
#include <array>

#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

constexpr std::string_view kStrings = "tensors of strings do not exist here";
constexpr std::array kRows{
    OperatorRow{"ImageDecoder", nullptr, "decode images before: the operand is a file"},
    OperatorRow{"RegexFullMatch", nullptr, kStrings},
    OperatorRow{"StringConcat", nullptr, kStrings},
    OperatorRow{"StringNormalizer", nullptr, kStrings},
    OperatorRow{"StringSplit", nullptr, kStrings},
};

}  // namespace

Rows refused_rows() { return kRows; }

}  // namespace fermata::onnx
