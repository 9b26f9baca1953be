// Epilogues that cuBLASLt has: a bias for each column, relu, gelu.
//
// They are recognized by what they compute, not by what it was called: the program of a kernel is compared with those
// of the library's epilogues, which are put together from the formulas of the op table.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen_cuda/library/matmul.h"
#include "ir/kernel.h"

namespace fermata::gpu {

struct KernelEpilogue {
  MatmulEpilogue epilogue;
  std::uint16_t product;  // accesses of the kernel
  std::optional<std::uint16_t> bias;
  std::uint16_t result;
};

/// What a kernel is as the epilogue of a product; nothing where the library has none like it. Which access is the
/// product, and that a bias has one element for each column, is known when it is launched.
std::optional<KernelEpilogue> epilogue_of(const Kernel& kernel);

/// The product and its epilogue (runtime/tensor_view.h) as one, where that can be: true if both have been started.
bool matmul_with_epilogue(const CallArgs& args);

}  // namespace fermata::gpu
