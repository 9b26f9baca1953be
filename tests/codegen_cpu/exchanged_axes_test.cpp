// Map kernels with operands that lie in order along any axis, against the interpreter.
#include "codegen_cpu/exchanged_axes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "codegen_cpu/jit_compiler.h"

namespace fermata {
namespace {

/// out = x * y + z: x and y of any layout, z one number for each place of the last two axes.
Kernel three_operands(unsigned rank) {
  const auto all = static_cast<std::uint16_t>((1u << rank) - 1u), last = static_cast<std::uint16_t>(3u << (rank - 2u));
  Kernel kernel;
  kernel.rank = static_cast<std::uint8_t>(rank);
  kernel.accesses = {{.dtype = DType::f32, .axes = all},
                     {.dtype = DType::f32, .axes = all},
                     {.dtype = DType::f32, .axes = last},
                     {.dtype = DType::f32, .axes = all, .unit_stride = true}};
  ValueId in[3];
  for (std::uint16_t i = 0; i < 3; ++i)
    in[i] = kernel.program.add({.prim = Prim::input, .type = DType::f32, .index = i});
  const ValueId product = kernel.program.add({.prim = Prim::mul, .type = DType::f32, .a = in[0], .b = in[1]});
  kernel.stores = {{3, kernel.program.add({.prim = Prim::add, .type = DType::f32, .a = product, .b = in[2]})}};
  return kernel;
}

/// Dense strides of axes in an order, the last one innermost; 0 for those an access lacks.
std::vector<std::int64_t> strides_in(const std::vector<unsigned>& order, const std::vector<std::int64_t>& sizes,
                                     std::uint16_t axes) {
  std::vector<std::int64_t> strides(sizes.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;)
    if ((axes >> order[i] & 1u) != 0) strides[order[i]] = stride, stride *= sizes[order[i]];
  return strides;
}

TEST(ExchangedAxes, AgreeWithTheInterpreter) {
  std::string reason;
  if (!JitCompiler::instance().available(&reason)) GTEST_SKIP() << reason;
  for (const char* const target : {"", "avx2"})
    for (const auto& [rank, wide] : {std::pair{3u, false}, {3u, true}, {4u, false}, {4u, true}}) {
      const Kernel kernel = three_operands(rank);
      verify(kernel);
      ASSERT_TRUE(may_exchange_axes(kernel));
      const auto code = exchanging_executable(
          kernel, executable_from_object(JitCompiler::instance().object_for(kernel, nullptr, target, {.wide = wide})));
      std::vector<unsigned> order(rank), other(rank);
      std::iota(order.begin(), order.end(), 0u);
      do {
        other = order;
        std::rotate(other.begin(), other.begin() + 1, other.end());
        for (const std::int64_t size : {3, 17, 40}) {
          std::vector<std::int64_t> sizes(rank, size == 40 && rank == 4 ? 9 : size);
          sizes.back() = 67, sizes[rank - 3] = 20;
          std::vector<std::int64_t> strides;
          std::vector<std::vector<float>> memory;
          std::vector<unsigned> in_order(rank);
          std::iota(in_order.begin(), in_order.end(), 0u);
          for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
            const auto here = strides_in(a == 0 ? order : a == 1 ? other : in_order, sizes, kernel.accesses[a].axes);
            strides.insert(strides.end(), here.begin(), here.end());
            std::int64_t elements = 1;
            for (unsigned axis = 0; axis < rank; ++axis)
              if ((kernel.accesses[a].axes >> axis & 1u) != 0) elements *= sizes[axis];
            memory.emplace_back(static_cast<std::size_t>(elements));
            for (std::size_t i = 0; i < memory.back().size(); ++i)
              memory.back()[i] = static_cast<float>((i * 7919 + a * 13) % 1009) - 500;
          }
          std::vector<float> expected(memory[3].size());
          const std::vector<std::int64_t> offsets(kernel.accesses.size(), 0);
          const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end() - 1, std::int64_t{1}, std::multiplies());
          void* pointers[] = {memory[0].data(), memory[1].data(), memory[2].data(), expected.data()};
          KernelLaunch launch{pointers, sizes.data(), strides.data(), offsets.data(), nullptr, 0, rows,
                              0,        sizes.back()};
          interpret(kernel, launch);
          pointers[3] = memory[3].data();
          for (const auto& [begin, end] : {std::pair{std::int64_t{0}, rows / 3}, {rows / 3, rows}}) {  // two threads
            launch.row_begin = begin, launch.row_end = end;
            code->launch(launch);
          }
          ASSERT_EQ(memory[3], expected) << target << " rank " << rank << " size " << size;
        }
      } while (std::ranges::next_permutation(order).found);
    }
}

TEST(ExchangedAxes, ReductionsAndMatricesKeepTheirs) {
  Kernel kernel = three_operands(2);
  EXPECT_FALSE(may_exchange_axes(kernel));
  kernel = three_operands(3);
  for (std::size_t a = 0; a < 3; ++a) kernel.accesses[a].unit_stride = true;
  EXPECT_FALSE(may_exchange_axes(kernel));
}

}  // namespace
}  // namespace fermata
