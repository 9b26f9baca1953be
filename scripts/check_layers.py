#!/usr/bin/env python3
"""Checks who includes whom: the folders are layers, and ALLOWED is the rule. And who names what: see NAMELESS.

usage: check_layers.py [ROOT]

Prints one line per include and name that breaks a rule, then fails.
"""
import pathlib
import re
import sys

ALLOWED = {
    "ir": {"ir"},
    "runtime": {"runtime", "ir"},
    "dispatch": {"dispatch", "runtime", "ir"},
    "passes": {"passes", "dispatch", "runtime", "ir"},
    "codegen_cpu": {"codegen_cpu", "dispatch", "runtime", "ir"},
    "codegen_cuda": {"codegen_cuda", "dispatch", "runtime", "ir"},
    # What runs exported programs is linked without the rest of the frontend.
    "frontend/run": {"frontend/run", "codegen_cpu", "dispatch", "runtime", "ir"},
    # Its part for CUDA, which is a library of its own.
    "frontend/run/cuda": {"frontend/run/cuda", "frontend/run", "codegen_cuda", "dispatch", "runtime", "ir"},
    "frontend": {"frontend", "frontend/run", "passes", "dispatch", "runtime", "ir"},
}
# Headers of what a user installs see only installed folders.
PUBLIC = "frontend/include/fermata"
PUBLIC_ALLOWED = {"ir", "runtime", "dispatch"}
# The one file that names the backends.
REGISTERS_BACKENDS = "frontend/engine/context.cpp"
# Third-party headers that stay in one place: pattern of the header, folders or files, what it is.
CONFINED = [
    (re.compile(r"llvm(-c)?/"), "codegen_cpu/jit", "LLVM headers"),
    (re.compile(r"(cuda|cuda_runtime|cuda_runtime_api|nvrtc|nvJitLink|cublas\w*)\.h$"), "codegen_cuda", "CUDA headers"),
    (re.compile(r"(oneapi/dnnl/|dnnl|libxsmm)"), "codegen_cpu/library", "oneDNN and libxsmm headers"),
    (re.compile(r"CLI/"), "frontend/cli", "headers of the command line program"),
    (re.compile(r"nlohmann/"), ("frontend/cli", "frontend/tools/io/json.cpp"), "headers of the JSON library"),
    (re.compile(r"(onnx|google/protobuf)/"), "frontend/onnx/schema.h", "headers of ONNX and protocol buffers"),
    (re.compile(r"mpi\.h$"), "frontend/distributed/mpi", "the header of MPI"),
    (re.compile(r"zip\.h$"), "frontend/tools/io/zip_archive.cpp", "the header of libzip"),
]
IR_THIRD_PARTY = re.compile(r"(fmt/.*|xxhash\.h)$")
# What a layer may not name: layer, pattern of the name, files that may, why. `Op::input` is no op: it marks a leaf.
NAMELESS = [
    ("passes", re.compile(r"\bBackendKey::\w+"), set(), "passes ask for a capability (runtime/backend_capabilities.h)"),
    ("runtime", re.compile(r"\bBackendKey::\w+"), set(), "the runtime asks for a capability (runtime/backend_capabilities.h)"),
    ("runtime", re.compile(r"\bOp::(?!input\b)\w+"), set(), "the runtime asks what an op is like"),
]
COMMENT = re.compile(r"//.*")
SUFFIXES = {".h", ".cpp", ".def", ".cu", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def layer_of(path):
    """The longest of the layers that a path lies in, or None."""
    return max((layer for layer in ALLOWED if path.startswith(layer + "/")), key=len, default=None)


def folder_of_include(root, target):
    """The layer that an include names, or None for the standard library and third parties."""
    if target.startswith("fermata/") and (root / "frontend/include" / target).exists():
        return PUBLIC
    layer = layer_of(target)
    return layer if layer is not None and (root / layer).is_dir() else None


def breach(root, path, target, quoted):
    """Why `path` may not include `target`, or None."""
    layer = layer_of(path)
    for pattern, home, what in CONFINED:
        if pattern.match(target):
            homes = (home,) if isinstance(home, str) else home
            return None if any(path == h or path.startswith(h + "/") for h in homes) else f"{what} belong under {' or '.join(homes)}"
    named = folder_of_include(root, target)
    if named is None:
        if quoted:
            return "no such header from the root of the source tree"
        if layer == "ir" and ("/" in target or target.endswith(".h")) and not IR_THIRD_PARTY.match(target):
            return "ir leans on the standard library, fmt and xxHash only"
        return None
    included = "frontend" if named == PUBLIC else named
    if path.startswith(PUBLIC + "/"):
        if named != PUBLIC and named not in PUBLIC_ALLOWED:
            return "a public header sees only public headers, " + ", ".join(sorted(PUBLIC_ALLOWED))
    elif path == REGISTERS_BACKENDS and included.startswith("codegen_"):
        pass
    elif included not in ALLOWED[layer]:
        return f"{layer} may include only {', '.join(sorted(ALLOWED[layer]))}"
    if named != PUBLIC and not (root / target).exists():
        return "no such header from the root of the source tree"
    return None


def named(layer, path, line):
    """What a line may not name, with the reason."""
    for where, pattern, exempt, why in NAMELESS:
        if where == layer and path not in exempt:
            for match in pattern.finditer(COMMENT.sub("", line)):
                yield match.group(), why


def breaches(root):
    for layer in ALLOWED:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                for name, why in named(layer, path, line):
                    yield f"{path}:{number}: names {name}: {why}"
                if match:
                    target = match.group(1) or match.group(2)
                    why = breach(root, path, target, match.group(1) is not None)
                    if why:
                        yield f"{path}:{number}: includes {target}: {why}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = list(breaches(root))
    print("\n".join(found) if found else "layers: every include and name is allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
