"""models/mha.py ends with the paper's Fig. 1a, character for character."""

import re
import unittest

from numpy_program import ROOT

LISTING = (ROOT / "tests/data/fig1a.txt").read_text()
PAPER = ROOT.parent / "shared/paper/data-movement-is-all-you-need.tex"


class Fig1aTest(unittest.TestCase):
    def test_model_ends_with_the_listing(self) -> None:
        model = (ROOT / "models/mha.py").read_text()
        start = model.index("@dace.program")
        self.assertEqual(model[start:], LISTING)

    def test_listing_is_the_papers(self) -> None:
        if not PAPER.exists():
            self.skipTest(f"{PAPER} does not exist")
        listings = re.findall(
            r"\\begin\{lstlisting\}\[.*?\n\s*\]\n(.*?)\\end\{lstlisting\}", PAPER.read_text(), re.S
        )
        self.assertIn(LISTING, listings)


if __name__ == "__main__":
    unittest.main()
