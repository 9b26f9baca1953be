// Products and convolutions whose weights are kept packed give the bits that they give without, and find what they
// kept.
#include "runtime/prepacked_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "tests/codegen_cpu/matmul_product.h"

namespace fermata {
namespace {

class PackedConstants : public ::testing::Test {
 protected:
  ~PackedConstants() override { set_packed_limit(limit_); }
  /// Its elements in a buffer of the engine's own.
  static StoragePtr own(Array& array, TensorView& view) {
    StoragePtr buffer(Storage::allocate(array.bytes.size()));
    std::memcpy(buffer->data, array.bytes.data(), array.bytes.size());
    view.data = static_cast<std::byte*>(buffer->data) + (static_cast<const std::byte*>(view.data) - array.bytes.data());
    view.buffer = buffer.get();
    return buffer;
  }
  /// Runs the call without copies, and four times with them. A call in several parts reads its weights more than once.
  static void expect_same_bits(const CallArgs& args, void (*kernel)(const CallArgs&), const std::string& what,
                               bool parts = false) {
    const TensorView& out = args.outputs[0];
    const std::size_t bytes = static_cast<std::size_t>(out.element_count()) * byte_size(out.dtype);
    std::vector<std::byte> want(bytes);
    set_packed_limit(0);
    kernel(args);
    std::memcpy(want.data(), out.data, bytes);
    set_packed_limit(1 << 28);
    const std::size_t before = PrepackedWeights::bytes();
    for (int run = 0; run < 4; ++run) {
      std::memset(out.data, 0xee, bytes);
      kernel(args);
      ASSERT_EQ(std::memcmp(out.data, want.data(), bytes), 0) << what << ", run " << run;
      if (parts && run == 0) continue;
      ASSERT_EQ(PrepackedWeights::bytes() > before, run > 0) << what << ", run " << run;
    }
  }
  const std::size_t limit_ = set_packed_limit(1 << 28);
};

TEST_F(PackedConstants, PortableProducts) {
  std::mt19937_64 random(seed());
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i8, DType::u64})
    for (const Layout layout : kLayouts)
      for (const std::int64_t m : {60, 300}) {
        Product p(t, {m, 150}, {150, 190}, Layout::rows, layout, random);
        const StoragePtr held = own(p.rhs, p.inputs[1]);
        const std::string what = to_string(t, p.lhs.sizes) + " layout " + std::to_string(static_cast<int>(layout));
        expect_same_bits(
            p.args(), [](const CallArgs& a) { matmul_portable(a); }, what);
        if (HasFatalFailure()) return;
      }
}

TEST_F(PackedConstants, FewRowsReadTheirRightSideWhereItLies) {
  std::mt19937_64 random(seed());
  Product p(DType::f32, {7, 150}, {150, 190}, Layout::rows, Layout::rows, random);
  const StoragePtr held = own(p.rhs, p.inputs[1]);
  const std::size_t before = PrepackedWeights::bytes();
  for (int run = 0; run < 3; ++run) matmul_portable(p.args());
  EXPECT_EQ(PrepackedWeights::bytes(), before);
}

TEST_F(PackedConstants, AmxProducts) {
  if (!has_amx() || !splits_f32()) GTEST_SKIP() << "no AMX, or it is turned off";
  std::mt19937_64 random(seed());
  for (const DType t : {DType::f32, DType::bf16, DType::i8, DType::u8})
    for (const Layout layout : kLayouts)
      for (const auto& [m, k, n] : {std::array{40, 300, 170}, std::array{256, 1100, 33}, std::array{3, 70, 1000}}) {
        Product p(t, {m, k}, {k, n}, Layout::rows, layout, random);
        const StoragePtr held = own(p.rhs, p.inputs[1]);
        const std::string what = to_string(t, p.lhs.sizes) + " layout " + std::to_string(static_cast<int>(layout));
        expect_same_bits(
            p.args(), [](const CallArgs& a) { matmul_amx(a); }, what);
        if (HasFatalFailure()) return;
        expect_product(p, what, 7);
      }
}

