#!/usr/bin/env python3
"""Refuses static objects with destructors in a shared library.

    scripts/check_statics.py LIBRARY ...

At the end of a process a thread of the engine, or a static object of the program, may still use what is static in the
library. So nothing static there is destroyed: `static auto& x = *new X;`. This lists the functions that register a
destructor; calls of std::atexit are allowed. Needs objdump, and x86-64 code.
"""
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
REGISTERS = re.compile(r"\b(?:call|jmp)q? .*<__cxa_atexit(?:@plt)?>")
ALLOWED = {"atexit", "__cxa_atexit@plt"}


def functions_with_statics(library):
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", library]
    found, function = [], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            if match := FUNCTION.match(line):
                function = match[1]
            elif "__cxa_atexit" in line and REGISTERS.search(line) and function not in ALLOWED:
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
            print(f"{library}: {function}: registers a destructor of a static object: write static auto& x = *new X;")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
