// Epilogues supported by cuBLASLt: a bias per column, relu, gelu.
//
// They are recognized by what they compute, not by op names: the program of a kernel is compared with those of the
// library's epilogues, which are built from the formulas of the op table.
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

/// Returns the library epilogue that a kernel computes, or nullopt if there is none. Which access is the product, and
/// whether the bias has one element per column, is checked at launch.
std::optional<KernelEpilogue> epilogue_of(const Kernel& kernel);

/// Runs a product with its epilogue (runtime/tensor_view.h) as one call if possible; returns whether it was launched.
bool matmul_with_epilogue(const CallArgs& args);

}  // namespace fermata::gpu
