"""Each configure preset whose compiler is here configures: presets_test.py CMAKE SOURCE_DIR

And what a source does where a library is missing compiles: those of the preset that has none of them.
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile


def compiler_of(preset, presets):
    while preset:
        compiler = preset.get("cacheVariables", {}).get("CMAKE_CXX_COMPILER")
        if compiler:
            return compiler
        preset = presets.get(preset.get("inherits"))
    return None


WITHOUT_LIBRARIES = "cuda-only"


def does_not_compile(build):
    """The sources with a part for a library that is missing, as this build compiles them, that have errors."""
    failed = []
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        text = pathlib.Path(entry["file"]).read_text()
        if not re.search(r"^#if FERMATA_\w+$(?s:.*)^#else$", text, re.MULTILINE):
            continue
        words = shlex.split(entry["command"])
        del words[words.index("-o"):words.index("-o") + 2]
        words = [word for word in words if word != "-Winvalid-pch"]
        run = subprocess.run([*words, "-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(run.stderr[-2000:])
            failed.append(entry["file"])
    return failed


def main(cmake, source):
    if not shutil.which("ninja"):
        print("skipped: ninja was not found")
        return 0
    described = json.loads(pathlib.Path(source, "CMakePresets.json").read_text())["configurePresets"]
    presets = {preset["name"]: preset for preset in described}
    failed = 0
    for name, preset in presets.items():
        compiler = compiler_of(preset, presets)
        if preset.get("hidden"):
            continue
        if compiler and not shutil.which(compiler):
            print(f"{name}: not tried, {compiler} was not found")
            continue
        with tempfile.TemporaryDirectory() as build:
            run = subprocess.run([cmake, "--preset", name, "-B", build], cwd=source, capture_output=True, text=True)
            if name == WITHOUT_LIBRARIES and run.returncode == 0:
                wrong = does_not_compile(build)
                print(f"{name}: {'FAILED: ' + ', '.join(wrong) if wrong else 'compiles without libraries'}")
                failed += len(wrong)
        print(f"{name}: {'configures' if run.returncode == 0 else 'FAILED'}")
        if run.returncode != 0:
            print(run.stdout[-4000:], run.stderr[-4000:])
            failed += 1
    return failed


sys.exit(main(*sys.argv[1:]))
