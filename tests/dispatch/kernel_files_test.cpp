// Kernels that register themselves: all files of a backend have joined when it is registered.
#include "dispatch/kernel_files.h"

#include <gtest/gtest.h>

#include "ir/error.h"

namespace fermata {
namespace {

TEST(KernelFiles, OneThatComesLateIsAnError) {
  const auto add = +[] {};
  EXPECT_THROW(KernelFile(BackendKey::cpu, add), InternalError);
}

TEST(KernelFiles, KernelsAreListedWhereTheyAre) {
  const std::string variants = describe_variants(Op::sort);
  EXPECT_NE(variants.find("irregular/sort.cpp:"), variants.npos) << variants;
}

}  // namespace
}  // namespace fermata
