// What tests of generated code for one instruction set need.
#pragma once

#include <string>

#include "codegen_cpu/jit_compiler.h"

namespace fermata::test {

/// Why code for an instruction set cannot be compiled, or not be run here; empty if it can.
inline std::string why_not_for(const std::string& target) {
  std::string reason;
  if (!JitCompiler::instance().available(&reason)) return reason;
  const bool runs = target != "avx512" || JitCompiler::target() == "avx512";
  return runs ? std::string() : "this machine runs " + std::string(JitCompiler::target());
}

}  // namespace fermata::test
