"""Tests `millrace doctor`: what it finds, what it says about what is missing, and that it creates nothing."""

import json
import os
import platform
import subprocess
import tempfile
import unittest
from pathlib import Path

from command_test_case import BINARY, EMULATED_GPU

BACKEND = Path(BINARY).with_name("libmillrace_cuda.so")
NAMES = ["processor", "half precision", "threads", "load", "governor", "compiler", "OpenBLAS", "BLIS", "oneDNN", "MKL",
         "SQLite", "cache", "data", "GPU", "GPU backend", "CUDA driver", "NVRTC", "cuBLASLt", "cuDNN"]


class DoctorTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def doctor(self, *arguments: str, **environment: str) -> str:
        places = {"MILLRACE_CACHE_DIR": str(self.folder / "cache"), "MILLRACE_DATA_DIR": str(self.folder / "data")}
        done = subprocess.run([BINARY, "doctor", *arguments], env={**os.environ, **places, **environment},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def findings(self, **environment: str) -> dict:
        return {one["name"]: one for one in json.loads(self.doctor("--json", **environment))["findings"]}

    def test_every_line(self) -> None:
        lines = self.doctor().splitlines()
        self.assertRegex(lines[0], r"^Millrace \d+\.\d+\.\d+$")
        width = max(map(len, NAMES)) + 2
        self.assertEqual([line[:width].rstrip() for line in lines[1:]], NAMES)
        for line in lines[1:]:
            self.assertTrue(line[width:].strip(), line)
        self.assertRegex(lines[1], r", \d+ cores?, .+ of cache, .+ of memory$")
        self.assertRegex(lines[4], "quiet|busy: other processes use .* of the .* cores")
        self.assertIn("++", lines[6])

    def test_json_says_the_same(self) -> None:
        report = json.loads(self.doctor("--json"))
        self.assertEqual(report["schema_version"], 1)
        self.assertEqual([one["name"] for one in report["findings"]], NAMES)
        self.assertGreaterEqual(report["processor"]["cores"], 1)
        for one in report["findings"]:
            self.assertEqual(one["there"], not one["missing"], one)
        self.assertEqual(report["gpu"] is not None, {one["name"]: one["there"] for one in report["findings"]}["GPU"])

    def test_folders(self) -> None:
        found = self.findings()
        self.assertEqual(found["cache"]["what"], "not created yet")
        self.assertEqual(list(self.folder.iterdir()), [], "doctor creates nothing")
        cache = self.folder / "cache"
        cache.mkdir(mode=0o700)
        (cache / "file").write_bytes(bytes(2048))
        self.assertEqual(self.findings()["cache"]["what"], "2.0 KiB")
        cache.chmod(0o777)
        self.assertIn("other users may write", self.findings()["cache"]["missing"])

    def test_a_missing_compiler(self) -> None:
        self.assertIn("apt-get install g++", self.findings(MILLRACE_CXX="/no/compiler")["compiler"]["missing"])

    def test_what_each_library_multiplies(self) -> None:
        found = self.findings()
        for name in ("OpenBLAS", "BLIS", "oneDNN", "MKL"):
            self.assertTrue(not found[name]["there"] or "float32" in found[name]["what"], found[name])

    def test_a_missing_or_foreign_onednn(self) -> None:
        missing = self.findings(MILLRACE_ONEDNN="/no/libdnnl.so.3")["oneDNN"]["missing"]
        self.assertIn("/no/libdnnl.so.3", missing)
        self.assertIn("apt-get install libdnnl", missing)
        self.assertIn("lacks a function", self.findings(MILLRACE_ONEDNN="libm.so.6")["oneDNN"]["missing"])

    def test_a_missing_or_foreign_mkl(self) -> None:
        missing = self.findings(MILLRACE_MKL="/no/libmkl_rt.so.3")["MKL"]["missing"]
        self.assertIn("/no/libmkl_rt.so.3", missing)
        self.assertIn("pip install mkl", missing)
        self.assertIn("lacks a function", self.findings(MILLRACE_MKL="libm.so.6")["MKL"]["missing"])

    def test_a_missing_or_foreign_backend(self) -> None:
        found = self.findings(MILLRACE_CUDA_BACKEND="/no/backend.so")
        self.assertIn("/no/backend.so", found["GPU backend"]["missing"])
        self.assertFalse(found["GPU"]["there"])
        self.assertEqual(found["NVRTC"]["missing"], "not searched")
        if platform.system() == "Linux":
            found = self.findings(MILLRACE_CUDA_BACKEND="libm.so.6")
            self.assertIn("not a Millrace backend", found["GPU backend"]["missing"])

    @unittest.skipUnless(BACKEND.exists(), "the GPU backend was not built")
    def test_what_a_gpu_needs(self) -> None:
        found = self.findings()
        self.assertEqual(found["GPU backend"]["path"], str(BACKEND.resolve()))
        driver, gpu = found["CUDA driver"], found["GPU"]
        if gpu["there"]:
            self.check_gpu(found)
        elif driver["there"]:
            self.assertRegex(driver["what"], r"^\d+\.\d+$")
            self.assertNotIn("install NVIDIA's driver", gpu["missing"])
        else:
            self.assertIn("libcuda.so.1", driver["missing"])
            self.assertIn("install NVIDIA's driver", gpu["missing"])

    def test_a_gpu(self) -> None:
        self.check_gpu(self.findings(MILLRACE_CUDA_BACKEND=EMULATED_GPU))

    def check_gpu(self, found: dict) -> None:
        self.assertRegex(found["GPU"]["what"], r"^.+, sm_\d+, \d+ multiprocessors, .+ of memory, .+ of L2 cache, \d+ MHz")
        self.assertRegex(found["CUDA driver"]["what"], r"^\d+\.\d+$")
        self.assertTrue(found["CUDA driver"]["path"])


if __name__ == "__main__":
    unittest.main()
