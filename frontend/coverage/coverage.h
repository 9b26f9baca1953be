// The functions that users of NumPy and PyTorch look for, each with a call of it, and what that call is found to do.
//
// The rows (frontend/coverage/*.def) are calls that run: `fermata ops --coverage` prints what came of them, and
// tests/conformance asserts it, against NumPy's results where the row has them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor.h"

namespace fermata::coverage {

using Results = std::vector<Tensor>;

/// One row. `call` is null for a function that is not there; `reason` then says why.
struct Function {
  std::string_view name, section, inputs;
  Results (*call)(std::span<const Tensor> x);
  std::string_view numpy, reason;
};
std::span<const Function> functions();

/// An input of a row: "unit[3,4]".
struct Input {
  std::string domain;
  std::int64_t limit = 0;  // of index(limit)
  Shape sizes;
};
std::vector<Input> parse_inputs(std::string_view inputs);

/// Element i of input k, a double in the domain: from the fractional part of (7 i + 3 k + 1) / phi, or a hash.
double sample_value(const Input& input, std::size_t k, std::int64_t i);
/// The inputs as tensors: those of real domains in `dtype`, indices and bool as what they are.
std::vector<Tensor> sample_inputs(std::span<const Input> inputs, DType dtype);
/// True if the input follows the dtype that is asked for.
bool follows_dtype(const Input& input);
/// The dtype that a row is compared with NumPy in: f64, i64 where an input is of integers, bool where one is of truth
/// values.
DType main_dtype(const Function& function);

/// What is found of one transform.
enum class Verdict : std::uint8_t {
  right,           // the values were compared and agree
  constant,        // the derivative is zero everywhere
  not_applicable,  // no floating input or result
  refused,         // an error said so
  wrong,
};
std::string_view name(Verdict verdict);

struct Finding {
  DTypeSet dtypes;                                      // that the call accepts, for the inputs that follow
  bool eager = false, compiled = false, equal = false;  // the two agree
  Verdict vjp = Verdict::not_applicable, jvp = Verdict::not_applicable, vmap = Verdict::not_applicable;
  std::string trouble;  // messages of what was refused or wrong, the first lines
};
Finding examine(const Function& function);

/// The elements in row-major order; of complex ones both parts.
std::vector<double> values_of(const Tensor& x);
/// The largest difference of two lists of results relative to 1 + |b|, infinite where types differ.
double difference(const Results& a, const Results& b);

}  // namespace fermata::coverage
