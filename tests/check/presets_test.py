"""Each configure preset whose compiler is here configures: presets_test.py CMAKE SOURCE_DIR"""
import json
import pathlib
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
        print(f"{name}: {'configures' if run.returncode == 0 else 'FAILED'}")
        if run.returncode != 0:
            print(run.stdout[-4000:], run.stderr[-4000:])
            failed += 1
    return failed


sys.exit(main(*sys.argv[1:]))
