#!/usr/bin/env python3
"""Compares the machine code of generated kernels between two commits: compare_kernels.py OLD NEW.

It shows that a refactoring changes no kernel. Each commit is checked out into a worktree, which builds its own
dump_kernels (tests/scripts/dump_kernels.cpp says what it samples) and writes the sources of several thousand kernels.
A pair of sources that differs in more than comments and white space is compiled: a CPU kernel to an object file, with
the compiler and flags of the product; a CUDA kernel to PTX, by NVRTC. The comparison ignores names: a symbol that an
object defines counts as section and offset, a name in PTX as the number of its first use. No GPU is needed.

Exit code: 0 if all kernels are the same, 1 if some differ or exist in one commit only, 2 if the comparison failed.
With --keep DIR the worktrees, sources and hashes of compiled kernels stay in DIR, and a later call reuses them.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import functools
import glob
import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

DUMPER = "tests/scripts/dump_kernels.cpp"
KERNEL_NAME = "MILLRACE_KERNEL"  # the placeholder for a kernel's name in its source
BATCH = 16  # kernels in one call of a compiler
SHOWN = 40  # names of kernels that differ


class Failure(Exception):
    """Why the comparison cannot be made."""


# --- Normal forms: sources without comments, compiled code without names ---


def without_comments(source):
    """C++ with no comments, and with white space collapsed. Preprocessor lines stay lines; string literals stay."""
    tokens = re.sub(
        r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/',
        lambda match: match.group(1) or " ",
        source.replace("\\\n", " "),
        flags=re.DOTALL,
    )
    lines = []
    for line in tokens.split("\n"):
        line = " ".join(line.split())
        if not line:
            continue
        if lines and not line.startswith("#") and not lines[-1].startswith("#"):
            lines[-1] += " " + line
        else:
            lines.append(line)
    return "\n".join(lines)


PTX_WORD = re.compile(r'"[^"]*"|[%.]?[A-Za-z_$][\w$.]*|0[fd][0-9a-fA-F]+|\d[\w.]*')
# Functions, parameters and variables; a function after its return value; registers and labels of inline assembly.
PTX_DECLARATION = re.compile(
    r"(?<![\w.])\.(?:entry|func|global|shared|local|const|param)\b[^;{=]*?([A-Za-z_$][\w$]*)\s*(?=[\[(;=,)]|$)",
    re.MULTILINE,
)
PTX_RETURNING = re.compile(r"\.func\s*\([^)]*\)\s*([A-Za-z_$][\w$]*)")
PTX_REGISTERS = re.compile(r"(?<![\w.])\.reg\s+(?:\.\w+\s+)+([^;]*);")
PTX_LABEL = re.compile(r"(?:^|[;{}])\s*([A-Za-z_$][\w$]*):", re.MULTILINE)
PTX_GLOBAL = re.compile(r"^(?:\.\w+ )?\.global \.align \d+ \.\w+ ([A-Za-z_$][\w$]*)(?: = [^;]*)?;\n", re.MULTILINE)


def without_unused_globals(ptx):
    """NVRTC emits a global for every constexpr variable, in order of instantiation; instructions use few of them."""
    uses = collections.Counter(re.findall(r"[A-Za-z_$][\w$]*", ptx))
    return PTX_GLOBAL.sub(lambda match: match.group(0) if uses[match.group(1)] > 1 else "", ptx)


def normal_ptx(ptx):
    """PTX without comments, debug lines and unused globals; a declared name counts as the number of its first use."""
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", " ", ptx, flags=re.DOTALL)
    ptx = "\n".join(
        " ".join(line.split()) for line in ptx.split("\n") if line.strip() and not re.match(r"\s*\.(loc|file)\b", line)
    )
    ptx = without_unused_globals(ptx)
    declared = {name for pattern in (PTX_DECLARATION, PTX_RETURNING, PTX_LABEL) for name in pattern.findall(ptx)}
    declared |= {name.strip() for names in PTX_REGISTERS.findall(ptx) for name in names.split(",")}
    numbers = {}

    def replaced(match):
        word = match.group(0)
        if word not in declared:
            return word
        return f"@{numbers.setdefault(word, len(numbers))}"

    return PTX_WORD.sub(replaced, ptx)


SHF_ALLOC = 2
SHT_RELA = 4
SHT_NOBITS = 8
SHT_SYMTAB = 2
SHT_GROUP = 17
SHN_LORESERVE = 0xFF00


def _text_at(strings, offset):
    return strings[offset : strings.index(b"\0", offset)].decode()


def normal_object(elf):
    """A 64-bit little-endian object file without names: its loaded sections, and what their relocations refer to.

    A symbol that the object defines counts as section and offset; only undefined ones (of libraries) have names.
    """
    if elf[:6] != b"\x7fELF\x02\x01":
        raise Failure("an object file is not ELF, 64 bits, little-endian")
    (section_offset,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, section_offset + entry_size * k) for k in range(count)]

    def content(section):
        return b"" if section[1] == SHT_NOBITS else elf[section[4] : section[4] + section[5]]

    names = [_text_at(content(sections[names_at]), section[0]) for section in sections]
    loaded = [k for k, section in enumerate(sections) if section[2] & SHF_ALLOC]
    position = {k: at for at, k in enumerate(loaded)}

    def symbol(table, strings, number):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", table, 24 * number)
        if section == 0:
            return "undefined " + _text_at(strings, name)
        if section >= SHN_LORESERVE:
            return f"special {section} {value}"
        return f"section {position.get(section)} + {value}, type {info & 15}"

    lines = []
    for k in loaded:
        section = sections[k]
        # .text._ZN2mr3addEff: a function of its own section is named after itself.
        kind = re.match(r"\.[a-zA-Z]+(?:\.(?:rel\.ro|cst\d+|str\d+\.\d+|unlikely|startup|hot)\b)*", names[k])
        digest = hashlib.sha256(content(section)).hexdigest()
        lines.append(
            f"{kind.group(0) if kind else names[k]} type {section[1]} flags {section[2]} size {section[5]} "
            f"alignment {section[8]} {digest}"
        )
    for k, section in enumerate(sections):
        if section[1] != SHT_RELA or section[7] not in position:
            continue
        symbols = sections[section[6]]
        table, strings = content(symbols), content(sections[symbols[6]])
        for at in range(0, section[5], 24):
            offset, info, addend = struct.unpack_from("<QQq", elf, section[4] + at)
            lines.append(
                f"relocation in {position[section[7]]} at {offset} type {info & 0xFFFFFFFF}: "
                f"{symbol(table, strings, info >> 32)}, addend {addend}"
            )
    return "\n".join(lines)


# --- Compilers ---


@functools.lru_cache(None)
def nvrtc_library():
    """NVRTC, with its builtins loaded as in src/device/cuda/nvrtc.cpp; None if it is not installed."""
    folders = [os.environ[name] + "/lib64" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders += ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
    for folder in folders:
        for path in sorted(glob.glob(folder + "/libnvrtc.so.1[23]"), reverse=True):
            for builtins in glob.glob(folder + "/libnvrtc-builtins.so.*"):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(builtins)
            return ctypes.CDLL(path)
    return None


def nvrtc_version():
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"NVRTC {major.value}.{minor.value}"


def compile_ptx(source, architecture, options):
    """The PTX of a source: all that ptxas, which makes cubins, sees of it."""
    nvrtc = nvrtc_library()
    program = ctypes.c_void_p()
    number = architecture.removeprefix("sm_")
    arguments = [f"--gpu-architecture=compute_{number}{'a' if number == '90' else ''}", *options]
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) != 0:
        raise Failure("NVRTC does not take a source")

    def text(get_size, get):
        size = ctypes.c_size_t()
        get_size(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        get(program, buffer)
        return buffer.value.decode()

    try:
        flags = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
        if nvrtc.nvrtcCompileProgram(program, len(arguments), flags) != 0:
            raise Failure("NVRTC: " + text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)[:2000])
        return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def compile_object(source, command):
    """The bytes of an object file. `command`: the product's, which makes shared objects."""
    arguments = ["-c" if argument == "-shared" else argument for argument in command]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernels.cpp")
        path.write_text(source, encoding="utf-8")
        made = subprocess.run(
            [*arguments, "kernels.cpp", "-o", "kernels.o"],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "TMPDIR": folder, "LC_ALL": "C"},
            check=False,
        )
        if made.returncode != 0:
            raise Failure(f"{arguments[0]}: {made.stderr[:2000]}")
        return path.with_suffix(".o").read_bytes()


