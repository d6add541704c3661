#!/usr/bin/env python3
"""check_slices.py ROOT: finds tests that do more in a long run, but are not in the lists of tests/CMakeLists.txt.

Only the cases of these lists run with MILLRACE_LONG.
"""

import re
import sys
from pathlib import Path

TEST = re.compile(r"^TEST(_[FP])?\((\w+), (\w+)\) \{(.*?)^\}", re.M | re.S)


def listed_cases(lists: str) -> set[str]:
    found = re.findall(r"set\(MILLRACE_(?:LONG|SLICED)_CASES\s(.*?)\)", lists, re.S)
    return {case.split("/")[-1].rstrip("*") for cases in found for case in cases.split()}


def long_cases(source: str) -> set[str]:
    """Tests that ask themselves whether this is a long run."""
    return {f"{suite}.{name}" for _, suite, name, body in TEST.findall(source) if "is_long_run()" in body}


def main(root: Path) -> int:
    listed = listed_cases((root / "tests/CMakeLists.txt").read_text())
    sources = sorted((root / "tests").rglob("*_test.cpp"))
    long = {case for source in sources for case in long_cases(source.read_text())}
    for case in sorted(long - listed):
        print(f"{case} has more to do in a long run: add it to MILLRACE_SLICED_CASES in tests/CMakeLists.txt")
    if not long:
        print("no test asks whether this is a long run: has is_long_run() another name now?")
    return 1 if long - listed or not long else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
