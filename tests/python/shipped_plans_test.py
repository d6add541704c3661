"""Tests that plans travel in a file, without compiled kernels, and that a file from anywhere is checked."""

import contextlib
import json
import os
import random
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np

import millrace
from millrace import plan_cache

PROGRAM = """
import numpy as np
from millrace.numpy import float64

B = 3


def doubled(x: float64[B, B]):
    return x * 2
"""
OTHER = PROGRAM.replace("x * 2", "x * 3")


class ShippedPlansTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "plans"
        found = mock.patch.object(plan_cache, "_found", {})
        found.start()
        self.addCleanup(found.stop)

    def user(self, name: str):
        """A context with the cache of another user."""
        (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        return mock.patch.dict(os.environ, MILLRACE_CACHE_DIR=str(self.folder / name))

    def export(self) -> str:
        with self.user("first"):
            plan = millrace.find_plan(PROGRAM, {"B": 4}, "float64", threads=1)
            self.assertEqual(millrace.export_plans(self.file), 1)
        return plan

    def changed(self, change) -> None:
        """Rewrites the file."""
        with zipfile.ZipFile(self.file) as archive:
            machine, plan = (json.loads(archive.read(f"0/{name}.json")) for name in ("machine", "plan"))
        change(machine, plan)
        with zipfile.ZipFile(self.file, "w") as archive:
            archive.writestr("0/machine.json", json.dumps(machine))
            archive.writestr("0/plan.json", json.dumps(plan))

    def test_a_plan_travels_without_kernels(self):
        plan = self.export()
        with zipfile.ZipFile(self.file) as archive:
            self.assertEqual(sorted(archive.namelist()), ["0/machine.json", "0/plan.json"])
        with self.user("second"):
            told = millrace.load_plans(self.file)
            self.assertEqual(told.left_out, [])
            with mock.patch.object(plan_cache, "_make", side_effect=AssertionError("made again")):
                found = millrace.find_plan(PROGRAM, {"B": 4}, "float64", threads=1)
            self.assertEqual([found], told.loaded)
            self.assertEqual((Path(found, "plan.json").read_text()), Path(plan, "plan.json").read_text())
            results, _ = millrace.Plan(found).forward([np.eye(4)])
            np.testing.assert_array_equal(results[0], 2 * np.eye(4))
            self.assertEqual(millrace.load_plans(self.file).loaded, told.loaded, "a second time it stays")

    def test_a_plan_of_another_processor(self):
        self.export()
        self.changed(lambda machine, plan: machine.update(hardware="another"))
        self.expect_left_out("it was made for another processor")

    def test_a_plan_that_was_changed(self):
        self.export()
        self.changed(lambda machine, plan: plan["program"].update(text=OTHER))
        self.expect_left_out("")

    def test_a_plan_under_another_device(self):
        self.export()
        self.changed(lambda machine, plan: machine.update(device="cuda"))
        self.expect_left_out("it is for cpu, not for cuda")

    def test_nonsense(self):
        self.export()
        self.changed(lambda machine, plan: machine.update(kind="../../default"))
        self.expect_left_out("its kind is '../../default'")
        self.changed(lambda machine, plan: plan.pop("program"))
        self.expect_left_out("")
        self.file.write_text("plans")
        with self.assertRaisesRegex(millrace.MillraceError, "is not a file of plans .*; write one with export_plans"):
            millrace.load_plans(self.file)
        with self.assertRaisesRegex(millrace.MillraceError, "nowhere is not a file of plans"):
            millrace.load_plans(self.folder / "nowhere")

    def test_damaged_files(self):
        """Whatever is wrong in the file, its plans are left out."""
        self.export()
        whole = self.file.read_bytes()
        chance = random.Random(1)
        with self.user("second"):
            for _ in range(400):
                damaged = bytearray(whole)
                for _ in range(chance.randint(1, 3)):
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
                self.file.write_bytes(damaged)
                with contextlib.suppress(millrace.MillraceError):
                    millrace.load_plans(self.file)

    def test_json_that_nests_deeply(self):
        self.export()
        for name in ("0/machine.json", "0/plan.json"):
            with zipfile.ZipFile(self.file) as archive:
                texts = {other: archive.read(other) for other in archive.namelist()}
            texts[name] = b"[" * 1_000_000
            with zipfile.ZipFile(self.folder / "deep", "w", zipfile.ZIP_DEFLATED) as archive:
                for other, text in texts.items():
                    archive.writestr(other, text)
            with self.user("second"):
                self.assertEqual(len(millrace.load_plans(self.folder / "deep").left_out), 1)

    def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_file(self):
        self.export()
        (self.folder / "second").mkdir(mode=0o700)
        (self.folder / "second/plans").write_text("a file in place of the folder")
        with self.user("second"), self.assertRaises(FileExistsError):
            millrace.load_plans(self.file)

    def test_devices_pipes_and_links_stay(self):
        self.export()
        (self.folder / "null").symlink_to("/dev/null")
        (self.folder / "link").symlink_to("target")
        for name in ("null", "link"):
            with self.user("first"):
                self.assertEqual(millrace.export_plans(self.folder / name), 1)
            self.assertTrue((self.folder / name).is_symlink())
        self.assertTrue(Path("/dev/null").is_char_device())
        self.assertTrue(zipfile.is_zipfile(self.folder / "target"))
        os.mkfifo(self.folder / "pipe")
        reader = threading.Thread(target=lambda: (self.folder / "read").write_bytes((self.folder / "pipe").read_bytes()))
        reader.start()
        with self.user("first"):
            millrace.export_plans(self.folder / "pipe")
        reader.join()
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertTrue(zipfile.is_zipfile(self.folder / "read"))

    def expect_left_out(self, why: str) -> None:
        with self.user("second"):
            told = millrace.load_plans(self.file)
            self.assertEqual(told.loaded, [])
            self.assertIn(f"plan 0 was left out: {why}", str(told))
            self.assertEqual(list((self.folder / "second").glob("plans/*/*/plan.json")), [])

    def test_nothing_to_export(self):
        with self.assertRaisesRegex(millrace.MillraceError, "no plan was used yet"):
            millrace.export_plans(self.file)


if __name__ == "__main__":
    unittest.main()
