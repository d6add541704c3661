"""Tests that a budget bounds the whole command, and that a plan is never slower than the step before optimization."""

import json
import time
import unittest

from command_test_case import ROOT, CommandTest

SMALL = """from millrace import numpy as np

B, I, J = 8, 16, 24

def small(x: np.float32[B, I], w: np.float32[I, J], b: np.float32[J]):
    return np.maximum(np.einsum("bi,ij->bj", x, w) + b, 0)
"""


def limit(budget: float) -> float:
    """The longest time that a command with this budget may take."""
    return 1.1 * budget + 5


class BudgetTest(CommandTest):
    programs = {"small": SMALL}

    def timed(self, budget: float, *arguments: str) -> tuple[str, float]:
        begin = time.monotonic()
        text = self.succeed(*arguments, "--budget", f"{budget}s")
        return text, time.monotonic() - begin

    def test_bounds_optimize_and_explore(self) -> None:
        model = str(ROOT / "models/mha.py")
        for command in ("optimize", "explore"):
            for budget in (1, 4):
                with self.subTest(command=command, budget=budget):
                    _, taken = self.timed(budget, command, model, "--size", "tiny")
                    self.assertLess(taken, limit(budget))

    def test_the_plan_of_a_budget_without_time_is_checked(self) -> None:
        made = json.loads(self.timed(0.01, "optimize", "small.py", "--json")[0])
        self.assertTrue(made["checked"], made)
        self.assertTrue((self.folder / "small.plan" / "plan.json").exists())

    def test_measures_the_step_before(self) -> None:
        made = json.loads(self.timed(20, "optimize", "small.py", "--json")[0])
        if made["not_timed"]:
            self.skipTest(f"the machine is too busy: the step before optimization was {made['not_timed']}")
        self.assertGreater(made["before_seconds"], 0)
        self.assertEqual(made["not_timed"], "")
        plan = json.loads((self.folder / "small.plan" / "plan.json").read_text())
        self.assertEqual(plan["default_cost"], made["before_seconds"])
        slower = made["step_seconds"]["median"] > made["before_seconds"]
        self.assertEqual(made["baseline_kept"], slower)
        self.assertEqual(plan["program"].get("operators") == "separate", slower)

    def test_says_what_was_not_measured(self) -> None:
        model = str(ROOT / "models/mha.py")
        text, _ = self.timed(1, "optimize", model, "--size", "tiny")
        if "times as fast" not in text:
            self.assertIn("not measured (budget)", text)
        self.assertNotIn(" 0.00 times", text)


class ReplacedTest(CommandTest):
    """The plan is replaced where it measures slower."""

    programs = {"small": SMALL}

    def test_a_kept_baseline_runs_and_reports(self) -> None:
        # A step of microseconds: noise decides which plan is faster, so try until the step before optimization wins.
        for _ in range(2):
            made = json.loads(self.succeed("optimize", "small.py", "--json", "--budget", "12s"))
            if made["baseline_kept"]:
                break
        else:
            self.skipTest("the selected plan was faster every time")
        self.assertIn("forward", self.succeed("bench", "small.plan", "--seconds", "0.2"))
        self.succeed("run", "small.plan")
        self.succeed("report", "small.plan")


if __name__ == "__main__":
    unittest.main()
