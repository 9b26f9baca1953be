// Numbers of 8 bits and fewer against ml_dtypes, every bit pattern, in both modes: conversions, moves, arithmetic,
// products with scales, elements in bytes, files; errors as full text.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "fermata/autograd.h"
#include "fermata/dlpack.h"
#include "fermata/fermata.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/file.h"
#include "ir/scalar_interpreter.h"
#include "ir/small_dtypes.h"
#include "tests/error_message.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using fermata::testing::message_without_place;
using Bytes = std::vector<std::uint8_t>;
using Doubles = std::vector<double>;

std::vector<DType> small_dtypes() {
  std::vector<DType> all;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (is_small(static_cast<DType>(t))) all.push_back(static_cast<DType>(t));
  return all;
}
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

Tensor from_bytes(const Bytes& bytes, DType dtype, const Shape& shape) {
  void* data = nullptr;
  const Tensor x = new_tensor(dtype, shape, &data);
  std::memcpy(data, bytes.data(), bytes.size());
  return x;
}
Tensor from_bytes(const Bytes& bytes, DType dtype) {
  return from_bytes(bytes, dtype, Shape{static_cast<std::int64_t>(bytes.size())});
}
Bytes bytes_of(const Tensor& x) {
  const HostElements elements(x, "test", {});
  const auto* const from = static_cast<const std::uint8_t*>(elements.data());
  return {from, from + elements.count()};
}
/// Every bit pattern.
Bytes codes_of(DType dtype) {
  Bytes codes(std::size_t{1} << bit_width(dtype));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  return codes;
}
/// A value by the definition of its format.
double value_of(DType dtype, std::uint8_t code) {
  double value = 0;
  visit_small(dtype, [&]<class T>() {
    if constexpr (kIsSmallFloat<T>)
      value = static_cast<double>(to_float(T{code}));
    else
      value = to_integer(T{static_cast<decltype(T::bits)>(code)});
  });
  return value;
}
std::uint8_t code_of(DType dtype, double value) {
  std::uint8_t code = 0;
  visit_small(dtype, [&]<class T>() {
    if constexpr (kIsSmallFloat<T>) code = to_small_float<T>(value).bits;
  });
  return code;
}

struct Golden {
  std::map<std::string, std::vector<std::string>> decode, encode, wrap;
  std::map<std::string, std::uint32_t> halves;
};
const Golden& golden() {
  static const Golden all = [] {
    Golden g;
    std::ifstream file(test_folder() + "/frontend/golden/small_dtypes.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string kind, dtype, word;
      words >> kind >> dtype;
      while (words >> word) {
        if (kind == "halves")
          g.halves[dtype] = static_cast<std::uint32_t>(std::stoul(word, nullptr, 16));
        else
          (kind == "decode" ? g.decode : kind == "encode" ? g.encode : g.wrap)[dtype].push_back(word);
      }
    }
    return g;
  }();
  return all;
}
float float_of(const std::string& hex) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16)));
}

std::uint32_t crc32(const Bytes& bytes) {
  std::uint32_t crc = ~0u;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

class SmallDTypes : public ::testing::TestWithParam<Mode> {
 protected:
  ~SmallDTypes() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, SmallDTypes, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(SmallDTypes, EveryBitPatternIsTheNumberOfMlDtypes) {
  for (const DType dtype : small_dtypes()) {
    const auto& wanted = golden().decode.at(std::string(name(dtype)));
    const Bytes codes = codes_of(dtype);
    ASSERT_EQ(wanted.size(), codes.size());
    const Tensor x = from_bytes(codes, dtype);
    const Doubles f32 = astype(x, DType::f32).to_vector<double>(), f64 = astype(x, DType::f64).to_vector<double>(),
                  f16 = astype(x, DType::f16).to_vector<double>(), host = x.to_vector<double>();
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const double value = wanted[i] == "nan" ? NAN : static_cast<double>(float_of(wanted[i]));
      for (const Doubles* got : {&f32, &f64, &f16, &host}) {
        if (got == &f16 && dtype == DType::f8e8m0fnu) continue;  // f16 has fewer powers of two
        EXPECT_TRUE(same((*got)[i], value) || (std::isnan(value) && std::isnan((*got)[i])))
            << name(dtype) << " " << i << ": " << (*got)[i] << " instead of " << value;
      }
      EXPECT_TRUE(same(value_of(dtype, codes[i]), value)) << name(dtype) << " " << i;
      const std::uint64_t slot = convert_slot(dtype, DType::f64, codes[i]);
      EXPECT_TRUE(same(std::bit_cast<double>(slot), value));
    }
  }
}

TEST_P(SmallDTypes, NumbersRoundAsInMlDtypes) {
  for (const auto& [dtype_name, pairs] : golden().encode) {
    const DType dtype = *dtype_from_name(dtype_name);
    std::vector<float> numbers;
    Bytes wanted;
    for (const std::string& pair : pairs) {
      numbers.push_back(float_of(pair.substr(0, 8)));
      wanted.push_back(static_cast<std::uint8_t>(std::stoul(pair.substr(9), nullptr, 16)));
    }
    const Tensor x = tensor(numbers);
    const Bytes from_f32 = bytes_of(astype(x, dtype)), from_f64 = bytes_of(astype(astype(x, DType::f64), dtype));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(from_f32[i], wanted[i]) << dtype_name << " of " << numbers[i];
      EXPECT_EQ(from_f64[i], wanted[i]) << dtype_name << " of " << numbers[i];
      EXPECT_EQ(code_of(dtype, static_cast<double>(numbers[i])), wanted[i]) << dtype_name << " of " << numbers[i];
    }
  }
}

