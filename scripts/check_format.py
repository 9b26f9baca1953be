#!/usr/bin/env python3
"""Checks that clang-format 14 does not change any C++ file. Other versions format differently and are not used.

usage: check_format.py [--fix] [ROOT]
"""
import pathlib
import re
import shutil
import subprocess
import sys

FOLDERS = ["ir", "runtime", "dispatch", "passes", "codegen_cpu", "codegen_cuda", "run", "frontend", "tests", "bench", "examples"]
VERSION = 14


def tool():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return name
    return None


def main():
    fix = "--fix" in sys.argv[1:]
    rest = [a for a in sys.argv[1:] if a != "--fix"]
    root = pathlib.Path(rest[0] if rest else pathlib.Path(__file__).parent.parent).resolve()
    program = tool()
    if program is None:
        print(f"format: clang-format {VERSION} was not found, so nothing was checked")
        return 0
    files = sorted(str(f) for folder in FOLDERS for f in (root / folder).rglob("*") if f.suffix in {".h", ".cpp", ".cu"})
    if fix:
        return subprocess.run([program, "-i", *files], check=False).returncode
    found = subprocess.run([program, "--dry-run", "-Werror", *files], capture_output=True, text=True, check=False)
    wrong = sorted({line.split(":")[0] for line in found.stderr.splitlines() if "error:" in line})
    for file in wrong:
        print(f"{pathlib.Path(file).relative_to(root)}: clang-format would change it: scripts/check_format.py --fix")
    print(f"format: {len(wrong)} of {len(files)} files differ from clang-format")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
