#!/usr/bin/env python3
"""Checks the codes of errors: each has one meaning, which docs/errors.md gives.

usage: check_errors.py [ROOT]

A code has one entry in docs/errors.md, is thrown as one class, and that class is the one of its range. Prints one line
for each breach, then fails.
"""
import collections
import pathlib
import re
import sys

FOLDERS = ["ir", "runtime", "dispatch", "passes", "codegen_cpu", "codegen_cuda", "frontend"]
CLASSES = {
    10: {"ShapeError"}, 11: {"DTypeError"}, 12: {"IndexError"}, 13: {"ValueError"}, 14: {"DeviceError", "ValueError"},
    15: {"ParseError", "ValueError", "UnsupportedError"}, 16: {"FileError"}, 17: {"UserError", "GradientError", "ShapeError", "ValueError"},
    20: {"UnsupportedError"}, 21: {"UnsupportedError"}, 22: {"FileError", "ValueError", "UnsupportedError"},
    23: {"UnsupportedError", "FileError", "ValueError"}, 24: {"ValueError"}, 27: {"UnsupportedError"}, 30: {"OutOfMemoryError"},
    57: {"UnsupportedError", "ValueError"},
    70: {"CollectiveError", "ValueError", "ShapeError", "UnsupportedError"},
    71: {"CollectiveError", "ValueError", "ShapeError", "UserError"},
    90: {"InternalError"}, 91: {"InternalError"},
}
THROWN = re.compile(r"\b(?:throw\s+|fail<)(?:\w+::)?(\w*Error)\b\s*(?:>\s*)?\(\s*(\d{4})\b")
USED = re.compile(r"(?<![\w.])(\d{4})(?![\w.])")
ENTRY = re.compile(r"^## FM(\d{4})$")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    page = (root / "docs/errors.md").read_text().splitlines()
    entries = collections.Counter(int(m.group(1)) for m in map(ENTRY.match, page) if m)
    classes, used, breaches = collections.defaultdict(set), set(), []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in {".h", ".cpp", ".def"}:
                continue
            text = file.read_text()
            used |= {int(code) for code in USED.findall(text)}
            for match in THROWN.finditer(text):
                code, where = int(match.group(2)), f"{file.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
                classes[code].add(match.group(1))
                if code not in entries:
                    breaches.append(f"{where}: FM{code} has no entry in docs/errors.md")
                if match.group(1) not in CLASSES.get(code // 100, set()):
                    breaches.append(f"{where}: FM{code} is thrown as {match.group(1)}")
    for code, count in sorted(entries.items()):
        if count > 1:
            breaches.append(f"docs/errors.md: FM{code} has {count} entries: a code has one meaning")
        if code not in used:
            breaches.append(f"docs/errors.md: FM{code} is never thrown")
    for code, names in sorted(classes.items()):
        if len(names) > 1:
            breaches.append(f"FM{code} is thrown as {', '.join(sorted(names))}: a code has one meaning")
    print("\n".join(breaches) if breaches else "errors: every code has one meaning")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
