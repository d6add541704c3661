"""Tests shards of an exploration, and millrace.cluster with plain processes and with Ray."""

import importlib.util
import json
import os
import sys
import unittest
from unittest import mock

from command_test_case import BINARY, ROOT, WRONG_USAGE, CommandTest

sys.path.insert(0, str(ROOT / "python"))
from millrace import cluster  # noqa: E402
from millrace._library import MillraceError  # noqa: E402

SMALL = """from millrace import numpy as np

B, I = 6, 5

def small(x: np.float32[B, I], b: np.float32[I]):
    return np.maximum(x + b, 0) * x
"""


def keys(rows: list[dict]) -> set[tuple[str, str]]:
    return {(row["partition"], row["candidate"]) for row in rows}


class ShardTest(CommandTest):
    programs = {"small": SMALL}

    def explored(self, database: str, *options: str) -> list[dict]:
        self.succeed("explore", "small.py", "--exhaustive", "--threads", "1", "--db", database, *options)
        return [json.loads(line) for line in self.succeed("db", "export", "--db", database).splitlines()]

    def test_shards_together_are_one_exploration(self) -> None:
        whole = keys(self.explored("whole.db"))
        shares = [keys(self.explored(f"share{k}.db", "--shard", f"{k}/3")) for k in (1, 2, 3)]
        for first in range(3):
            self.assertTrue(shares[first])
            for second in range(first):
                self.assertFalse(shares[first] & shares[second], "a candidate was tried twice")
        self.succeed("db", "merge", "share1.db", "share2.db", "share3.db", "--db", "all.db")
        merged = keys([json.loads(line) for line in self.succeed("db", "export", "--db", "all.db").splitlines()])
        self.assertEqual(merged, set().union(*shares))
        # A share knows only its own candidates' layouts, so it may leave conversions out; the joined one has them all.
        self.assertLessEqual(merged, whole)
        self.assertEqual(keys(self.explored("all.db")), whole)

    def test_wrong_shards(self) -> None:
        for shard in ("0/2", "3/2", "1", "a/b"):
            self.assertIn("--shard", self.fails(WRONG_USAGE, "explore", "small.py", "--shard", shard))


class ClusterTest(CommandTest):
    programs = {"small": SMALL}

    def setUp(self) -> None:
        super().setUp()
        variables = {name: self.environment[name] for name in ("MILLRACE_DATA_DIR", "MILLRACE_CACHE_DIR")}
        patched = mock.patch.dict(os.environ, {**variables, "MILLRACE": BINARY})
        patched.start()
        self.addCleanup(patched.stop)

    def check(self, workers: cluster.Workers) -> None:
        told: list[cluster.Progress] = []
        database = self.folder / "all.db"
        added = cluster.explore(self.folder / "small.py", database, workers=workers, budget="3s", threads=1,
                                progress=told.append, every=0.1)
        self.assertGreater(added["added"], 0)
        self.assertEqual(len(told[-1].rows), 2)
        self.assertEqual(told[-1].running, 0)
        self.assertEqual(sum(told[-1].rows), added["added"], "the last progress has every row")
        rows = [json.loads(line) for line in self.succeed("db", "export", "--db", str(database)).splitlines()]
        self.assertEqual(len(rows), added["added"])
        self.assertIn("step", self.succeed("select", "small.py", "--threads", "1", "--db", str(database)))

    def test_processes(self) -> None:
        self.check(cluster.Processes(2))

    @unittest.skipUnless(importlib.util.find_spec("ray"), "Ray is not installed: pip install ray")
    def test_ray(self) -> None:
        import ray

        ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
        self.addCleanup(ray.shutdown)
        self.check(cluster.Ray(2, cpus=1))

    def test_an_error_of_a_worker_is_raised(self) -> None:
        (self.folder / "small.py").write_text("def f(x):\n    return y\n")
        with self.assertRaises(MillraceError) as raised:
            cluster.explore(self.folder / "small.py", self.folder / "all.db", progress=lambda _: None)
        self.assertIn("error", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