TEST_P(SmallDTypes, EveryHalfRoundsAsInMlDtypes) {
  std::vector<Float16> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i].bits = static_cast<std::uint16_t>(i);
  void* data = nullptr;
  const Tensor halves = new_tensor(DType::f16, {65536}, &data);
  std::memcpy(data, bits.data(), 2 * bits.size());
  for (const auto& [dtype_name, wanted] : golden().halves) {
    const DType dtype = *dtype_from_name(dtype_name);
    Bytes codes = bytes_of(astype(halves, dtype));
    const std::uint8_t nan = code_of(dtype, NAN);
    for (std::size_t i = 0; i < codes.size(); ++i)
      if (std::isnan(to_float(bits[i]))) {
        EXPECT_EQ(codes[i] & 0x7f & (dtype == DType::f4e2m1fn ? 7 : 0xff),
                  nan & 0x7f & (dtype == DType::f4e2m1fn ? 7 : 0xff));
        codes[i] = nan;
      }
    EXPECT_EQ(crc32(codes), wanted) << dtype_name;
  }
}

/// What lies so close to the middle of two numbers that f32 does not tell them apart.
TEST_P(SmallDTypes, WideNumbersRoundOnce) {
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1fn}) {
    Doubles numbers;
    std::vector<std::int64_t> integers{0,   1,   -1,  17,  18,   19,     27,        29,
                                       447, 449, 464, 465, -465, 100000, INT64_MAX, INT64_MIN};
    for (std::uint8_t code = 0; code < small_float(dtype).largest; ++code) {
      const double middle = (value_of(dtype, code) + value_of(dtype, static_cast<std::uint8_t>(code + 1))) / 2;
      for (const double sign : {1.0, -1.0})
        for (const double x : {middle, std::nextafter(middle, 1e9), std::nextafter(middle, 0.0)})
          numbers.push_back(sign * x);
    }
    const Bytes got = bytes_of(astype(tensor(numbers), dtype));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(got[i], code_of(dtype, numbers[i])) << name(dtype) << " of " << numbers[i];
    const Tensor whole = tensor(integers);
    const Bytes of_integers = bytes_of(astype(whole, dtype));
    for (std::size_t i = 0; i < integers.size(); ++i)
      EXPECT_EQ(of_integers[i], code_of(dtype, static_cast<double>(integers[i])))
          << name(dtype) << " of " << integers[i];
  }
}

