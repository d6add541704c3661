"""`millrace` under the shell's limits of memory, stack and files: it works, or says what is missing; it never hangs."""

import subprocess
import unittest

from command_test_case import BINARY, DONE, WRONG_USAGE, CommandTest

PROGRAM = """
A = 6
B = 8
C = 10


def layer(x: float32[A, B], w: float32[C, B]):
    return softmax(np.einsum("ab,cb->ac", x, w))
"""


class LimitsTest(CommandTest):
    programs = {"small": PROGRAM}

    def limited(self, limit: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', BINARY, *arguments], cwd=self.folder,
            env=self.environment, capture_output=True, text=True, timeout=self.seconds,
        )

    def test_little_memory_is_not_given_to_libraries(self) -> None:
        """OpenBLAS tries for ever to reserve memory that it does not get."""
        for kibibytes in (100_000, 300_000):
            done = self.limited(f"-v {kibibytes}", "doctor")
            self.assertIn("OpenBLAS is not loaded", done.stdout, done.stderr)
            self.assertIn("`ulimit -v`", done.stdout)

    def test_little_memory_does_not_stop_a_command(self) -> None:
        for arguments in (("run", "small.py", "--out", "r.safetensors"), ("explore", "small.py", "--budget", "0s")):
            done = self.limited("-v 300000", *arguments)
            if done.returncode != DONE:
                self.assertIn("error: ", done.stderr)

    def test_a_small_stack_is_enough(self) -> None:
        for arguments in (("analyze", "small.py"), ("run", "small.py", "--out", "r.safetensors")):
            done = self.limited("-s 64", *arguments)
            self.assertEqual(done.returncode, DONE, done.stderr)

    def test_the_limit_of_openmp_threads(self) -> None:
        """Libraries would wait for threads that never start."""
        self.succeed("optimize", "small.py", "--threads", "2", "--budget", "4s", "--out", "two")
        for command in ("run", "bench"):
            message = self.fails(WRONG_USAGE, command, "two", OMP_THREAD_LIMIT="1")
            self.assertIn("by 2 threads: the variable OMP_THREAD_LIMIT allows 1\n  unset it", message)
        message = self.fails(WRONG_USAGE, "explore", "small.py", "--threads", "2", OMP_THREAD_LIMIT="1")
        self.assertIn("OMP_THREAD_LIMIT allows 1", message)
        self.succeed("optimize", "small.py", "--budget", "4s", "--out", "one", OMP_THREAD_LIMIT="1")
        self.succeed("run", "one", OMP_THREAD_LIMIT="1")

    def test_a_compiler_that_a_limit_stops_is_an_error(self) -> None:
        for limit in ("-s 64", "-f 8"):
            done = self.limited(limit, "explore", "small.py", "--budget", "0s")
            if done.returncode != DONE:
                self.assertGreater(done.returncode, DONE, "killed by a signal")
                self.assertIn("error: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
