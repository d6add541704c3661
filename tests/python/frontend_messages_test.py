"""Every error message of src/frontend/ occurs in a test: in tests/error/*.txt or quoted in tests/frontend/.

The messages are the string literals inside each `report(…)` and `Error::make(…)` of the sources.
"""

from __future__ import annotations

import re
import unittest

from paper_rows import ROOT

CALL = re.compile(r"\b(?:report|expect_symbol|expect_name|Error::make)\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
SHORTEST = 6  # shorter literals are brackets or quotes between two texts


def call_text(source: str, begin: int) -> str:
    """The arguments of the call whose bracket opens before `begin`."""
    depth, at, in_string = 1, begin, False
    while depth > 0:
        c = source[at]
        if c == "\\":
            at += 1
        elif c == '"':
            in_string = not in_string
        elif not in_string:
            depth += {"(": 1, ")": -1}.get(c, 0)
        at += 1
    return source[begin : at - 1]


def messages() -> list[tuple[str, str]]:
    """(where, literal) for all calls."""
    found = []
    for path in sorted((ROOT / "src/frontend").glob("*.cpp")):
        source = path.read_text()
        for call in CALL.finditer(source):
            line = source.count("\n", 0, call.start()) + 1
            for literal in LITERAL.findall(call_text(source, call.end())):
                text = literal.encode().decode("unicode_escape").encode("latin-1").decode()
                if len(text.strip()) >= SHORTEST:
                    found.append((f"{path.name}:{line}", text))
    return found


def tested_text() -> str:
    texts = [path.read_text() for path in sorted((ROOT / "tests/error").glob("*.txt"))]
    texts += [path.read_text().replace('\\"', '"') for path in sorted((ROOT / "tests/frontend").glob("*_test.cpp"))]
    return "\n".join(texts)


class FrontendMessagesTest(unittest.TestCase):
    def test_the_sources_are_parsed_correctly(self) -> None:
        found = messages()
        self.assertGreater(len(found), 100)
        self.assertIn("a result must be a tensor", [text for _, text in found])
        self.assertIn('write np.einsum("ij,jk->ik", a, b)', [text for _, text in found])

    def test_every_message_is_tested(self) -> None:
        tested = tested_text()
        missing = [f"{where}: {text}" for where, text in messages() if text.strip() not in tested]
        self.assertEqual(missing, [], "no program in tests/error/ causes these messages:\n" + "\n".join(missing))


if __name__ == "__main__":
    unittest.main()
