// Names of compiled kernels for external debuggers and profilers.
//
// Debuggers are notified of every kernel through GDB's JIT interface, which LLDB also supports
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html). FERMATA_CODE_SYMBOLS=perf writes
// /tmp/perf-PID.map, which `perf report` reads; jitdump writes /tmp/jit-PID.dump for `perf record -k mono` and `perf
// inject --jit`, which also includes the code.
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
