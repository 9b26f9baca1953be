// The members of Tensor that are free functions with this tensor as their first operand.
#include "fermata/compare.h"
#include "fermata/composites.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/linalg.h"
#include "fermata/names.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/subscript.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"

namespace fermata {

// Views.
Tensor Tensor::operator[](const Index& index) const { return fermata::select(*this, 0, index.value, index.where); }
Tensor Tensor::operator[](const TensorIndex& index) const {
  return fermata::index(*this, {index.positions}, index.where);
}
Tensor Tensor::index(std::initializer_list<Subscript> subscripts, Location where) const {
  return fermata::index(*this, subscripts, where);
}
Tensor Tensor::slice(std::int64_t axis, std::int64_t start, std::int64_t stop, std::int64_t step,
                     Location where) const {
  return fermata::slice(*this, axis, start, stop, step, where);
}
Tensor Tensor::select(std::int64_t axis, std::int64_t position, Location where) const {
  return fermata::select(*this, axis, position, where);
}
Tensor Tensor::reshape(const IntegerList& sizes, Location where) && {
  return detail::consumed(*this, std::as_const(*this).reshape(sizes, where));
}
Tensor Tensor::reshape(const IntegerList& sizes, Location where) const& {
  return fermata::reshape(*this, sizes, where);
}
Tensor Tensor::flatten(Location where) && { return detail::consumed(*this, std::as_const(*this).flatten(where)); }
Tensor Tensor::flatten(Location where) const& { return fermata::flatten(*this, where); }
Tensor Tensor::permute(const IntegerList& axes, Location where) && {
  return detail::consumed(*this, std::as_const(*this).permute(axes, where));
}
Tensor Tensor::permute(const IntegerList& axes, Location where) const& { return fermata::permute(*this, axes, where); }
Tensor Tensor::transpose(std::int64_t first, std::int64_t second, Location where) && {
  return detail::consumed(*this, std::as_const(*this).transpose(first, second, where));
}
Tensor Tensor::transpose(std::int64_t first, std::int64_t second, Location where) const& {
  return fermata::transpose(*this, first, second, where);
}
Tensor Tensor::swapaxes(std::int64_t first, std::int64_t second, Location where) && {
  return detail::consumed(*this, std::as_const(*this).swapaxes(first, second, where));
}
Tensor Tensor::swapaxes(std::int64_t first, std::int64_t second, Location where) const& {
  return fermata::swapaxes(*this, first, second, where);
}
Tensor Tensor::moveaxis(const IntegerList& source, const IntegerList& destination, Location where) const {
  return fermata::moveaxis(*this, source, destination, where);
}
Tensor Tensor::T(Location where) && { return detail::consumed(*this, std::as_const(*this).T(where)); }
Tensor Tensor::T(Location where) const& {
  require_defined("T", *this, where);
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = rank(); axis-- > 0;) axes.push_back(axis);
  return fermata::permute(*this, axes, where);
}
Tensor Tensor::mT(Location where) && { return detail::consumed(*this, std::as_const(*this).mT(where)); }
Tensor Tensor::mT(Location where) const& { return fermata::transpose(*this, -2, -1, where); }
Tensor Tensor::squeeze(const IntegerList& axes, Location where) && {
  return detail::consumed(*this, std::as_const(*this).squeeze(axes, where));
}
Tensor Tensor::squeeze(const IntegerList& axes, Location where) const& { return fermata::squeeze(*this, axes, where); }
Tensor Tensor::expand_dims(const IntegerList& axes, Location where) && {
  return detail::consumed(*this, std::as_const(*this).expand_dims(axes, where));
}
Tensor Tensor::expand_dims(const IntegerList& axes, Location where) const& {
  return fermata::expand_dims(*this, axes, where);
}
Tensor Tensor::broadcast_to(const IntegerList& sizes, Location where) const {
  return fermata::broadcast_to(*this, sizes, where);
}
Tensor Tensor::expand(const IntegerList& sizes, Location where) const {
  require_defined("expand", *this, where);
  std::vector<std::int64_t> wanted(sizes.begin(), sizes.end());
  const Shape own = shape();
  for (std::size_t i = 0; i < wanted.size() && i < own.size(); ++i)
    if (std::int64_t& size = wanted[wanted.size() - 1 - i]; size == -1) size = own[own.size() - 1 - i];
  return fermata::broadcast_to(*this, wanted, where);
}
Tensor Tensor::flip(const IntegerList& axes, Location where) const { return fermata::flip(*this, axes, where); }
Tensor Tensor::diagonal(std::int64_t offset, Location where) const { return linalg::diagonal(*this, offset, where); }
std::vector<Tensor> Tensor::split(std::int64_t parts, std::int64_t axis, Location where) const {
  return fermata::split(*this, parts, axis, where);
}
std::vector<Tensor> Tensor::split(const IntegerList& sizes, std::int64_t axis, Location where) const {
  return fermata::split(*this, sizes, axis, where);
}
std::vector<Tensor> Tensor::chunk(std::int64_t parts, std::int64_t axis, Location where) const {
  return fermata::chunk(*this, parts, axis, where);
}
std::vector<Tensor> Tensor::unbind(std::int64_t axis, Location where) const {
  return fermata::unstack(*this, axis, where);
}

