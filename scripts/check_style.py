#!/usr/bin/env python3
"""Checks sizes of files and functions, paths of one machine, deferred work, the first line of each file, and fermata.h.

usage: check_style.py [ROOT]

Errors fail. Notes ask a question (style: "what is the second thing in there?") and do not.
"""
import pathlib
import re
import sys

FOLDERS = ["ir", "runtime", "dispatch", "passes", "codegen_cpu", "codegen_cuda", "run", "frontend", "tests", "bench", "examples",
           "scripts", "cmake", "docs", ".ci"]
SOURCE = {".h", ".cpp", ".def", ".cu"}
TEXT = SOURCE | {".py", ".sh", ".cmake", ".txt", ".md", ".ir", ".in", ".json", ""}
MAX_FILE, MAX_FUNCTION, MAX_LINE = 600, 80, 120
# Places of one machine, spelled so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|Users|workspace|wor[k])/\w")
DEFERRED = re.compile(r"\b(TOD[O]|FIXM[E]|HAC[K]|XX[X])\b(?!\()")
GETENV = re.compile(r"\b(secure_)?getenv\(")
PUBLIC = "frontend/include/fermata"
ENGINE_FOLDERS = {"ir", "runtime", "dispatch", "passes", "codegen_cpu", "codegen_cuda", "run", "frontend"}
OPENS_BODY = re.compile(r"^( *)(?!namespace|extern|struct|class|enum|union|//|#)\S.*\).*\{$")


def functions(lines):
    """(first line, length) of each block that looks like a function body, by indentation."""
    for start, line in enumerate(lines):
        match = OPENS_BODY.match(line)
        if not match or re.match(r"\s*(if|for|while|switch|else|do|}|return|case)\b", line):
            continue
        closing = match.group(1) + "}"
        for end in range(start + 1, len(lines)):
            if lines[end].startswith(closing) and not lines[end].startswith(closing + " else"):
                yield start + 1, end - start + 1
                break


def check(path, lines, in_engine):
    """(is an error, line, text) of each finding."""
    if path.suffix in SOURCE:
        if len(lines) > MAX_FILE:
            yield True, 1, f"{len(lines)} lines, more than {MAX_FILE}: what is the second thing in there?"
        if lines and not lines[0].startswith(("//", "/*")):
            yield True, 1, "a file opens with what it is for"
        for number, length in functions(lines):
            if length > MAX_FUNCTION:
                yield False, number, f"a function of {length} lines"
    for number, line in enumerate(lines, 1):
        if path.suffix in SOURCE - {".def"} and len(line) > MAX_LINE:
            yield False, number, f"{len(line)} columns, more than {MAX_LINE}"
        if in_engine and GETENV.search(line) and path.name != "environment.cpp":
            yield True, number, "the environment is read by runtime/environment.h"
        if MACHINE_PATH.search(line):
            yield True, number, "a path of one machine"
        if path.suffix in SOURCE | {".py", ".sh", ".cmake"} and DEFERRED.search(line):
            yield True, number, "deferred work without a reason"
        if path.suffix in SOURCE and (line.endswith((" ", "\t")) or "\t" in line):
            yield True, number, "a tab, or space at the end of a line"


def unlisted_headers(folder):
    """Public headers that fermata.h neither includes nor lists as separate."""
    all_in_one = folder / "fermata.h"
    reached, todo = set(), [all_in_one]
    while todo:
        header = todo.pop()
        if header in reached or not header.is_file():
            continue
        reached.add(header)
        todo += [folder / name for name in re.findall(r'#include "fermata/([^"]+)"', header.read_text(encoding="utf-8"))]
    listed = set(re.findall(r"\w+\.h", all_in_one.read_text(encoding="utf-8").split("#pragma once")[0]))
    return sorted(h.name for h in folder.glob("*.h") if h not in reached and h.name not in listed)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*")) if file.is_file()]
    files += [file for file in sorted(root.iterdir()) if file.is_file() and file.name != ".git"]
    errors = 0
    for file in files:
        if file.suffix not in TEXT:
            continue
        for is_error, number, text in check(file, file.read_text(encoding="utf-8").splitlines(),
                                            file.relative_to(root).parts[0] in ENGINE_FOLDERS):
            errors += is_error
            print(f"{file.relative_to(root)}:{number}: {'error' if is_error else 'note'}: {text}")
    for name in unlisted_headers(root / PUBLIC):
        errors += 1
        print(f"{PUBLIC}/{name}:1: error: fermata.h neither includes this header nor lists it as separate")
    print(f"style: {errors} errors in {len(files)} files")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
