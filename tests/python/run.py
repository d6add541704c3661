#!/usr/bin/env python3
"""run.py MODULE [--long]: runs the tests of one module of this folder; with --long those marked @long."""

import importlib
import sys
import unittest
from collections.abc import Iterator


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def is_long(test: unittest.TestCase) -> bool:
    method = getattr(test, test._testMethodName, None)  # none: the module could not be imported
    return getattr(method, "is_long", False) or getattr(type(test), "is_long", False)


def main() -> int:
    name, *options = sys.argv[1:]
    wanted = options == ["--long"]
    all_tests = flat(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name)))
    chosen = unittest.TestSuite(test for test in all_tests if is_long(test) == wanted)
    if chosen.countTestCases() == 0:
        print(f"{name} has no {'long' if wanted else 'short'} tests", file=sys.stderr)
        return 1
    return 0 if unittest.TextTestRunner(verbosity=2).run(chosen).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