TEST_P(SmallDTypes, IntegersWrapAndFloatsSaturate) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = -40; i <= 40; ++i) numbers.push_back(i);
  for (const auto& [dtype_name, words] : golden().wrap) {
    const DType dtype = *dtype_from_name(dtype_name);
    std::vector<std::int64_t> wanted;
    for (const std::string& word : words) wanted.push_back(std::stoll(word));
    for (const DType from : {DType::i64, DType::i32, DType::i16, DType::i8}) {
      const Tensor x = astype(tensor(numbers), from);
      EXPECT_EQ(astype(x, dtype).to_vector<std::int64_t>(), wanted) << dtype_name << " of " << name(from);
    }
    const IntegerInfo limits = iinfo(dtype);
    for (const DType from : {DType::f32, DType::f64, DType::bf16, DType::f8e5m2})
      EXPECT_EQ(
          astype(astype(tensor({-1e3, -2.7, -1.5, 0.5, 1.75, 1e3, HUGE_VAL}), from), dtype).to_vector<std::int64_t>(),
          (std::vector<std::int64_t>{limits.min, std::max<std::int64_t>(limits.min, -2),
                                     std::max<std::int64_t>(limits.min, -1), 0, 1,
                                     static_cast<std::int64_t>(limits.max), static_cast<std::int64_t>(limits.max)}))
          << dtype_name << " of " << name(from);
    EXPECT_EQ(saturating_cast(tensor({-40, 2, 40}), dtype).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{limits.min, std::min<std::int64_t>(2, static_cast<std::int64_t>(limits.max)),
                                         static_cast<std::int64_t>(limits.max)}));
    EXPECT_EQ(astype(tensor({true, false}), dtype).to_vector<bool>(), (std::vector<bool>{true, false}));
  }
}

TEST_P(SmallDTypes, EveryTwoDTypesConvertAsThroughTheirNumbers) {
  for (const DType from : small_dtypes())
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      const auto to = static_cast<DType>(t);
      if (is_quantized(to)) continue;
      const Bytes codes = codes_of(from);
      const Tensor x = from_bytes(codes, from);
      if (is_complex(to)) {
        EXPECT_EQ(real(astype(x, to)).to_vector<float>().size(), codes.size());
        continue;
      }
      const Tensor got = astype(x, to), by_host = astype(astype(x, arithmetic_dtype(from)), to);
      const Doubles a = got.to_vector<double>(), b = by_host.to_vector<double>();
      for (std::size_t i = 0; i < codes.size(); ++i)
        EXPECT_TRUE(same(a[i], b[i])) << name(from) << " " << i << " as " << name(to) << ": " << a[i] << ", " << b[i];
    }
}

TEST_P(SmallDTypes, SaturateWhereTheyAreAsked) {
  const Tensor x = tensor({1e9, -1e9, HUGE_VAL, -HUGE_VAL, 1.0, 0.0});
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1fn}) {
    const double most = finfo(dtype).max;
    EXPECT_EQ(saturating_cast(x, dtype).to_vector<double>(), (Doubles{most, -most, most, -most, 1, 0})) << name(dtype);
    const double nan = saturating_cast(tensor({std::nan("")}), dtype).item<double>();
    EXPECT_TRUE(dtype == DType::f4e2m1fn ? nan == 0 : std::isnan(nan)) << name(dtype);
  }
  EXPECT_TRUE(std::isnan(astype(tensor({1e9}), DType::f8e4m3fn).item<double>()));
  EXPECT_TRUE(std::isinf(astype(tensor({1e9}), DType::f8e5m2).item<double>()));
  EXPECT_EQ(finfo(DType::f8e4m3fn).max, 448);
  EXPECT_EQ(finfo(DType::f8e5m2).smallest_normal, 0x1p-14);
  EXPECT_EQ(iinfo(DType::i4).min, -8);
  EXPECT_EQ(iinfo(DType::u2).max, 3u);
}

/// Against ml_dtypes, which gives NaN for what is not positive and takes halves upward.
TEST_P(SmallDTypes, ScalesArePowersOfTwo) {
  const auto codes = [](const Tensor& x) { return bytes_of(astype(x, DType::f8e8m0fnu)); };
  const Doubles numbers{0,           -0.0,       -1,    1e-300,   0x1p-127,    0x1.01p-127, 0x1p-126,
                        0x1.7fp-126, 1,          1.49,  1.5,      3,           6,           0x1.7fffffffffffp0,
                        0x1p127,     0x1.7fp127, 1e300, HUGE_VAL, std::nan("")};
  const Bytes wanted{255, 255, 255, 0, 0, 1, 1, 1, 127, 127, 128, 129, 130, 127, 254, 254, 255, 255, 255};
  EXPECT_EQ(codes(tensor(numbers)), wanted);
  EXPECT_EQ(codes(tensor({0, 1, 3, 5, 6, -1})), (Bytes{255, 127, 129, 129, 130, 255}));
  EXPECT_EQ(codes(tensor({true, false})), (Bytes{127, 255}));
  EXPECT_EQ(bytes_of(saturating_cast(tensor({0.0, -3.0, 5.0, HUGE_VAL, 1e300}), DType::f8e8m0fnu)),
            (Bytes{0, 0, 129, 254, 254}));
  const FloatInfo limits = finfo(DType::f8e8m0fnu);
  EXPECT_EQ(limits.bits, 8);
  EXPECT_EQ(limits.max, 0x1p127);
  EXPECT_EQ(limits.min, 0x1p-127);
  EXPECT_EQ(limits.smallest_normal, 0x1p-127);
  EXPECT_EQ(limits.eps, 1);
}

