// Names of compiled kernels for tools that look at the process from outside.
//
// A debugger learns of every kernel by GDB's JIT interface, which LLDB knows, too
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html). FERMATA_CODE_SYMBOLS=perf writes
// /tmp/perf-PID.map, which `perf report` reads; jitdump writes /tmp/jit-PID.dump for `perf record -k mono` and
// `perf inject --jit`, which has the code, too.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace fermata {

/// The name of some code, known to the tools while this exists.
class CodeSymbol {
 public:
  CodeSymbol(std::string_view name, std::span<const std::byte> code);
  ~CodeSymbol();
  CodeSymbol(const CodeSymbol&) = delete;
  CodeSymbol& operator=(const CodeSymbol&) = delete;

 private:
  struct DebuggerEntry;
  std::unique_ptr<DebuggerEntry> entry_;
};

}  // namespace fermata
