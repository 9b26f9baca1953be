// Converts between call arguments and the fields of an op's struct.
#pragma once

#include <array>

#include "dispatch/operator.h"
#include "ir/op_fields.h"

namespace fermata {

/// The non-tensor arguments of a call, encoded from the op's struct. `dtype` is the result's, if the struct has only
/// its shape.
template <class O> class EncodedAttributes {
 public:
  explicit EncodedAttributes(const O& op, DType dtype = DType::f32, BackendKey backend = BackendKey::cpu)
      : integers_(encode(op)), attributes_{.wanted = {dtype, {}}, .integers = {}, .scalars = {}, .backend = backend} {
    [[maybe_unused]] std::size_t next = 0;
    detail::each_field(op, [&]<class F>(F& field) {
      if constexpr (detail::IsShape<std::remove_const_t<F>>::value) attributes_.wanted.shape = Shape(field.value);
      if constexpr (detail::IsDType<std::remove_const_t<F>>::value) attributes_.wanted.dtype = field.value;
      if constexpr (detail::IsScalar<std::remove_const_t<F>>::value) scalars_[next++] = field.bits;
    });
    attributes_.integers = integers_, attributes_.scalars = scalars_;
  }
  EncodedAttributes(const EncodedAttributes&) = delete;
  EncodedAttributes& operator=(const EncodedAttributes&) = delete;
  operator const Attributes&() const { return attributes_; }

 private:
  decltype(encode(std::declval<const O&>())) integers_;
  std::array<std::uint64_t, detail::count_fields<O, detail::IsScalar>()> scalars_{};
  Attributes attributes_;
};

/// Excludes lists of tensors, which braces could be taken for.
template <class O>
concept AttributeStruct = std::is_aggregate_v<O> && !std::convertible_to<const O&, std::span<const Tensor>>;

/// Decodes an op's struct from the arguments of a call.
template <class O> O attributes_of(const Attributes& call) {
  return decode<O>({call.integers, call.wanted.shape, call.wanted.dtype, call.scalars});
}

}  // namespace fermata
