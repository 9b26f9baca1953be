#!/usr/bin/env python3
"""Refuses static and thread-local objects with destructors in a shared library.

    scripts/check_statics.py LIBRARY ...

At the end of a process a thread of the engine, or a static object of the program, may still use what is static in the
library. So nothing static there is destroyed: `static auto& x = *new X;`. This lists the functions that register a
destructor; calls of std::atexit are allowed. Objects of a thread are used after their end in the same way: they are
declared as PerThread (ir/per_thread.h). Needs objdump, and x86-64 code.
"""
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
REGISTERS = re.compile(r"\b(?:call|jmp)q? .*<__cxa_(?:thread_)?atexit(?:@plt)?>")
ALLOWED = {"atexit", "__cxa_atexit@plt", "__cxa_thread_atexit@plt"}
# The blocks of a thread know when it has ended, and the stand-in for NCCL is for tests.
MAY_REGISTER = re.compile(
    r"^fermata::(?:PerThread<.*>::make\(\)|SharedBlocks::enter\(\)|gpu::\(anonymous namespace\)::nccl_)"
)


def functions_with_statics(library):
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", library]
    found, function = [], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            if match := FUNCTION.match(line):
                function = match[1]
            elif "_atexit" in line and REGISTERS.search(line) and function not in ALLOWED and not MAY_REGISTER.match(function):
                found.append(function)
    if process.returncode != 0:
        sys.exit(f"check_statics: objdump cannot read {library}")
    return found


def main(libraries):
    if shutil.which("objdump") is None:
        print("check_statics: skipped: objdump was not found")
        return 77
    failed = False
    for library in libraries:
        for function in functions_with_statics(library):
            print(f"{library}: {function}: registers a destructor: write static auto& x = *new X; or static constinit thread_local PerThread<X> x;")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
