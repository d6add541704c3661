#!/usr/bin/env python3
"""Checks that the files exist that documentation names: check_docs.py [ROOT].

- docs/ARCHITECTURE.md: every `path` in it, and every `file` in the first column of a table; these are relative to the
  folder in the title of the section, and may lack their ending.
- Every Markdown file: the targets of its links.

Prints `file:line: message` for each that does not exist, and exits with 1 if there are any.
"""

import pathlib
import re
import sys

ARCHITECTURE = "docs/ARCHITECTURE.md"
ROOTS = ("", "src", "include", "python/millrace")  # of paths in ARCHITECTURE.md
SOURCE = re.compile(r"[\w*.-]+\.(cpp|h|inc|py|sh|js|css|dict)")  # a file name that needs no folder to be recognized
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SPAN = re.compile(r"`([^`]+)`")


def exists(folder, name):
    """Whether the name, which may lack its ending or contain wildcards, is a file or folder in `folder`."""
    name = name.rstrip("/")
    return any(any(folder.glob(pattern)) for pattern in (name, name + ".*"))


def is_named(root, folder, name):
    roots = [root / base for base in ROOTS] + ([folder] if folder else [])
    if "/" in name:
        return any(exists(base, name) for base in roots)
    return any(any((root / base).glob("**/" + name)) for base in ("src", "tests", "tools", "python"))


def missing_in_architecture(root, text):
    """(line, name) of every file that the page names and that does not exist."""
    folder = None  # in the title of the section
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            title = SPAN.findall(line)
            folder = root / title[0] if title else None
        cells = line.split("|")
        files = SPAN.findall(cells[1]) if folder and line.startswith("|") else []
        yield from ((number, name) for name in files if not exists(folder, name))
        others = SPAN.findall("|".join(cells[2:]) if files else line)
        for name in (span.split()[0] for span in others):
            if PATH.fullmatch(name) and ("/" in name or SOURCE.fullmatch(name)) and not is_named(root, folder, name):
                yield number, name


def missing_links(path, text):
    """(line, target) of every link to a file that does not exist."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if "://" not in target and not (path.parent / target).exists():
                yield number, target


def markdown_files(root):
    folders = ("docs", "bench", "examples", "models", "packaging")
    return sorted(root.glob("*.md")) + sorted(path for folder in folders for path in root.glob(folder + "/**/*.md"))


def problems(root):
    for path in markdown_files(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        for line, target in missing_links(path, text):
            yield f"{name}:{line}: links to {target}, which does not exist"
        if name == ARCHITECTURE:
            for line, target in missing_in_architecture(root, text):
                yield f"{name}:{line}: names {target}, which does not exist"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(problems(root))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
