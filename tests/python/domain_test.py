"""Tests that `millrace optimize` checks programs whose operators have a domain: drawn inputs are inside it, NaN and
infinities are compared where the reference has them, and `--in` gives example inputs."""

import json

import numpy as np
import safetensors_io
from command_test_case import WRONG_USAGE, CommandTest

PROGRAM = """import numpy as np
from millrace.numpy import bool_, float32, softmax

B = 4
N = 6


def f(x: float32[B, N], m: float32[B, N], keep: bool_[B, N]):
    return {}
"""

IN_DOMAIN = {
    "log": "np.log(x)", "power": "x ** -0.5", "masked": "softmax(x + np.log(m))", "exp": "np.exp(200 * x)",
}
# Each mask, drawn or given, has four rows, and some of them hide all elements.
HIDDEN = "softmax(np.where(keep, x, -np.inf))"


class DomainTest(CommandTest):
    programs = {name: PROGRAM.format(text) for name, text in (IN_DOMAIN | {"hidden": HIDDEN}).items()}

    def test_drawn_inputs_are_in_the_domain(self) -> None:
        for name in IN_DOMAIN:
            with self.subTest(name):
                text = self.succeed("optimize", f"{name}.py", "--budget", "4s")
                self.assertIn("agree with the reference", text)
                self.assertNotIn("is finite", text)
                tensors = json.loads(self.succeed("run", f"{name}.plan", "--json"))["tensors"]
                self.assertEqual([one["name"] for one in tensors if one["not_finite"] > 0], [])

    def test_a_row_that_is_hidden_whole(self) -> None:
        keep = np.ones((4, 6), bool)
        keep[1] = False
        given = {"x": np.ones((4, 6)), "m": np.ones((4, 6)), "keep": keep}
        safetensors_io.write(self.folder / "in.safetensors", given)
        text = self.succeed("optimize", "hidden.py", "--budget", "4s", "--in", "in.safetensors")
        self.assertIn("agree with the reference", text)
        self.succeed("run", "hidden.plan", "--in", "in.safetensors", "--out", "out.safetensors")
        result = next(value for name, value in safetensors_io.read(self.folder / "out.safetensors").items()
                      if not name.startswith("d_"))
        np.testing.assert_array_equal(np.isnan(result), ~keep)

    def test_example_inputs_that_do_not_fit_are_refused_before_the_work(self) -> None:
        safetensors_io.write(self.folder / "in.safetensors", {"x": np.ones((4, 5))})
        message = self.fails(WRONG_USAGE, "optimize", "log.py", "--in", "in.safetensors")
        self.assertIn("'x' has shape [4, 5]", message)
        self.assertFalse((self.folder / "log.plan").exists())

    def test_elements_that_the_type_cannot_have_are_refused(self) -> None:
        """Each engine would convert them in its own way, and a right plan would be called wrong."""
        given = {"x": np.ones((4, 6)), "m": np.ones((4, 6)), "keep": np.full((4, 6), np.nan)}
        safetensors_io.write(self.folder / "in.safetensors", given)
        for command in ("run", "optimize"):
            message = self.fails(WRONG_USAGE, command, "hidden.py", "--in", "in.safetensors")
            self.assertIn("'keep' is bool, but has the element nan", message)
        (self.folder / "step.py").write_text(
            "def step(x: float32[2], t: int32[2]):\n    return np.where(t > 0, x, -x)\n")
        for wrong in (1.5, np.nan, np.inf, 2.0**31, -(2.0**31) - 1):
            safetensors_io.write(self.folder / "in.safetensors", {"x": np.ones(2), "t": np.array([1, wrong])})
            message = self.fails(WRONG_USAGE, "run", "step.py", "--in", "in.safetensors")
            self.assertIn("'t' is int32, but has the element ", message)
        safetensors_io.write(self.folder / "in.safetensors", {"x": np.ones(2), "t": np.array([2.0**31 - 1, -(2.0**31)])})
        self.succeed("run", "step.py", "--in", "in.safetensors")