/// Section 6.3 of the OCP Microscaling formats 1.0.
TEST_P(SmallDTypes, BlocksHaveScalesThatArePowersOfTwo) {
  const Tensor x = (randn({8, 64}) * exp2(iota(8) * 5 - 20).reshape({8, 1})).sync();
  for (const auto& [dtype, exponent] :
       {std::pair{DType::f8e4m3fn, 8}, {DType::f8e5m2, 15}, {DType::f4e2m1fn, 2}, {DType::i8, 6}, {DType::i4, 2}}) {
    const Scaled r = quantize_blocks(x, dtype, {1, 32}, DType::f8e8m0fnu);
    EXPECT_EQ(r.scale.dtype(), DType::f8e8m0fnu);
    EXPECT_EQ(r.values.dtype(), dtype);
    const Doubles largest = max(abs(x).reshape({8, 2, 32}), -1).to_vector<double>(),
                  scale = r.scale.to_vector<double>();
    for (std::size_t i = 0; i < scale.size(); ++i)
      EXPECT_EQ(scale[i], std::exp2(std::floor(std::log2(largest[i])) - exponent)) << name(dtype);
    const Tensor wide = repeat(astype(r.scale, DType::f64), 32, 1);
    const Tensor scaled = astype(x, DType::f64) / wide;
    const Tensor rounded = is_small_float(dtype) ? scaled : round(scaled);
    EXPECT_EQ(bytes_of(r.values), bytes_of(saturating_cast(rounded, dtype))) << name(dtype);
    // As scales of a product.
    const Tensor y = scaled_matmul(r.values, transpose(r.values, 0, 1), r.scale, transpose(r.scale, 0, 1));
    const Tensor dense = astype(r.values, DType::f64) * wide, exact = matmul(dense, transpose(dense, 0, 1));
    const Tensor most = matmul(abs(dense), transpose(abs(dense), 0, 1));
    EXPECT_LT(max(abs(astype(y, DType::f64) - exact) / most).item<double>(), 1e-5) << name(dtype);
  }
  EXPECT_EQ(quantize_blocks(zeros({2, 32}), DType::f4e2m1fn, {1, 32}, DType::f8e8m0fnu).scale.to_vector<double>(),
            (Doubles{1, 1}));
  // A scale that is rounded to 8 bits, as of 16 numbers of 4 bits.
  const Scaled nv = quantize_blocks(x, DType::f4e2m1fn, {1, 16}, DType::f8e4m3fn);
  EXPECT_EQ(nv.scale.dtype(), DType::f8e4m3fn);
  const Tensor own =
      astype(saturating_cast(maximum(max(abs(x).reshape({8, 4, 16}), -1) / 6, 0x1p-9), DType::f8e4m3fn), DType::f32);
  EXPECT_EQ(nv.scale.to_vector<float>(), own.to_vector<float>());
  EXPECT_EQ(bytes_of(nv.values), bytes_of(saturating_cast(x / repeat(own, 16, 1), DType::f4e2m1fn)));
}

