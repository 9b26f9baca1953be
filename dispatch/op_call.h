// The arguments of a call from the fields of the op's struct, and back.
#pragma once

#include <array>

#include "dispatch/operator.h"
#include "ir/op_fields.h"

namespace fermata {

/// What a call of an op takes beside its tensors, made from the op's struct. `dtype` is that of the result, where the
/// struct says its shape alone.
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

/// Not a list of tensors, which braces may be taken for.
template <class O>
concept AttributeStruct = std::is_aggregate_v<O> && !std::convertible_to<const O&, std::span<const Tensor>>;

/// The fields of an op's struct from the arguments of a call.
template <class O> O attributes_of(const Attributes& call) {
  return decode<O>({call.integers, call.wanted.shape, call.wanted.dtype, call.scalars});
}

}  // namespace fermata