// Other types and places.
Device Tensor::device(Location where) const { return fermata::device(*this, where); }
Tensor Tensor::astype(DType dtype, Location where) const& { return fermata::astype(*this, dtype, where); }
Tensor Tensor::astype(DType dtype, Location where) && { return fermata::astype(std::move(*this), dtype, where); }
Tensor Tensor::to(Device device, Location where) const& { return fermata::to(*this, device, where); }
Tensor Tensor::cuda(int index, Location where) const { return to(Device(BackendKey::cuda, index), where); }
Tensor Tensor::copy(Location where) const { return fermata::copy(*this, where); }
Tensor Tensor::contiguous(Location where) const {
  require_defined("contiguous", *this, where);
  const ViewInfo* const view = impl_->view;
  const bool dense = view != nullptr ? is_dense(view->sizes, view->strides) : pending() || node()->is_dense_leaf();
  return dense ? *this : fermata::copy(*this, where);
}

// Pointwise.
#define FERMATA_UNARY(name, rule, formula, vjp, doc)                                   \
  Tensor Tensor::name(Location where) const& { return fermata::name({*this, where}); } \
  Tensor Tensor::name(Location where)&& { return fermata::name({std::move(*this), where}); }
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc)                     \
  Tensor Tensor::name(const Operand& other) const& {                               \
    return fermata::name({*this, other.where()}, other.for_last_use());            \
  }                                                                                \
  Tensor Tensor::name(const Operand& other)&& {                                    \
    return fermata::name({std::move(*this), other.where()}, other.for_last_use()); \
  }
#include "ir/ops.def"
Tensor Tensor::clip(const Operand& low, const Operand& high) const& {
  return fermata::clip({*this, low.where()}, low.for_last_use(), high.for_last_use());
}
Tensor Tensor::clip(const Operand& low, const Operand& high) && {
  return fermata::clip({std::move(*this), low.where()}, low.for_last_use(), high.for_last_use());
}
Tensor Tensor::clamp(const Operand& low, const Operand& high) const& {
  return fermata::clip({*this, low.where()}, low.for_last_use(), high.for_last_use());
}
Tensor Tensor::clamp(const Operand& low, const Operand& high) && {
  return fermata::clip({std::move(*this), low.where()}, low.for_last_use(), high.for_last_use());
}
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return fermata::where({condition, other.where()}, {*this, other.where()}, other.for_last_use());
}
Tensor Tensor::masked_fill(const Tensor& mask, const Operand& value) const {
  return fermata::masked_fill(*this, mask, value, value.where());
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan, Location where) const {
  return fermata::isclose(*this, other, rtol, atol, equal_nan, where);
}
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan, Location where) const {
  return fermata::allclose(*this, other, rtol, atol, equal_nan, where);
}

// Along axes.
#define FERMATA_REDUCE(name, rule, vjp, doc)                                           \
  Tensor Tensor::name(const IntegerList& axes, bool keepdims, Location where) const& { \
    return fermata::name(*this, axes, keepdims, where);                                \
  }                                                                                    \
  Tensor Tensor::name(const IntegerList& axes, bool keepdims, Location where)&& {      \
    return fermata::name(std::move(*this), axes, keepdims, where);                     \
  }
#define FERMATA_SCAN(name, monoid, rule, doc)                                                         \
  Tensor Tensor::name(std::optional<std::int64_t> axis, bool include_initial, Location where) const { \
    return fermata::name(*this, axis, include_initial, where);                                        \
  }
