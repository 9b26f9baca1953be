// Every rule of a kernel description, broken once; and the readable text of kernels that keep them.
#include <gtest/gtest.h>

#include <functional>

#include "golden.h"
#include "ir/error.h"
#include "kernels.h"

namespace fermata {
namespace {

using testing::KernelBuilder;

std::string complaint(const Kernel& kernel) {
  try {
    verify(kernel);
  } catch (const InternalError& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "nothing";
}

void expect_broken(const Kernel& start, const std::function<void(Kernel&)>& change, const std::string& expected) {
  Kernel kernel = start;
  change(kernel);
  EXPECT_EQ(complaint(kernel), "FM9001 InternalError: kernel: " + expected);
}

TEST(KernelVerify, AcceptsWhatKeepsTheRules) {
  EXPECT_EQ(complaint(testing::map_kernel()), "nothing");
  EXPECT_EQ(complaint(testing::softmax_kernel()), "nothing");
  for (const Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::argmax, Op::argmin})
    for (const std::uint16_t reduced : std::vector<std::uint16_t>{1, 2, 3})
      for (const DType t : {DType::f32, DType::f64, DType::i64, DType::u64})
        EXPECT_EQ(complaint(testing::reduce_kernel(op, t, reduced)), "nothing") << name(op) << name(t);
}

TEST(KernelVerify, Domain) {
  const Kernel map = testing::map_kernel();
  expect_broken(
      map, [](Kernel& k) { k.rank = 0; }, "rank 0");
  expect_broken(
      map, [](Kernel& k) { k.reduced = 4; }, "reduced axes beyond rank 2");
  expect_broken(
      map, [](Kernel& k) { k.reduced = 1; }, "reductions without reduced axes, or the reverse");
  expect_broken(
      map, [](Kernel& k) { k.accesses[0].axes = 4; }, "access 0 has axes beyond rank 2");
  expect_broken(
      map, [](Kernel& k) { k.accesses[0].axes = 1; },
      "access 0 has unit stride along an axis that it is broadcast over");
  expect_broken(
      map, [](Kernel& k) { k.accesses[0].half = Half::real; }, "access 0 is no half of complex numbers");
  expect_broken(
      map,
      [](Kernel& k) { k.accesses[0].half = Half::real, k.accesses[0].unit_stride = false, k.accesses[0].axes = 1; },
      "access 0 is no half of complex numbers");
  expect_broken(
      map, [](Kernel& k) { k.accesses[0].dtype = DType::c64; }, "access 0 has dtype c64");
  expect_broken(
      map, [](Kernel& k) { k.scalars[0] = DType::qi8; }, "a scalar has dtype qi8");
}

TEST(KernelVerify, Values) {
  const auto with = [](auto&& build) {
    KernelBuilder b;
    build(b);
    return complaint(b.kernel);
  };
  const std::string start = "FM9001 InternalError: kernel: ";
  EXPECT_EQ(with([](KernelBuilder& b) { b.op(Prim::neg, DType::f32, 0); }),
            start + "%0 (neg) uses a value that does not precede it");
  EXPECT_EQ(with([](KernelBuilder& b) {
              const ValueId x = b.input(DType::f32, 1);
              b.op(Prim::neg, DType::f32, x, x);
            }),
            start + "%1 (neg) has too many operands");
  EXPECT_EQ(with([](KernelBuilder& b) { b.op(Prim::add, DType::f32, b.input(DType::f32, 1), b.input(DType::f64, 1)); }),
            start + "%2 (add) mixes f32 and f64");
  EXPECT_EQ(with([](KernelBuilder& b) { b.op(Prim::sqrt, DType::i32, b.input(DType::i32, 1)); }),
            start + "%1: sqrt of i32 does not produce i32");
  EXPECT_EQ(with([](KernelBuilder& b) {
              const ValueId x = b.input(DType::f32, 1);
              b.op(Prim::select, DType::f32, x, x, x);
            }),
            start + "%1 selects by f32");
  EXPECT_EQ(with([](KernelBuilder& b) { b.kernel.program.add({.prim = Prim::input, .type = DType::f32, .index = 3}); }),
            start + "%0 (input) has index 3 of 0");
  EXPECT_EQ(with([](KernelBuilder& b) {
              b.access(DType::f32, 1);
              b.kernel.program.add({.prim = Prim::input, .type = DType::f64});
            }),
            start + "%0 (input) is f64, not f32");
  EXPECT_EQ(with([](KernelBuilder& b) {
              b.access(DType::i64, 1, false, true);
              b.kernel.program.add({.prim = Prim::input, .type = DType::i64});
            }),
            start + "%0 reads access 0, which has no memory");
  EXPECT_EQ(with([](KernelBuilder& b) { b.kernel.program.constant(DType::f16, 0x10000); }),
            start + "%0 has constant bits beyond its dtype");
  EXPECT_EQ(with([](KernelBuilder& b) { b.kernel.program.add({.prim = Prim::parameter, .type = DType::f32}); }),
            start + "%0 is a parameter outside a sub-program");
}

TEST(KernelVerify, Reductions) {
  const Kernel sum = testing::reduce_kernel(Op::sum, DType::f32, 2);
  expect_broken(
      sum, [](Kernel& k) { k.reductions[0].identity.clear(); }, "reduction 0 has unequal numbers of components");
  expect_broken(
      sum, [](Kernel& k) { k.reductions[0].types[0] = DType::f64; }, "reduction 0: lifted value 0 has another dtype");
  expect_broken(
      sum, [](Kernel& k) { k.reductions[0].combine.parameters.pop_back(); },
      "reduction 0: %1 is no parameter of the combine");
  expect_broken(
      sum, [](Kernel& k) { k.reductions[0].combine.results.clear(); },
      "reduction 0: the combine does not take two states and give one");
  expect_broken(
      sum, [](Kernel& k) { k.reductions[0].combine.program.add({.prim = Prim::scalar, .type = DType::f32}); },
      "reduction 0: the combine has a scalar");
  KernelBuilder b;
  b.kernel.reduced = 1;
  b.store(0, b.reduce(Op::sum, b.input(DType::f32, 1)));
  b.kernel.reductions[0].lifted[0] = b.op(Prim::neg, DType::f32, b.kernel.stores[0].value);
  EXPECT_EQ(complaint(b.kernel), "FM9001 InternalError: kernel: %2 uses reduction 0 before what it reduces");
}

TEST(KernelVerify, Stores) {
  const Kernel map = testing::map_kernel();
  expect_broken(
      map, [](Kernel& k) { k.stores[0].access = 9; }, "store 0 is out of range");
  expect_broken(
      map, [](Kernel& k) { k.stores.push_back(k.stores[0]); }, "access 1 is stored twice");
  expect_broken(
      map, [](Kernel& k) { k.accesses[1].address_only = true; }, "store 0 goes to access 1, which has no memory");
  expect_broken(
      map, [](Kernel& k) { k.accesses[1].dtype = DType::i32; }, "store 0 puts f32 into i32");
  expect_broken(
      testing::reduce_kernel(Op::sum, DType::f32, 2), [](Kernel& k) { k.stores[0].value = 0; },
      "store 0 keeps one of many values per row");
  KernelBuilder b;  // writes over its input in stage 0, and reads it again in stage 1
  b.kernel.reduced = 1;
  const ValueId x = b.input(DType::f32, 1);
  const ValueId total = b.reduce(Op::sum, x);
  b.kernel.stores.push_back({0, b.op(Prim::neg, DType::f32, x)});
  b.store(1, b.op(Prim::sub, DType::f32, x, total));
  EXPECT_EQ(complaint(b.kernel), "FM9001 InternalError: kernel: %0 reads access 0 after it has been stored");
}

TEST(KernelPrint, IsReadable) {
  testing::expect_golden("kernel_map.txt", to_string(testing::map_kernel()));
  // The rows of x less their mean, the mean, and positions. Formulas of more than one primitive would not do here: in
  // which order their parts are recorded is up to the compiler.
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = 2;
  const ValueId x = b.input(DType::f32, 3, true), n = b.scalar(DType::f32);
  const ValueId mean = b.op(Prim::div, DType::f32, b.reduce(Op::sum, x), n);
  b.store(3, b.op(Prim::sub, DType::f32, x, mean), true);
  b.store(1, mean);
  b.store(3, b.offset(2), true);
  testing::expect_golden("kernel_center.txt", to_string(b.kernel));
}

}  // namespace
}  // namespace fermata