# --- What a commit dumped ---


class Dump:
    """The kernels of a commit as {name: (target, source)}, and what compiles them. `only`: in all their names."""

    def __init__(self, folder, nvrtc_options, only=""):
        self.nvrtc_options = nvrtc_options
        self.preludes = {
            "cpu": (folder / "cpu_prelude").read_text(encoding="utf-8"),
            "cuda": (folder / "cuda_prelude").read_text(encoding="utf-8"),
        }
        path, self.compiler_version, *flags = (folder / "compiler").read_text(encoding="utf-8").splitlines()
        self.command = [path, *flags]
        self.kernels = {}
        self.launches = {}
        root = folder / "kernels"
        for listing in sorted(root.rglob("launches")):
            for line in listing.read_text(encoding="utf-8").splitlines():
                file, _, launch = line.partition(" ")
                name = str((listing.parent / file).relative_to(root))
                if only not in name:
                    continue
                self.kernels[name] = (listing.parent.name, (listing.parent / file).read_text(encoding="utf-8"))
                self.launches[name] = launch

    def prelude(self, target):
        return self.preludes["cpu" if target == "cpu" else "cuda"]

    def unit(self, target, sources):
        """One source file with these kernels, as translation_unit() and GpuKernelCache::source_of() make it."""
        text = ['#line 1 "prelude"\n', self.prelude(target), "\n"]
        for k, source in enumerate(sources):
            if target == "cpu":
                text += [f"#define {KERNEL_NAME} kernel_{k}\n#pragma GCC visibility push(default)\n"]
                text += [f"namespace of_kernel_{k} {{\n", source, "\n}\n#pragma GCC visibility pop\n"]
                text += [f"#undef {KERNEL_NAME}\n"]
            else:
                text += [source.replace(KERNEL_NAME, f"kernel_{k}"), "\n"]
        return "".join(text)

    def settings(self, target):
        """Everything but the source that machine code depends on."""
        if target == "cpu":
            return [self.compiler_version, *self.command]
        return [nvrtc_version(), target, *self.nvrtc_options]


