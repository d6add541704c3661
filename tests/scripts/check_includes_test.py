"""check_includes.py sees every kind of violation, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_includes.py")


def check(files):
    """Runs the script on a tree of {path: text}; returns its exit code and its lines."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        outcome = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return outcome.returncode, outcome.stdout.splitlines()


class CheckIncludes(unittest.TestCase):
    def assert_allowed(self, file, include):
        code, lines = check({file: f"#include {include}\n"})
        self.assertEqual(code, 0, f"{file} {include}: {lines}")

    def assert_refused(self, file, include, reason):
        code, lines = check({file: f"// first line\n#  include {include}\n"})
        self.assertEqual(code, 1, f"{file} {include}")
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(f"{file}:2: "), lines)
        self.assertIn(reason, lines[0])

    def test_what_the_table_allows(self):
        self.assert_allowed("src/ir/graph.h", "<vector>")
        self.assert_allowed("src/ir/graph.h", '"ir/dtype.h"')
        self.assert_allowed("src/ir/graph.h", '"base/id.h"')
        self.assert_allowed("src/base/file.h", '"millrace/result.h"')
        self.assert_allowed("src/frontend/parser.cpp", '"ir/graph.h"')
        self.assert_allowed("src/fusion/fuse.cpp", '"autodiff/training_graph.h"')
        self.assert_allowed("src/analysis/flop.cpp", '"autodiff/training_graph.h"')
        self.assert_allowed("src/report/html.cpp", '"select/selection.h"')
        self.assert_allowed("src/report/html.cpp", '"ir/graph.h"')
        self.assert_allowed("src/driver/driver.cpp", '"autodiff/rules.h"')
        self.assert_allowed("src/driver/api.cpp", '"millrace/millrace.h"')
        self.assert_allowed("src/device/cuda/launch.cpp", "<cuda.h>")
        self.assert_allowed("src/codegen/prelude/prelude.cu", "<cuda_fp16.h>")
        self.assert_allowed("tools/millrace.cpp", '"millrace/millrace.h"')
        self.assert_allowed("tools/millrace.cpp", "<CLI/CLI.hpp>")
        self.assert_allowed("tools/usage_error.cpp", '"base/text.h"')
        self.assert_allowed("tests/ir/graph_test.cpp", '"fusion/secret.h"')

    def test_a_stage_sees_no_other_stage(self):
        self.assert_refused("src/ir/graph.cpp", '"frontend/parser.h"', 'ir/ may not include "frontend/parser.h"')
        self.assert_refused("src/base/file.cpp", '"ir/graph.h"', "base/ may not include")
        self.assert_refused("src/reference/run.cpp", '"autodiff/training_graph.h"', "reference/ may not include")
        self.assert_refused("src/select/exact.cpp", '"device/device.h"', "select/ may not include")
        self.assert_refused("src/ir/graph.cpp", "<frontend/parser.h>", "ir/ may not include")

    def test_only_the_artefact_of_an_earlier_stage(self):
        self.assert_refused("src/fusion/fuse.cpp", '"autodiff/rules.h"', 'only "autodiff/training_graph.h"')
        self.assert_refused("src/report/html.cpp", '"plan/arena.h"', 'only "plan/plan.h"')

    def test_the_public_api_is_for_those_outside(self):
        self.assert_refused("src/ir/graph.cpp", '"millrace/millrace.h"', "of the public API")
        self.assert_refused("include/millrace/graph.h", '"ir/graph.h"', "include/ may include only")
        self.assert_refused("tools/millrace.cpp", '"ir/graph.h"', "tools/ may include only")
        self.assert_refused("bindings/torch/op.cpp", '"exec/run.h"', "bindings/ may include only")
        self.assert_refused("examples/embed.cpp", '"exec/run.h"', "examples/ may include only")

    def test_cuda_stays_in_its_folders(self):
        for header in ("<cuda_runtime.h>", "<cuda.h>", "<nvrtc.h>", "<cublasLt.h>", '"cublas_v2.h"'):
            self.assert_refused("src/device/device.cpp", header, "CUDA header")
        self.assert_refused("tools/millrace.cpp", "<cuda.h>", "CUDA header")

    def test_unknown_folders(self):
        self.assert_refused("src/ir/graph.cpp", '"graph.h"', "in no folder of the table")
        self.assert_refused("src/ir/graph.cpp", '"helpers/graph.h"', "in no folder of the table")
        code, lines = check({"src/helpers/graph.cpp": ""})
        self.assertEqual((code, lines), (1, ["src/helpers/graph.cpp:1: src/helpers is not in the table"]))

    def test_every_violation_is_reported(self):
        code, lines = check({"src/ir/a.cpp": '#include "plan/plan.h"\n\n#include "exec/run.h"\n', "src/b.cpp": ""})
        self.assertEqual(code, 1)
        self.assertEqual([line.split(": ")[0] for line in lines], ["src/b.cpp:1", "src/ir/a.cpp:1", "src/ir/a.cpp:3"])


if __name__ == "__main__":
    unittest.main()
