// Random orders and choices: fermata/random_key.h.
#include <fmt/format.h>

#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/random_key.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

void require_choice(const Tensor& x, std::int64_t count, bool replace, const Tensor& probabilities, Location where) {
  require_defined("choice", x, where);
  const unsigned axis = normalize_axis("choice", 0, type_of(x), where);
  const std::int64_t slices = x.shape()[axis];
  if (count < 0 || (count > 0 && slices == 0) || (!replace && count > slices))
    throw ValueError(
        1341,
        format_error(1341, "ValueError", fmt::format("choice: {} of {} slices without replacement", count, slices),
                     describe(x), where, !replace && slices > 0 ? "replace = true draws slices repeatedly" : ""));
  if (probabilities.defined() && probabilities.shape() != Shape{slices})
    throw ShapeError(
        1032,
        format_error(1032, "ShapeError", fmt::format("choice: requires one probability for each of {} slices", slices),
                     {{"x", to_string(x.dtype(), x.shape()), ""},
                      {"probabilities", to_string(probabilities.dtype(), probabilities.shape()), ""}},
                     where));
}

/// Which slices.
Tensor positions(const Tensor& key, std::int64_t slices, std::int64_t count, bool replace, const Tensor& probabilities,
                 Location where) {
  if (!probabilities.defined())
    return replace ? randint(key, 0, std::max<std::int64_t>(slices, 1), {count}, DType::i64, where)
                   : slice(permutation(key, slices, where), -1, 0, count, 1, where);
  const vjp::LineGuard line(where);
  const DType dtype = is_floating(probabilities.dtype()) ? compute_dtype(probabilities.dtype()) : DType::f32;
  const vjp::VjpTensor logits = vjp::log(vjp::cast(probabilities, dtype));
  if (replace) return categorical(key, vjp::broadcast_to(logits, {count, slices}).tensor(), -1, where);
  const Tensor noisy = vjp::add(logits, gumbel(key, {slices}, dtype, where)).tensor();
  return slice(argsort(noisy, -1, true, where), -1, 0, count, 1, where);
}

}  // namespace

Tensor permutation(const Tensor& key, std::int64_t count, Location where) {
  return argsort(random_bits(key, {count}, where), -1, false, where);
}

Tensor shuffle(const Tensor& key, const Tensor& x, std::int64_t axis, Location where) {
  require_defined("shuffle", x, where);
  const unsigned along = normalize_axis("shuffle", axis, type_of(x), where);
  return take(x, permutation(key, x.shape()[along], where), static_cast<std::int64_t>(along), where);
}

Tensor choice(const Tensor& key, const Tensor& x, std::int64_t count, bool replace, const Tensor& probabilities,
              Location where) {
  require_choice(x, count, replace, probabilities, where);
  return take(x, positions(key, x.shape()[0], count, replace, probabilities, where), 0, where);
}

}  // namespace fermata