TEST_F(PackedConstants, AmxProductsOfColumnsThatAreNotSplit) {
  if (!has_amx() || !splits_f32()) GTEST_SKIP() << "no AMX, or it is turned off";
  std::mt19937_64 random(seed());
  Product p(DType::f32, {50, 300}, {300, 100}, Layout::rows, Layout::rows, random);
  const auto set = [&](std::int64_t at, float x) { std::memcpy(p.rhs.bytes.data() + at * 4, &x, 4); };
  set(3, std::numeric_limits<float>::infinity()), set(200 * 100 + 70, 1e30f), set(299 * 100 + 99, std::nanf(""));
  for (int k = 0; k < 300; ++k) set(k * 100 + 40, 1e-30f);
  const StoragePtr held = own(p.rhs, p.inputs[1]);
  expect_same_bits(
      p.args(), [](const CallArgs& a) { matmul_amx(a); }, "f32");
}

struct Window {
  Shape x, w, y;
  std::int64_t stride, padding, groups;
};

TEST_F(PackedConstants, Convolutions) {
  std::mt19937_64 random(seed());
  struct Kernel {
    const char* name;
    void (*run)(const CallArgs&);
    bool (*fits)(const CallArgs&);
  };
  const Kernel kernels[] = {{"amx", &convolution_amx, &convolution_amx_fits},
                            {"onednn", &convolution_onednn, &convolution_onednn_fits}};
  const Window windows[] = {{{2, 20, 9, 11}, {36, 20, 3, 3}, {2, 36, 9, 11}, 1, 1, 1},
                            {{1, 64, 7, 7}, {40, 64, 1, 1}, {1, 40, 7, 7}, 1, 0, 1},
                            {{3, 32, 12, 12}, {32, 16, 3, 3}, {3, 32, 6, 6}, 2, 1, 2},
                            {{1, 48, 15, 15}, {64, 48, 3, 3}, {1, 64, 8, 8}, 2, 1, 1}};
  for (const Window& window : windows)
    for (const Op op : {Op::convolution, Op::convolution_data_gradient})
      for (const Layout layout : {Layout::rows, Layout::gaps, Layout::reversed})
        for (const Kernel& kernel : kernels) {
          const bool forward = op == Op::convolution;
          Array in(DType::f32, forward ? window.x : window.y), weight(DType::f32, window.w, layout),
              out(DType::f32, forward ? window.y : window.x);
          in.fill(random), weight.fill(random);
          TensorView inputs[] = {in.view(), weight.view()};
          const TensorView output = out.view();
          const std::int64_t s = window.stride, p = window.padding,
                             end = (window.y[2] - 1) * s + window.w[2] - p -
                                   window.x[2];  // fewer where a window does not reach
          const std::vector<std::int64_t> attributes{
              window.groups, s, s, p, p, std::max(end, std::int64_t{0}), std::max(end, std::int64_t{0}), 1, 1};
          const CallArgs args{op, inputs, {&output, 1}, attributes, {}};
          const bool by_amx = kernel.run == &convolution_amx;
          const bool fits = kernel.fits(args);  // oneDNN's does wherever it was built in
          ASSERT_TRUE(!by_amx || fits == (has_amx() && splits_f32() && s == 1)) << "stride " << s;
          if (!fits) continue;
          const StoragePtr held = own(weight, inputs[1]);
          const std::string what = std::string(kernel.name) + (forward ? " forward " : " gradient ") +
                                   std::to_string(&window - windows) + " layout " +
                                   std::to_string(static_cast<int>(layout));
          // Weights that no descriptor can express are copied first, and then not kept by oneDNN.
          if (kernel.run == &convolution_onednn && layout == Layout::reversed) continue;
          expect_same_bits(args, kernel.run, what, kernel.run == &convolution_onednn);
          if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace fermata