TEST_P(SmallDTypes, GradientsGoStraightThrough) {
  const Tensor x = tensor({0.3, -1000.0, 17.0, 2.4});
  EXPECT_EQ(straight_through(x, DType::f8e4m3fn).to_vector<double>(), (Doubles{0.3125, -448, 16, 2.5}));
  EXPECT_EQ(straight_through(x, DType::i4).to_vector<double>(), (Doubles{0, -8, 7, 2}));
  EXPECT_EQ(straight_through(x, DType::i8).to_vector<double>(), (Doubles{0, -128, 17, 2}));
  for (const DType dtype : {DType::f8e4m3fn, DType::f4e2m1fn, DType::i4, DType::bf16}) {
    const auto loss = [&](const Tensor& t) { return sum(square(straight_through(t, dtype)) * 3); };
    const Tensor rounded = astype(saturating_cast(x, dtype), x.dtype());
    EXPECT_EQ(grad(loss)(x).to_vector<double>(), (rounded * 6).to_vector<double>()) << name(dtype);
    EXPECT_EQ(compile([&](const Tensor& t) { return grad(loss)(t); })(x).to_vector<double>(),
              (rounded * 6).to_vector<double>());
    EXPECT_EQ(vmap(grad(loss))(stack({x, x})).to_vector<double>(),
              stack({rounded * 6, rounded * 6}).to_vector<double>());
  }
  const auto twice = [](const Tensor& t) { return sum(pow(straight_through(t, DType::f8e5m2), 3)); };
  EXPECT_EQ(grad([&](const Tensor& t) { return sum(grad(twice)(t)); })(tensor({1.0, 2.0})).to_vector<double>(),
            (Doubles{6, 12}));
  const Tensor half = straight_through(astype(x, DType::bf16), DType::f8e4m3fn);
  EXPECT_EQ(half.dtype(), DType::bf16);
  EXPECT_EQ(half.to_vector<double>(), (Doubles{0.3125, -448, 16, 2.5}));
}

TEST_P(SmallDTypes, AreMovedAsTheyLie) {
  for (const DType dtype : small_dtypes()) {
    Bytes bytes(24);
    const Bytes codes = codes_of(dtype);
    const bool has_sign = info(dtype).kind == DTypeKind::small_signed;
    const auto canonical = [&](std::uint8_t code) {
      return has_sign ? static_cast<std::uint8_t>(static_cast<int>(value_of(dtype, code))) : code;
    };
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = canonical(codes[(i * 5 + 1) % codes.size()]);
    const Tensor x = from_bytes(bytes, dtype, {4, 6}), raw = astype(from_bytes(bytes, DType::u8, {4, 6}), DType::i64);
    const auto check = [&](const char* what, const Tensor& got, const Tensor& wanted) {
      EXPECT_EQ(got.dtype(), dtype) << what;
      const auto numbers = wanted.to_vector<std::int64_t>();
      EXPECT_EQ(bytes_of(got), Bytes(numbers.begin(), numbers.end())) << what << " of " << name(dtype);
    };
    const Tensor rows = tensor({2, 0, 3}), mask = tensor({true, false, true, true});
    check("transposed", copy(transpose(x, 0, 1)), copy(transpose(raw, 0, 1)));
    check("slice", copy(slice(x, 1, 5, kNone, -2)), copy(slice(raw, 1, 5, kNone, -2)));
    check("reshape", reshape(transpose(x, 0, 1), {3, 8}), reshape(transpose(raw, 0, 1), {3, 8}));
    check("broadcast", copy(broadcast_to(slice(x, 0, 1, 2, 1), {3, 6})),
          copy(broadcast_to(slice(raw, 0, 1, 2, 1), {3, 6})));
    check("concat", concat({x, x}, 1), concat({raw, raw}, 1));
    check("stack", stack({x, x}, 0), stack({raw, raw}, 0));
    check("take", take(x, rows, 0), take(raw, rows, 0));
    check("gather", take_along_axis(x, broadcast_to(expand_dims(rows, 1), {3, 6}), 0),
          take_along_axis(raw, broadcast_to(expand_dims(rows, 1), {3, 6}), 0));
    check("mask", index(x, {mask}), index(raw, {mask}));
    check("flip", copy(flip(x, {0})), copy(flip(raw, {0})));
    check("tile", tile(x, {2, 1}), tile(raw, {2, 1}));
    check("full", full({3}, 1, dtype),
          full({3}, static_cast<std::int64_t>(is_small_float(dtype) ? code_of(dtype, 1) : 1)));
    Tensor written = copy(x), plain = copy(raw);
    slice(written, 0, 1, 3, 1).assign(slice(x, 0, 0, 2, 1));
    slice(plain, 0, 1, 3, 1).assign(slice(raw, 0, 0, 2, 1));
    check("written", written, plain);
    EXPECT_EQ(equal(x, x).dtype(), DType::boolean);
  }
}

