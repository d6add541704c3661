"""Tests what commands show on a terminal while they work: something within the first second, fitted to its width."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from command_test_case import BINARY, CommandTest

ERASE = "\r\033[K"
LONG = """from millrace import numpy as np

B, I = 16, 32

def long(x: np.float32[B, I], w: np.float32[I, I]):
    for k in range(3):
        x = np.maximum(x @ w, 0) + x
    return x
"""


class TerminalTest(CommandTest):
    programs = {"long": LONG}

    def on_terminal(self, columns: int, *arguments: str) -> tuple[str, list[float], int]:
        """What a command writes to a terminal, the times of its writes since its start, and its exit code."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        begin = time.monotonic()
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=self.environment, stderr=inner,
                                   stdout=subprocess.PIPE)
        os.close(inner)
        self.addCleanup(process.stdout.close)
        shown, times = b"", []
        while True:
            ready = select.select([outer], [], [], self.seconds)[0]
            try:
                part = os.read(outer, 65536) if ready else b""
            except OSError:  # the command has closed its end
                part = b""
            if not part:
                break
            shown += part
            times.append(time.monotonic() - begin)
        os.close(outer)
        self.data = process.stdout.read().decode()
        return shown.decode(), times, process.wait(timeout=self.seconds)

    def lines(self, shown: str) -> list[str]:
        """The states of the status line."""
        return [line.split("\r\n")[0] for line in shown.split(ERASE) if line.split("\r\n")[0]]

    def test_no_second_without_a_sign(self) -> None:
        shown, times, code = self.on_terminal(100, "optimize", "long.py", "--budget", "4s")
        self.assertEqual(code, 0, shown)
        pauses = [later - earlier for earlier, later in zip([0.0, *times], times)]
        self.assertLess(max(pauses), 1.0 + 1.0, "a second, and another one for a busy machine")
        self.assertTrue(shown.endswith(ERASE), "the line is erased at the end")

    def test_phases_and_time_left(self) -> None:
        shown, _, code = self.on_terminal(120, "optimize", "long.py", "--budget", "9s")
        self.assertEqual(code, 0, shown)
        states = " ".join(self.lines(shown))
        self.assertRegex(states, r"\d+ of \d+ candidates")
        self.assertRegex(states, r"0:0\d left")
        self.assertRegex(states, r"measuring|compiling")

    def test_fits_the_terminal(self) -> None:
        for columns in (20, 40, 200):
            with self.subTest(columns=columns):
                shown, _, code = self.on_terminal(columns, "explore", "long.py", "--budget", "2s")
                self.assertEqual(code, 0, shown)
                states = [state for state in self.lines(shown) if " partitions, " not in state]
                self.assertTrue(states)
                for state in states:
                    self.assertLess(len(state), columns, "a longer line would wrap and stay")

    def test_nothing_without_a_terminal(self) -> None:
        done = self.millrace("explore", "long.py", "--budget", "1s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\033", done.stderr)
        self.assertNotIn("\r", done.stderr)

    def test_short_commands_show_nothing(self) -> None:
        shown, _, code = self.on_terminal(80, "analyze", "long.py")
        self.assertEqual(code, 0)
        self.assertNotRegex(re.sub(r"\x1b\[K|\r", "", shown), "[^a-z0-9:| ]", "at most the status line")


if __name__ == "__main__":
    unittest.main()
