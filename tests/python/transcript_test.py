"""Runs the transcripts of tests/transcript/: commands with their expected output and exit code.

A transcript is a session in one folder. `$ millrace …` runs a command; the lines up to `[CODE]` are what it prints to
standard output and then to standard error. `<*>` stands for any text within a line, `<**>` on a line of its own for any
lines: times, paths of the machine and other things that vary. `$ cat > FILE <<END` writes a file, up to `END`.
"""

import re
import shlex
import unittest

from command_test_case import CommandTest, ROOT

OF_ALL_COMMANDS = {"--help", "--quiet", "--verbose"}
TRANSCRIPTS = sorted((ROOT / "tests/transcript").glob("*.txt"))


def pattern_of(lines: list[str]) -> str:
    parts = []
    for line in lines:
        if line == "<**>":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(piece) for piece in line.split("<*>")) + "\n")
    return r"\A" + "".join(parts) + r"\Z"


def cases_of(text: str) -> list[tuple[str, list[str], int | None]]:
    """Commands, each with its expected lines and exit code; for a file its lines, without a code."""
    cases = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue  # a remark
        command, expected, code = line[2:], [], None
        for following in lines:
            if command.startswith("cat > ") and following == "END":
                break
            ended = re.fullmatch(r"\[(\d+)\]", following)
            if ended and not command.startswith("cat > "):
                code = int(ended[1])
                break
            expected.append(following)
        cases.append((command, expected, code))
    return cases


class TranscriptTest(CommandTest):
    def test_sessions(self) -> None:
        for path in TRANSCRIPTS:
            with self.subTest(path.name):
                self.setUp()
                for command, expected, code in cases_of(path.read_text(encoding="utf-8")):
                    self.run_case(command, expected, code)

    def run_case(self, command: str, expected: list[str], code: int | None) -> None:
        if code is None:
            name = shlex.split(command)[2]
            (self.folder / name).write_text("\n".join(expected) + "\n")
            return
        done = self.millrace(*shlex.split(command)[1:])
        printed = (done.stdout + done.stderr).replace(str(self.folder), "FOLDER")
        said = f"$ {command}\n{printed}[{done.returncode}]"
        self.assertEqual(done.returncode, code, said)
        self.assertRegex(printed, pattern_of(expected), said)

    def test_every_command_is_used_rightly_and_wrongly(self) -> None:
        used = {True: set(), False: set()}
        for path in TRANSCRIPTS:
            for command, _, code in cases_of(path.read_text(encoding="utf-8")):
                words = shlex.split(command)[1:3]
                if code is not None and words:
                    used[code == 0].add(" ".join(words) if words[0] in ("db", "cache") else words[0])
        commands = set(self.commands_in()) - {"db", "cache"} | {f"db {one}" for one in self.commands_in("db")}
        commands |= {f"cache {one}" for one in self.commands_in("cache")}
        self.assertEqual(commands - used[True], set(), "no right use in a transcript")
        self.assertEqual(commands - used[False], set(), "no wrong use in a transcript")

    def test_every_option_is_used(self) -> None:
        groups = {command: self.commands_in(command) for command in ("db", "cache")}
        commands = [(one,) for one in self.commands_in() if one not in groups]
        commands += [(group, one) for group, members in groups.items() for one in members]
        lines = [shlex.split(command)[1:] for path in TRANSCRIPTS for command, _, code in cases_of(path.read_text(encoding="utf-8"))
                 if code is not None]
        words = set().union(*lines)
        self.assertLessEqual({"-q", "-v", "-V"}, words)
        for command in commands:
            with self.subTest(command):
                used = set().union(*(line for line in lines if tuple(line[:len(command)]) == command))
                options = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)", self.succeed("help", *command))) - OF_ALL_COMMANDS
                self.assertEqual(options - used, set(), "no transcript uses it")

    def commands_in(self, *command: str) -> list[str]:
        text = self.succeed("help", *command).split("Commands:\n")[1].split("\n\n")[0]
        return [line.split()[0] for line in text.splitlines() if line[2:3].strip()]


if __name__ == "__main__":
    unittest.main()