TEST_P(SmallDTypes, ComputeAsTheirArithmeticDType) {
  const Tensor a = astype(tensor({1.5, -2.0, 0.5, 3.0}), DType::f8e4m3fn);
  EXPECT_EQ((a * 2).dtype(), DType::f32);
  EXPECT_EQ((a * 2.5).to_vector<float>(), (std::vector<float>{3.75f, -5, 1.25f, 7.5f}));
  EXPECT_EQ((a + a).dtype(), DType::f32);
  EXPECT_EQ((a + astype(a, DType::f8e5m2)).dtype(), DType::f32);
  EXPECT_EQ((a + astype(a, DType::bf16)).dtype(), DType::f32);
  EXPECT_EQ((a + astype(a, DType::f64)).dtype(), DType::f64);
  EXPECT_EQ((a + astype(a, DType::c64)).dtype(), DType::c64);
  EXPECT_EQ(exp(a).dtype(), DType::f32);
  EXPECT_EQ(sum(a).item<float>(), 3);
  EXPECT_EQ(max(a).item<float>(), 3);
  EXPECT_EQ(argmax(a).item<std::int64_t>(), 3);
  EXPECT_EQ(mean(a).item<float>(), 0.75f);
  EXPECT_EQ((a > 0).to_vector<bool>(), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(where(a > 0, a, 0).dtype(), DType::f32);
  EXPECT_EQ(matmul(reshape(a, {2, 2}), reshape(a, {2, 2})).to_vector<float>(),
            (std::vector<float>{1.25f, -9, 2.25f, 8}));
  const Tensor i = astype(tensor({7, -8, 3, 1}), DType::i4);
  EXPECT_EQ((i + i).dtype(), DType::i8);
  EXPECT_EQ((i + i).to_vector<int>(), (std::vector<int>{14, -16, 6, 2}));
  EXPECT_EQ((i * 0.5).dtype(), DType::f32);
  EXPECT_EQ((i + astype(i, DType::i32)).dtype(), DType::i32);
  EXPECT_EQ((i + astype(abs(i), DType::u4)).dtype(), DType::i16);  // as i8 with u8
  EXPECT_EQ(sum(i).dtype(), DType::i64);
  EXPECT_EQ(result_type({DType::i4, DType::i4}), DType::i4);
  EXPECT_EQ(result_type({DType::f8e5m2, DType::i64}), DType::f32);
  EXPECT_EQ(softmax(a, 0).dtype(), DType::f32);
}

TEST_P(SmallDTypes, Print) {
  EXPECT_EQ(to_string(astype(tensor({0.1, 448.0, -0.001953125}), DType::f8e4m3fn)),
            "tensor([  0.1016, 448.0000,  -0.0020], f8e4m3fn)");
  EXPECT_EQ(to_string(astype(tensor({7, -8, 9}), DType::i4)), "tensor([ 7, -8, -7], i4)");
}

TEST_P(SmallDTypes, RandomNumbersStayBelowOne) {
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1fn}) {
    const Tensor x = rand({4096}, dtype);
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_LT(max(x).item<double>(), 1) << name(dtype);
    EXPECT_NEAR(mean(x).item<double>(), 0.5 - 0.5 / (dtype == DType::f4e2m1fn ? 2 : 8), 0.1);
    EXPECT_EQ(randn({8}, dtype).dtype(), dtype);
  }
}

TEST_P(SmallDTypes, BatchesAndGradients) {
  const Tensor x = rand({3, 4});
  const auto quantized = [](const Tensor& row) { return astype(row, DType::f8e4m3fn) * 2; };
  EXPECT_EQ(vmap(quantized)(x).to_vector<float>(), quantized(x).to_vector<float>());
  const Tensor w = astype(rand({4, 2}), DType::f8e4m3fn).sync();
  const auto loss = [&](const Tensor& scale) { return sum(scaled_matmul(x, w, 1.0, scale)); };
  EXPECT_NEAR(grad(loss)(tensor({0.5f}).reshape({})).item<float>(), sum(matmul(x, astype(w, DType::f32))).item<float>(),
              1e-4);
}

