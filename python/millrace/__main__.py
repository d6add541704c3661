"""Runs the `millrace` executable that pip installed: `python -m millrace`, or `millrace`."""

from __future__ import annotations

import os
import sys

from millrace._library import MillraceError, library_path


def main() -> None:
    try:
        program = library_path().parent / "millrace"
        os.execv(program, [str(program), *sys.argv[1:]])
    except (MillraceError, OSError) as error:
        sys.exit(f"millrace: {error}")


if __name__ == "__main__":
    main()