def compiled(unit, target, command, options, key, cache):
    """The hash of a unit's normal form, or the compiler's error."""
    kept = pathlib.Path(cache, key) if cache else None
    if kept and kept.exists():
        return kept.read_text(encoding="utf-8")
    try:
        if target == "cpu":
            normal = normal_object(compile_object(unit, command))
        else:
            normal = normal_ptx(compile_ptx(unit, target, options))
        outcome = hashlib.sha256(normal.encode()).hexdigest()
    except Failure as failure:
        return f"error: {failure}"
    if kept:
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(outcome, encoding="utf-8")
        temporary.rename(kept)
    return outcome


class Comparison:
    """Compiles pairs of sources in batches and compares them; of a batch that differs, each kernel on its own."""

    def __init__(self, old, new, jobs, cache):
        self.sides = (old, new)
        self.jobs = jobs
        self.cache = cache

    def submit(self, pool, target, pairs):
        futures = []
        for side, dump in enumerate(self.sides):
            unit = dump.unit(target, [pair[side] for pair in pairs])
            key = hashlib.sha256("\0".join([*dump.settings(target), unit]).encode()).hexdigest()
            futures.append(pool.submit(compiled, unit, target, dump.command, dump.nvrtc_options, key, self.cache))
        return futures

    def run(self, pairs):
        """`pairs`: a set of (target, old source, new source). Returns {pair: why it differs} for those that do."""
        batches = []
        for target in sorted({pair[0] for pair in pairs}):
            mine = sorted(pair for pair in pairs if pair[0] == target)
            batches += [(target, [pair[1:] for pair in mine[at : at + BATCH]]) for at in range(0, len(mine), BATCH)]
        differing = {}
        with concurrent.futures.ProcessPoolExecutor(self.jobs) as pool:
            single = []
            for target, members in self.differing(pool, batches, "batches"):
                single += [(target, [member]) for member in members[0]]
            for target, (members, reason) in self.differing(pool, single, "kernels of batches that differ"):
                differing[(target, *members[0])] = reason
        return differing

    def differing(self, pool, batches, what):
        waiting = [(batch, self.submit(pool, *batch)) for batch in batches]
        found = []
        for k, ((target, members), futures) in enumerate(waiting):
            old, new = (future.result() for future in futures)
            if old != new or old.startswith("error: "):
                errors = [text for text in (old, new) if text.startswith("error: ")]
                found.append((target, (members, errors[0] if errors else "machine code differs")))
            if sys.stderr.isatty() or (k + 1) % 50 == 0 or k + 1 == len(waiting):
                print(f"  compiled {k + 1} of {len(waiting)} {what}", file=sys.stderr)
        return found


def same_environment(old, new, target):
    """Whether both commits compile with the same prelude, compiler and options."""
    if target != "cpu" and not nvrtc_library():
        raise Failure("NVRTC, which compiles CUDA kernels, was not found: install it or set CUDA_HOME")
    same_prelude = without_comments(old.prelude(target)) == without_comments(new.prelude(target))
    return same_prelude and old.settings(target) == new.settings(target)


def pairs_to_compile(old, new, common):
    """{(target, old source, new source): names} of the kernels whose text differs."""
    targets = {old.kernels[name][0] for name in common}
    same = {target: same_environment(old, new, target) for target in targets}
    normal = functools.lru_cache(None)(without_comments)
    pairs = {}
    for name in common:
        (target, source), (_, other) = old.kernels[name], new.kernels[name]
        if not same[target] or normal(source) != normal(other):
            pairs.setdefault((target, source, other), []).append(name)
    return pairs