TEST_P(SmallDTypes, ScaledProductsAreThoseOfTheirNumbers) {
  Generator generator(5);
  const auto random = [&](const Shape& sizes) { return normal(sizes, 0, 1, DType::f32, generator).sync(); };
  const Tensor a = random({6, 32}), b = random({32, 10});
  struct Case {
    std::initializer_list<std::int64_t> left, right;
  };
  const Case cases[] = {{{0, 0}, {0, 0}},  {{1, 0}, {0, 1}}, {{3, 0}, {0, 5}},
                        {{1, 8}, {16, 1}}, {{0, 0}, {8, 5}}, {{2, 16}, {0, 0}}};
  const DType dtypes[] = {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
                          DType::f4e2m1fn, DType::i8,     DType::i4,         DType::i2};
  for (const DType left : dtypes)
    for (const DType right : dtypes)
      for (const Case& c : cases) {
        const Scaled l = quantize_blocks(a, left, c.left), r = quantize_blocks(b, right, c.right);
        EXPECT_EQ(l.values.dtype(), left);
        const auto spread = [](const Tensor& s, const Shape& shape) {
          Tensor y = s;
          for (unsigned axis = 0; axis < 2; ++axis) y = repeat(y, shape[axis] / s.size(axis), axis);
          return astype(y, DType::f64);
        };
        const Tensor wide_l = astype(l.values, DType::f64) * spread(l.scale, {6, 32});
        const Tensor wide_r = astype(r.values, DType::f64) * spread(r.scale, {32, 10});
        const Doubles wanted = matmul(wide_l, wide_r).to_vector<double>(),
                      size = matmul(abs(wide_l), abs(wide_r)).to_vector<double>();
        const Doubles got = scaled_matmul(l.values, r.values, l.scale, r.scale).to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], wanted[i], 1e-5 * size[i])
              << name(left) << " " << name(right) << " case " << (&c - cases);
      }
  const Scaled r = quantize_blocks(b, DType::f8e4m3fn, {0, 1});
  const Tensor dense = astype(r.values, DType::f32) * r.scale;
  for (const DType left : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = astype(a, left);
    const Doubles got = scaled_matmul(x, r.values, 1.0, r.scale).to_vector<double>(),
                  wanted = matmul(astype(x, DType::f32), dense).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4);
  }
  EXPECT_EQ(scaled_matmul(r.values.transpose(0, 1), r.values, 1.0, 1.0, DType::bf16).dtype(), DType::bf16);
}

TEST_P(SmallDTypes, PackAndUnpack) {
  for (const DType dtype : {DType::f4e2m1fn, DType::i4, DType::u4, DType::i2, DType::u2}) {
    const Bytes codes = codes_of(dtype);
    Bytes all;
    for (std::size_t i = 0; i < 11; ++i) all.push_back(codes[(i * 3 + 1) % codes.size()]);
    const Tensor x = astype(from_bytes(all, dtype), dtype);
    const Tensor packed = pack_elements(x);
    const std::size_t bits = bit_width(dtype), in_byte = 8 / bits;
    Bytes wanted((11 + in_byte - 1) / in_byte);
    for (std::size_t i = 0; i < 11; ++i)
      wanted[i / in_byte] = static_cast<std::uint8_t>(wanted[i / in_byte] | all[i] << (i % in_byte * bits));
    EXPECT_EQ(packed.to_vector<std::uint8_t>(), wanted) << name(dtype);
    const Doubles back = unpack_elements(packed, dtype, 11).to_vector<double>(), values = x.to_vector<double>();
    for (std::size_t i = 0; i < 11; ++i) EXPECT_TRUE(same(back[i], values[i])) << name(dtype) << " " << i;
  }
}

using SmallDTypeFiles = test::InScratchFolder;

TEST_F(SmallDTypeFiles, AreThoseOfSafetensors) {
  NamedTensors tensors;
  for (const DType dtype :
       {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1fn, DType::f8e8m0fnu})
    tensors.emplace(std::string(name(dtype)), from_bytes(codes_of(dtype), dtype));
  const std::string file = "small.safetensors";
  save_safetensors(file, tensors);
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_NE(text.find("\"dtype\":\"F8_E4M3\",\"shape\":[256]"), std::string::npos);
  EXPECT_NE(text.find("\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]"), std::string::npos)
      << text.substr(0, 400);
  const NamedTensors back = load_safetensors(file);
  for (const auto& [key, x] : tensors) {
    EXPECT_EQ(back.at(key).dtype(), x.dtype());
    EXPECT_EQ(bytes_of(back.at(key)), bytes_of(x)) << key;
  }
  EXPECT_EQ(message_without_place<ValueError>([&] {
              save_safetensors(file, {{"w", zeros({3}, DType::f4e2m1fn)}});
            }),
            "FM1356 ValueError: save_safetensors: 'w' has 3 elements of 4 bits, which is not a whole number of bytes\n"
            "  x    f4e2m1fn[3]");
}