#include "ir/ops.def"
Tensor Tensor::mean(const IntegerList& axes, bool keepdims, Location where) const& {
  return fermata::mean(*this, axes, keepdims, where);
}
Tensor Tensor::mean(const IntegerList& axes, bool keepdims, Location where) && {
  return fermata::mean(std::move(*this), axes, keepdims, where);
}
Tensor Tensor::var(const IntegerList& axes, bool keepdims, double correction, Location where) const& {
  return fermata::var(*this, axes, keepdims, correction, where);
}
Tensor Tensor::var(const IntegerList& axes, bool keepdims, double correction, Location where) && {
  return fermata::var(std::move(*this), axes, keepdims, correction, where);
}
Tensor Tensor::stddev(const IntegerList& axes, bool keepdims, double correction, Location where) const& {
  return fermata::stddev(*this, axes, keepdims, correction, where);
}
Tensor Tensor::stddev(const IntegerList& axes, bool keepdims, double correction, Location where) && {
  return fermata::stddev(std::move(*this), axes, keepdims, correction, where);
}
Tensor Tensor::std(const IntegerList& axes, bool keepdims, double correction, Location where) const& {
  return fermata::stddev(*this, axes, keepdims, correction, where);
}
Tensor Tensor::std(const IntegerList& axes, bool keepdims, double correction, Location where) && {
  return fermata::stddev(std::move(*this), axes, keepdims, correction, where);
}
Tensor Tensor::logsumexp(const IntegerList& axes, bool keepdims, Location where) const& {
  return fermata::logsumexp(*this, axes, keepdims, where);
}
Tensor Tensor::logsumexp(const IntegerList& axes, bool keepdims, Location where) && {
  return fermata::logsumexp(std::move(*this), axes, keepdims, where);
}
Tensor Tensor::norm(double ord, const IntegerList& axes, bool keepdims, Location where) const& {
  return linalg::vector_norm(*this, axes, keepdims, ord, where);
}
Tensor Tensor::norm(double ord, const IntegerList& axes, bool keepdims, Location where) && {
  return linalg::vector_norm(std::move(*this), axes, keepdims, ord, where);
}
Tensor Tensor::median(std::optional<std::int64_t> axis, bool keepdims, Location where) const {
  return fermata::median(*this, axis, keepdims, where);
}
Tensor Tensor::softmax(std::int64_t axis, Location where) const& { return fermata::softmax(*this, axis, where); }
Tensor Tensor::softmax(std::int64_t axis, Location where) && { return fermata::softmax(std::move(*this), axis, where); }
Tensor Tensor::log_softmax(std::int64_t axis, Location where) const& {
  return fermata::log_softmax(*this, axis, where);
}
Tensor Tensor::log_softmax(std::int64_t axis, Location where) && {
  return fermata::log_softmax(std::move(*this), axis, where);
}
Tensor Tensor::cumsum(std::optional<std::int64_t> axis, Location where) const {
  return fermata::cumulative_sum(*this, axis, false, where);
}
Tensor Tensor::cumprod(std::optional<std::int64_t> axis, Location where) const {
  return fermata::cumulative_prod(*this, axis, false, where);
}
Tensor Tensor::sort(std::int64_t axis, bool descending, Location where) const {
  return fermata::sort(*this, axis, descending, where);
}
Tensor Tensor::argsort(std::int64_t axis, bool descending, Location where) const {
  return fermata::argsort(*this, axis, descending, where);
}
TopK Tensor::topk(std::int64_t k, std::int64_t axis, bool largest, Location where) const {
  return fermata::topk(*this, k, axis, largest, where);
}
Tensor Tensor::bincount(Location where) const { return fermata::bincount(*this, {}, 0, {}, where); }
std::vector<Tensor> Tensor::nonzero(Location where) const { return fermata::nonzero(*this, {}, where); }
Tensor Tensor::unique(Location where) const { return fermata::unique_values(*this, {}, where); }

// Products and matrices.
Tensor Tensor::matmul(const Tensor& other, Location where) && {
  return detail::consumed(*this, std::as_const(*this).matmul(other, where));
}
Tensor Tensor::matmul(const Tensor& other, Location where) const& { return fermata::matmul(*this, other, where); }
Tensor Tensor::dot(const Tensor& other, Location where) const { return fermata::dot(*this, other, where); }
Tensor Tensor::trace(Location where) const { return linalg::trace(*this, 0, {}, where); }
Tensor Tensor::tril(std::int64_t k, Location where) const { return fermata::tril(*this, k, where); }
Tensor Tensor::triu(std::int64_t k, Location where) const { return fermata::triu(*this, k, where); }

// Elements in other places.
Tensor Tensor::take(const Tensor& index, std::int64_t axis, Location where) const {
  return fermata::take(*this, index, axis, where);
}
Tensor Tensor::gather(const Tensor& index, std::int64_t axis, Location where) const {
  return fermata::gather(*this, index, axis, where);
}
Tensor Tensor::index_select(std::int64_t axis, const Tensor& index, Location where) const {
  return fermata::take(*this, index, axis, where);
}
Tensor Tensor::masked_select(const Tensor& mask, Location where) const {
  return fermata::masked_select(*this, mask, {}, where);
}
Tensor Tensor::roll(const IntegerList& shift, const IntegerList& axes, Location where) const {
  return fermata::roll(*this, shift, axes, where);
}
Tensor Tensor::repeat(std::int64_t count, std::optional<std::int64_t> axis, Location where) const {
  return fermata::repeat(*this, count, axis, where);
}
Tensor Tensor::tile(const IntegerList& repetitions, Location where) const {
  return fermata::tile(*this, repetitions, where);
}
const Tensor& Tensor::zero_(Location where) const { return assign({0, where}); }

}  // namespace fermata
