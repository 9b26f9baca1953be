// DLPack capsules and subscripts: structures that another program or a user makes.
#include <fermata/fermata.h>

#include <array>
#include <cstring>
#include <vector>

#include "ir/error.h"
#include "tests/dispatch/every_way.h"
#include "tests/fuzz/targets/target.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

namespace fermata::testing {
namespace {

#if __has_include(<dlpack/dlpack.h>)
/// Bytes on each side of the first element of a capsule, and elements that are copied in no time.
constexpr __int128 kReach = 1 << 12, kMostElements = 1 << 16;

/// Whether all elements of a capsule that says the truth lie in so many bytes, or no memory could hold them.
bool is_honest(const DLTensor& t, std::size_t width) {
  if (t.ndim < 0 || t.ndim > 8 || t.shape == nullptr) return true;
  __int128 reach = static_cast<__int128>(width), count = 1;
  for (int axis = t.ndim; axis-- > 0;) {
    if (t.shape[axis] <= 0) return true;
    const __int128 stride = t.strides != nullptr ? t.strides[axis] : count;
    const __int128 span = (stride < 0 ? -stride : stride) * t.shape[axis];
    if (span > INT64_MAX) return true;
    reach += span * static_cast<__int128>(width);
    count *= t.shape[axis];
    if (reach > INT64_MAX || count > INT64_MAX) return true;
  }
  return (count <= kMostElements && reach + t.byte_offset <= kReach) || t.byte_offset > std::uint64_t{INT64_MAX};
}

void dlpack(std::string_view input) {
  static std::vector<std::byte> memory(static_cast<std::size_t>(2 * kReach));
  ByteReader bytes(input);
  const std::uint8_t flags = bytes.byte();
  std::array<std::int64_t, 16> shape{}, strides{};
  DLManagedTensor capsule{};
  DLTensor& t = capsule.dl_tensor;
  t.data = (flags & 1) != 0 ? nullptr : &memory[static_cast<std::size_t>(kReach)];
  const std::int32_t device = (flags & 2) != 0 ? bytes.byte() : static_cast<std::int32_t>(kDLCPU);
  std::memcpy(&t.device.device_type, &device, sizeof(device));
  t.ndim = static_cast<std::int32_t>(bytes.number());
  t.dtype.code = bytes.byte(), t.dtype.bits = bytes.byte();
  t.dtype.lanes = (flags & 4) != 0 ? bytes.byte() : std::uint8_t{1};
  t.byte_offset = (flags & 8) != 0 ? static_cast<std::uint64_t>(bytes.number()) : 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    shape[axis] = bytes.number();
    if ((flags & 16) != 0) strides[axis] = bytes.number();
  }
  t.shape = (flags & 32) != 0 ? nullptr : shape.data();
  t.strides = (flags & 16) != 0 ? strides.data() : nullptr;
  static bool deleted;
  deleted = false;
  if ((flags & 64) == 0) capsule.deleter = [](DLManagedTensor*) { deleted = true; };
  if (!is_honest(t, t.dtype.bits / 8u + 1u)) return;
  const auto read = [&] {
    const Tensor x = from_dlpack(&capsule);
    const auto back = to_dlpack(x);
    require(back->dl_tensor.ndim == t.ndim, "a capsule comes back with another rank");
    back->deleter(back);
  };
  try {
    read();
  } catch (const Error&) {
    require(deleted == (capsule.deleter != nullptr), "a capsule that was refused is not deleted");
    throw;
  }
}
const AddFuzzTarget add_dlpack("dlpack", &dlpack);
#endif

Subscript subscript(ByteReader& bytes) {
  switch (bytes.byte() % 8) {
    case 0: return bytes.number();
    case 1: return ellipsis;
    case 2: return new_axis;
    case 3: {
      const std::int64_t start = bytes.number(), stop = bytes.number();
      return Slice(start, stop, bytes.number());
    }
    case 4: return Slice(kNone, kNone, bytes.number());
    case 5: return full({bytes.byte() % 3}, bytes.number(), DType::i64);
    case 6: return Subscript(less(iota({bytes.byte() % 4}, 0), bytes.number()));
    default: return Subscript(full({2, 1}, bytes.number() % 4, DType::i32));
  }
}

Tensor indexed(const Tensor& x, const std::vector<Subscript>& s) {
  switch (s.size()) {
    case 0: return index(x, {});
    case 1: return index(x, {s[0]});
    case 2: return index(x, {s[0], s[1]});
    case 3: return index(x, {s[0], s[1], s[2]});
    default: return index(x, {s[0], s[1], s[2], s[3]});
  }
}
void put(const Tensor& x, const std::vector<Subscript>& s, const Operand& values) {
  switch (s.size()) {
    case 0: return index_put(x, {}, values);
    case 1: return index_put(x, {s[0]}, values);
    case 2: return index_put(x, {s[0], s[1]}, values);
    case 3: return index_put(x, {s[0], s[1], s[2]}, values);
    default: return index_put(x, {s[0], s[1], s[2], s[3]}, values);
  }
}

/// What subscripts read, and what a tensor is after a write through them; or the codes of the errors.
std::vector<double> read_and_write(std::string_view input, Mode mode) {
  const ModeGuard guard(mode);
  const PolicyGuard policy(CompilePolicy::never);
  ByteReader bytes(input);
  std::vector<double> outcome;
  const auto note = [&](const auto& act) {
    try {
      const std::vector<double> numbers = astype(act(), DType::f64).template to_vector<double>();
      outcome.insert(outcome.end(), numbers.begin(), numbers.end());
    } catch (const InternalError&) { throw; } catch (const Error& error) {
      outcome.push_back(-error.code());
    }
  };
  std::vector<std::int64_t> sizes;
  for (unsigned rank = bytes.byte() % 4; sizes.size() < rank;) sizes.push_back(bytes.byte() % 5);
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  const Tensor x = reshape(arange(count), sizes);
  std::vector<Subscript> subscripts;
  for (unsigned many = bytes.byte() % 5; subscripts.size() < many;) subscripts.push_back(subscript(bytes));
  note([&] { return indexed(x, subscripts); });
  note([&] {
    put(x, subscripts, bytes.number());
    return x;
  });
  note([&] {
    put(x, subscripts, indexed(x, subscripts) + 1);
    return x;
  });
  return outcome;
}

void subscripts(std::string_view input) {
  require(read_and_write(input, Mode::eager) == read_and_write(input, Mode::compiled),
          "subscripts mean something else in another mode");
}
const AddFuzzTarget add_subscripts("subscripts", &subscripts);

}  // namespace
}  // namespace fermata::testing
