"""Runs scripts/check_layers.py over small trees, good and bad: it must name each bad include, and only those."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/check_layers.py"
FOLDERS = ["ir", "runtime", "dispatch", "passes", "codegen_cpu", "codegen_cuda", "frontend/run", "frontend/include/fermata"]


def run(files):
    """Exit status and printed lines for a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
            (root / folder / "there.h").write_text("// A header that exists.\n")
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.splitlines()


class CheckLayers(unittest.TestCase):
    def accepts(self, path, include):
        status, lines = run({path: f"// A file.\n#include {include}\n"})
        self.assertEqual((status, lines), (0, ["layers: every include and name is allowed"]), (path, include))

    def rejects(self, path, include, why):
        status, lines = run({path: f"// A file.\n#  include {include}\n"})
        target = include.strip('"<>')
        self.assertEqual((status, lines), (1, [f"{path}:2: includes {target}: {why}"]))

    def accepts_line(self, path, line):
        status, lines = run({path: f"// A file.\n{line}\n"})
        self.assertEqual((status, lines), (0, ["layers: every include and name is allowed"]), (path, line))

    def rejects_line(self, path, line, name, why):
        status, lines = run({path: f"// A file.\n{line}\n"})
        self.assertEqual((status, lines), (1, [f"{path}:2: names {name}: {why}"]), (path, line))

    def test_passes_and_the_runtime_name_no_backend(self):
        for path, who in [("passes/a.cpp", "passes ask"), ("runtime/steps/a.h", "the runtime asks")]:
            why = f"{who} for a capability (runtime/backend_capabilities.h)"
            self.rejects_line(path, "if (plan.backend != BackendKey::cpu) return;", "BackendKey::cpu", why)
            self.rejects_line(path, "BackendKey backend = BackendKey::cuda;", "BackendKey::cuda", why)
            self.accepts_line(path, "BackendKey backend{};  // as BackendKey::cpu")
        self.accepts_line("dispatch/a.cpp", "if (key == BackendKey::cpu) return;")

    def test_the_runtime_names_no_op(self):
        why = "the runtime asks what an op is like"
        self.rejects_line("runtime/steps/a.cpp", "case Op::convolution: return true;", "Op::convolution", why)
        self.accepts_line("runtime/a.cpp", "node.op = Op::input;")
        self.accepts_line("passes/a.cpp", "return n.op == Op::update;")

    def test_downwards_is_allowed(self):
        for path in ["runtime/a.h", "dispatch/a.cpp", "passes/a.cpp", "codegen_cpu/jit/a.cpp", "frontend/a.cpp"]:
            self.accepts(path, '"ir/there.h"')
        self.accepts("passes/a.cpp", '"dispatch/there.h"')
        self.accepts("frontend/a.cpp", '"passes/there.h"')
        self.accepts("frontend/a.cpp", "<fermata/there.h>")
        self.accepts("frontend/include/fermata/a.h", '"runtime/there.h"')

    def test_upwards_is_not(self):
        self.rejects("ir/a.h", '"runtime/there.h"', "ir may include only ir")
        self.rejects("ir/a.h", '"fermata/there.h"', "ir may include only ir")
        self.rejects("runtime/a.h", '"dispatch/there.h"', "runtime may include only ir, runtime")
        self.rejects("dispatch/a.cpp", '"passes/there.h"', "dispatch may include only dispatch, ir, runtime")
        self.rejects("passes/a.cpp", '"frontend/include/fermata/there.h"',
                     "passes may include only dispatch, ir, passes, runtime")

    def test_code_generators_know_neither_passes_nor_each_other(self):
        why = "codegen_cpu may include only codegen_cpu, dispatch, ir, runtime"
        self.rejects("codegen_cpu/eager/a.cpp", '"passes/there.h"', why)
        self.rejects("codegen_cpu/a.cpp", '"codegen_cuda/there.h"', why)

    def test_one_file_registers_the_backends(self):
        self.accepts("frontend/engine/context.cpp", '"codegen_cpu/there.h"')
        self.rejects("frontend/other.cpp", '"codegen_cpu/there.h"',
                     "frontend may include only dispatch, frontend, frontend/run, ir, passes, runtime")

    def test_public_headers_see_what_is_installed(self):
        self.rejects("frontend/include/fermata/a.h", '"passes/there.h"',
                     "a public header sees only public headers, dispatch, ir, runtime")

    def test_third_parties_stay_where_they_belong(self):
        self.accepts("codegen_cpu/jit/a.cpp", '"llvm/IR/Module.h"')
        self.rejects("codegen_cpu/a.cpp", '"llvm/IR/Module.h"', "LLVM headers belong under codegen_cpu/jit")
        self.rejects("runtime/a.h", "<cuda.h>", "CUDA headers belong under codegen_cuda")
        self.rejects("dispatch/a.h", "<oneapi/dnnl/dnnl.hpp>", "oneDNN and libxsmm headers belong under codegen_cpu/library")
        self.accepts("ir/a.h", "<vector>")
        self.accepts("ir/a.cpp", "<fmt/format.h>")
        self.rejects("ir/a.cpp", "<sys/mman.h>", "ir leans on the standard library, fmt and xxHash only")

    def test_includes_start_at_the_root(self):
        why = "no such header from the root of the source tree"
        self.rejects("ir/a.h", '"there.h"', why)
        self.rejects("runtime/a.h", '"ir/gone.h"', why)


if __name__ == "__main__":
    unittest.main()
