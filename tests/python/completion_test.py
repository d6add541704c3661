"""Tests what is made from the help: completion in bash (and zsh and fish where they are), and the manual page."""

import shutil
import subprocess
import unittest

from command_test_case import CommandTest, WRONG_USAGE


class CompletionTest(CommandTest):
    def completed(self, *words: str) -> list[str]:
        """What bash offers for the last of the words."""
        script = self.folder / "completion.bash"
        script.write_text(self.succeed("completion", "bash"))
        quoted = " ".join(f"'{word}'" for word in words)
        code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _millrace; echo \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_offers_commands_options_and_values(self) -> None:
        self.assertEqual(self.completed("millrace", "opt"), ["optimize"])
        self.assertEqual(self.completed("millrace", "db", "p"), ["prune"])
        self.assertEqual(self.completed("millrace", "optimize", "layer.py", "--dty"), ["--dtype"])
        self.assertEqual(self.completed("millrace", "run", "--device", ""), ["reference", "cpu", "cuda"])
        self.assertEqual(self.completed("millrace", "optimize", "--dtype", "float1"), ["float16"])
        self.assertEqual(self.completed("millrace", "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.completed("millrace", "help", "opt"), ["optimize"])
        self.assertEqual(self.completed("millrace", "db", "export", "--d"), ["--db"])

    def test_bash_leaves_files_to_the_shell(self) -> None:
        self.assertEqual(self.completed("millrace", "bench", ""), [])
        self.assertEqual(self.completed("millrace", "run", "--in", ""), [])

    def test_every_shell_reads_its_script(self) -> None:
        for shell, check in (("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")):
            text = self.succeed("completion", shell)
            self.assertIn("keep-denormals", text)
            if shutil.which(shell) is None:
                continue
            script = self.folder / "script"
            script.write_text(text)
            done = subprocess.run([shell, check, str(script)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)
        self.assertIn("bash, zsh or fish", self.fails(WRONG_USAGE, "completion", "tcsh"))

    def test_the_manual_page_has_every_command_and_option(self) -> None:
        page = self.succeed("help", "--man")
        self.assertTrue(page.startswith(".TH MILLRACE 1"))
        for text in ("millrace optimize", "millrace db prune", r"\-\-keep\-denormals", "MILLRACE_CACHE_DIR", "130 interrupted"):
            self.assertIn(text, page)
        if shutil.which("groff") is None:
            self.skipTest("no groff")
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=page, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