def report(old, common, differing, missing):
    targets = [old.kernels[name][0] for name in common]
    counts = ", ".join(f"{target}: {targets.count(target)}" for target in sorted(set(targets)))
    print(f"kernels: {len(common)} ({counts})\nsame: {len(common) - len(differing)}")
    for label, listed in (("differing", differing), ("missing", missing)):
        print(f"{label}: {len(listed)}")
        for name, reason in sorted(listed.items())[:SHOWN]:
            print(f"  {name}: {' '.join(reason.split())[:300]}")
        if len(listed) > SHOWN:
            print(f"  and {len(listed) - SHOWN} more")


def compare(old, new, jobs, cache):
    """Prints what differs; returns the exit code."""
    common = sorted(old.kernels.keys() & new.kernels.keys())
    missing = {name: "only in OLD" for name in old.kernels.keys() - new.kernels.keys()}
    missing.update({name: "only in NEW" for name in new.kernels.keys() - old.kernels.keys()})
    pairs = pairs_to_compile(old, new, common)
    count = sum(len(names) for names in pairs.values())
    print(f"{len(common)} kernels in both; differing texts: {count}; pairs to compile: {len(pairs)}", flush=True)
    reasons = Comparison(old, new, jobs, cache).run(set(pairs)) if pairs else {}
    differing = {name: reason for pair, reason in reasons.items() for name in pairs[pair]}
    for name in common:
        if old.launches[name] != new.launches[name]:
            differing.setdefault(name, f"launched with {new.launches[name]}, was {old.launches[name]}")
    if not common and not missing:
        raise Failure("there are no kernels to compare")
    report(old, common, differing, missing)
    return 1 if differing or missing else 0


# --- Commits ---


def run(*command, cwd=None):
    """Returns a command's output; raises Failure with it if the command fails."""
    made = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {(made.stdout + made.stderr)[-4000:]}")
    return made.stdout.strip()


def nvrtc_options_of(tree):
    """The options that the product passes to NVRTC: string literals in its source that begin with a dash."""
    files = list(tree.glob("src/device/cuda/nvrtc*.cpp"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    options = [option for option in re.findall(r'"(--?[a-z][^"]*)"', text) if "gpu-architecture" not in option]
    if not options:
        raise Failure(f"no options for NVRTC in {tree}/src/device/cuda/nvrtc*.cpp: adapt nvrtc_options_of")
    return options


def dump_of(root, commit, work, options):
    """Checks out a commit, builds its dumper and runs it; reuses an earlier dump."""
    tree = work / commit
    folder = tree / "build" / "kernels"
    done = folder / "done"
    if not done.exists():
        print(f"{commit[:12]}: building and running dump_kernels", flush=True)
        if not tree.exists():
            run("git", "worktree", "prune", cwd=root)
            run("git", "worktree", "add", "--detach", tree, commit, cwd=root)
        run("cmake", "--preset", "release", "-DMILLRACE_TESTS=ON", cwd=tree)
        run("cmake", "--build", "build/release", "--target", "dump_kernels", f"-j{options.jobs}", cwd=tree)
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{commit[:12]}: {run('build/release/tests/dump_kernels', folder, cwd=tree)}")
        done.touch()
    return Dump(folder, nvrtc_options_of(tree), options.only)


def remove_worktrees(root, work):
    for tree in work.iterdir():
        subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=root, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", help="another one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="compilers at a time")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep worktrees and compiled forms there")
    parser.add_argument("--only", default="", metavar="TEXT", help="compare only kernels with this in their name")
    options = parser.parse_args()
    root = pathlib.Path(run("git", "rev-parse", "--show-toplevel", cwd=pathlib.Path(__file__).parent))
    commits = []
    for name in (options.old, options.new):
        commits.append(run("git", "rev-parse", "--verify", name + "^{commit}", cwd=root))
        if not run("git", "ls-tree", commits[-1], DUMPER, cwd=root):
            raise Failure(f"{name} cannot be compared: it has no {DUMPER}")
    with contextlib.ExitStack() as stack:
        if options.keep:
            work = options.keep.resolve()
            work.mkdir(parents=True, exist_ok=True)
        else:
            (root / "build").mkdir(exist_ok=True)
            work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=root / "build")))
            stack.callback(remove_worktrees, root, work)
        old, new = (dump_of(root, commit, work, options) for commit in commits)
        cache = work / "compiled" if options.keep else None
        if cache:
            cache.mkdir(exist_ok=True)
        return compare(old, new, options.jobs, cache)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"compare_kernels.py: {failure}", file=sys.stderr)
        sys.exit(2)
