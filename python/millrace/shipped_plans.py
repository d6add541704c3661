"""Plans as one file, for other machines of the same kind. The file has no compiled kernels: what is loaded is compiled
here, from sources that this Millrace generates. Test: tests/python/shipped_plans_test.py

Format: a zip archive with 0/machine.json, 0/plan.json, 1/machine.json, … It may come from anywhere, so its contents
are limited and checked: a plan is stored under the program that is written in it, which the library verifies it
against."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from millrace import plan_cache
from millrace._library import MillraceError
from millrace.plan import Plan
from millrace.plan_cache import DEFAULT, EXPLORED, Machine

_MOST_BYTES = 64 << 20  # of a plan, as the library's limit
_MOST_PLANS = 4096


class LoadedPlans(NamedTuple):
    """What load_plans did."""

    loaded: list[str]  # folders
    left_out: list[str]  # with reasons

    def __str__(self) -> str:
        return "\n".join([f"{len(self.loaded)} plans loaded", *self.left_out])


class _Shipped(NamedTuple):
    kind: str
    machine: Machine
    plan: str  # its JSON
    program: dict

    def folder(self) -> Path:
        """In this user's cache."""
        program = self.program
        sizes = dict(size.split("=") for size in program["sizes"])
        return plan_cache.plan_folder(program["text"], {name: int(value) for name, value in sizes.items()},
                                      program["dtype"], *self.machine[:2], program["entry"], self.machine.hardware,
                                      program["layouts"])


def export_plans(path: str | os.PathLike) -> int:
    """Writes the plans that this process has used to a file, for load_plans on machines of the same kind. Returns how
    many there are."""
    found = {folder: machine for folder, machine in plan_cache.found_plans().items()
             if Path(folder, "plan.json").exists()}
    if not found:
        raise MillraceError("no plan was used yet; export_plans comes after the first training steps", 2)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for k, (folder, machine) in enumerate(found.items()):
            archive.writestr(f"{k}/machine.json", json.dumps({"kind": Path(folder).name, **machine._asdict()}))
            archive.write(Path(folder, "plan.json"), f"{k}/plan.json")
    _write_whole(Path(os.path.realpath(path)), made.getbuffer())
    return len(found)


def _write_whole(file: Path, content: memoryview) -> None:
    """Replaces a file at once; writes into a device or a pipe."""
    if file.exists() and not file.is_file():
        file.write_bytes(content)
        return
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as work:
        try:
            work.write(content)
            work.flush()
            os.chmod(work.name, 0o644)
            os.replace(work.name, file)
        except BaseException:
            os.unlink(work.name)
            raise


def load_plans(path: str | os.PathLike) -> LoadedPlans:
    """Adds the plans of a file to this user's cache and compiles their kernels. Plans that are already there stay."""
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # the classes vary with what is wrong in the file
        raise MillraceError(f"{os.fspath(path)} is not a file of plans ({error}); write one with export_plans",
                            2) from error
    outcome = LoadedPlans([], [])
    with archive:
        _load(archive, outcome)
    return outcome


def _load(archive: zipfile.ZipFile, outcome: LoadedPlans) -> None:
    names = set(archive.namelist())
    for k in range(_MOST_PLANS):
        if f"{k}/plan.json" not in names:
            return
        try:
            outcome.loaded.append(_store(_read(archive, k)))
        except (MillraceError, ValueError, KeyError, TypeError, AttributeError) as error:
            outcome.left_out.append(f"plan {k} was left out: {str(error).strip() or type(error).__name__}")


def _read(archive: zipfile.ZipFile, number: int) -> _Shipped:
    try:
        return _parsed(archive, number)
    except Exception as error:  # compression, encryption, nesting: the classes vary with what is wrong in the file
        raise MillraceError(str(error).strip() or type(error).__name__, 2) from error


def _parsed(archive: zipfile.ZipFile, number: int) -> _Shipped:
    machine = json.loads(_text(archive, f"{number}/machine.json"))
    plan = _text(archive, f"{number}/plan.json")
    if machine["kind"] not in (EXPLORED, DEFAULT):
        raise MillraceError(f"its kind is {machine['kind']!r}; export it again", 2)
    made = Machine(str(machine["device"]), int(machine["threads"]), str(machine["hardware"]))
    if made.device == "cpu" and made.hardware != plan_cache.processor():
        raise MillraceError("it was made for another processor; explore on this one", 2)
    return _Shipped(machine["kind"], made, plan, json.loads(plan)["program"])


def _text(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as file:
        found = file.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise MillraceError(f"{name} has more than {_MOST_BYTES >> 20} MiB, so it is not a plan", 2)
    return found.decode()


def _store(shipped: _Shipped) -> str:
    """The plan's folder. The library checks the plan and compiles its kernels before others see it."""
    folder = shipped.folder()
    plan_cache.private_directory(folder.parent)
    plan_cache.private_directory(folder)
    made = folder / shipped.kind
    with plan_cache.locked(folder / "lock"):
        if (made / "plan.json").exists():
            return str(made)
        work = Path(tempfile.mkdtemp(prefix=f"{shipped.kind}-", dir=folder))  # renamed when complete
        try:
            (work / "plan.json").write_text(shipped.plan)
            _check_device(Plan(work), shipped.machine)
            work.rename(made)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return str(made)


def _check_device(plan: Plan, machine: Machine) -> None:
    if plan.device != machine.device:
        raise MillraceError(f"it is for {plan.device}, not for {machine.device} as the file says; export it again", 2)