TEST(SmallDTypeInterchange, GoesByDlpack) {
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f8e8m0fnu}) {
    const Tensor x = from_bytes(codes_of(dtype), dtype), back = from_dlpack(to_dlpack(x));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(bytes_of(back), bytes_of(x));
  }
  EXPECT_EQ(message_without_place<DTypeError>([] { to_dlpack(zeros({2}, DType::i4)); }),
            "FM1101 DTypeError: to_dlpack: no counterpart of i4\n  x    i4[2]\n"
            "  hint pack_elements() returns bytes that others can read");
}

TEST(SmallDTypeInterchange, ProgramsAreText) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = astype(rand({4}), DType::f8e4m3fn).sync();
  const Tensor y = astype(x * 2, DType::f8e5m2);
  const std::string text = dump_ir(y);
  EXPECT_NE(text.find("f8e4m3fn[4]"), std::string::npos) << text;
  EXPECT_NE(text.find("f8e5m2[4]"), std::string::npos) << text;
}

TEST_P(SmallDTypes, Errors) {
  const Tensor x = zeros({4, 8}, DType::f8e4m3fn), i = zeros({4}, DType::i4);
  EXPECT_EQ(message_without_place<DTypeError>([&] { sort(x); }),
            "FM1101 DTypeError: sort: does not take f8e4m3fn\n  x    f8e4m3fn[4, 8]\n  hint convert it first, to f32");
  EXPECT_EQ(message_without_place<ShapeError>([&] {
              scaled_matmul(x, transpose(x, 0, 1), ones({3, 1}), 1.0);
            }),
            "FM1056 ShapeError: scaled_matmul: a scale does not divide its operand into blocks\n"
            "  x      f8e4m3fn[4, 8]\n  blocks [3, 1]");
  EXPECT_EQ(message_without_place<ShapeError>([&] {
              quantize_blocks(zeros({4, 6}), DType::i8, {3, 0});
            }),
            "FM1056 ShapeError: quantize_blocks: the blocks do not divide x\n  x      f32[4, 6]\n  blocks [3, 0]");
  EXPECT_EQ(message_without_place<DTypeError>([&] { pack_elements(x); }),
            "FM1101 DTypeError: pack_elements: does not take f8e4m3fn\n  hint supported are dtypes of 4 and 2 bits");
  EXPECT_EQ(message_without_place<ShapeError>([&] { unpack_elements(zeros({3}, DType::u8), DType::u2, 13); }),
            "FM1056 ShapeError: unpack_elements: 13 elements of 2 bits do not take that many bytes\n"
            "  x      u8[3]\n  blocks [13]");
  EXPECT_EQ(message_without_place<ValueError>([&] { full({2}, 8, DType::i4); }),
            "FM1329 ValueError: full: 8 does not fit i4\n  hint cast the tensor to a wider dtype with astype()");
  EXPECT_EQ(
      message_without_place<DTypeError>([&] {
        scaled_matmul(zeros({2, 2}, DType::f64), x, 1.0, 1.0);
      }),
      "FM1101 DTypeError: scaled_matmul: does not take f64\n  hint supported are small dtypes, i8, u8, f16, bf16 and "
      "f32");
  EXPECT_EQ(
      message_without_place<DTypeError>([&] {
        quantize_blocks(zeros({4, 6}), DType::i8, {0, 0}, DType::i8);
      }),
      "FM1101 DTypeError: quantize_blocks: does not take i8\n  hint scales must be f32, f16, bf16 or small floats");
  EXPECT_EQ(message_without_place<DTypeError>([&] { straight_through(i, DType::f8e5m2); }),
            "FM1101 DTypeError: straight_through: does not take i4\n  hint x is floating");
  EXPECT_EQ(message_without_place<DTypeError>([&] { straight_through(zeros({2}), DType::c64); }),
            "FM1101 DTypeError: straight_through: does not take c64\n"
            "  hint the target must be a real dtype");
  EXPECT_EQ(message_without_place<DTypeError>([&] { rand({2}, DType::f8e8m0fnu); }),
            "FM1101 DTypeError: rand: does not take f8e8m0fnu");
  EXPECT_EQ(message_without_place<ShapeError>([&] { scaled_matmul(i, x, 1.0, 1.0); }),
            "FM1015 ShapeError: scaled_matmul: a matrix must have two axes\n  lhs  i4[4]\n  rhs  f8e4m3fn[4, 8]");
}

}  // namespace
}  // namespace fermata
