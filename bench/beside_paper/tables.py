"""The four tables, as Markdown."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .launched import Launch, shared_rows
from .measured import HEURISTIC, Measured, Tried, told_attributes

NOT_MEASURED = "not measured"
CLASSES = ("contraction", "normalization", "elementwise")

# The paper's table "Algebraic fusion for MHA Q/K/V", in µs: separate, two stacked, three stacked. Its one row for the
# backward pass does not name the product.
PAPER_ALGEBRAIC = {"forward": (345, 294, 275), "backward": (342, 312, 291)}
PAPER_LARGEST_GAP = 14.24  # %, between heuristic and best algorithm in half precision
LETTERS = "qkv"


@dataclass(frozen=True)
class Limits:
    flop_per_second: float | None = None
    bytes_per_second: float | None = None


def micro(seconds: float | None, digits: int = 1) -> str:
    return NOT_MEASURED if seconds is None else f"{1e6 * seconds:.{digits}f}"


def percent(share: float, whole: float | None, digits: int = 1) -> str:
    return "" if not whole else f"{100 * share / whole:.{digits}f}"


def markdown(headings: list[str], rows: list[list[str]], left: int = 1) -> str:
    """`left`: the number of text columns, which are left-aligned."""
    rule = ["---" if k < left else "--:" for k in range(len(headings))]
    return "".join(f"| {' | '.join(row)} |\n" for row in [headings, rule, *rows])


# --- class shares ---


def class_shares(analysis: dict, paper: list[dict], measured: Measured, launches: list[Launch]) -> str:
    operators = analysis["operators"]
    flop = {name: sum(op["flop"] for op in operators if op["class"] == name) for name in CLASSES}
    unfused = {name: [measured.fastest(op["name"]) for op in operators if op["class"] == name] for name in CLASSES}
    missing = [op["name"] for op in operators if measured.fastest(op["name"]) is None]
    separate = {name: sum(seconds or 0 for seconds in times) for name, times in unfused.items()}
    selected = {name: sum(launch.seconds for launch in launches if launch.operator_class == name)
                for name in (*CLASSES, "conversion")}
    totals = {line["class"]: line for line in paper if line["pass"] == "total"}
    rows = []
    for name in (*CLASSES, "conversion", "total"):
        line = totals.get(name)
        own = [sum(each.values()) if name == "total" else each.get(name, 0) for each in (flop, separate, selected)]
        cells = [name]
        for key, digits in (("gflop", 2), ("pytorch_v100_us", 1), ("paper_v100_us", 1)):
            cells.append(percent(float(line[key]), float(totals["total"][key]), digits) if line else "")
            if key == "gflop":
                cells.append(percent(own[0], sum(flop.values()), 2))
        for seconds, classes in zip(own[1:], (separate, selected)):
            cells += [micro(seconds), percent(seconds, sum(classes.values()))]
        rows.append(cells)
    text = markdown(["class", "% flop, paper", "ours", "% time, PyTorch on V100", "paper's on V100", "ours unfused, µs",
                     "%", "selected, µs", "%"], rows)
    if missing:
        text += f"\nOurs unfused excludes {len(missing)} operators that were not measured alone: "
        text += f"{', '.join(missing)}.\n"
    return text


# --- every operator ---


def operators_table(rows: list, names: list[list[str]], paper: list[dict], measured: Measured, launches: list[Launch],
                    limits: Limits) -> str:
    """`rows`: the paper's rows with our figures; `names`: our operators of each row."""
    lines = [line for line in paper if line["pass"] != "total"]
    owner: dict[int, tuple[list[int], list[Launch]]] = {}
    for numbers, carried in shared_rows([set(each) for each in names], launches):
        owner |= {number: (numbers, carried) for number in numbers}
    table = []
    for k, (row, line) in enumerate(zip(rows, lines)):
        numbers, carried = owner[k]
        cells = [str(row.number), row.name, line["class"], row.paper_gflop or "0", row.paper_input, row.paper_output,
                 line["pytorch_v100_us"], _paper_time(lines, k), micro(measured.together(names[k]))]
        if numbers[0] != k:
            cells += [f"in {numbers[0] + 1}", "", "", ""]
        elif not carried:
            cells += ["no launch", "", "", ""]
        else:
            seconds = sum(launch.seconds for launch in carried)
            flop = sum(rows[number].flop for number in numbers)
            moved = sum(launch.moved_bytes for launch in carried)
            cells += [micro(seconds), percent(flop / seconds, limits.flop_per_second),
                      f"{moved / seconds / 1e12:.2f}", percent(moved / seconds, limits.bytes_per_second)]
        table.append(cells)
    for launch in launches:
        if not launch.operators:
            rate = launch.moved_bytes / launch.seconds
            table.append(["", launch.name, "conversion", "0", "", "", "", "", "", micro(launch.seconds), "0.0",
                          f"{rate / 1e12:.2f}", percent(rate, limits.bytes_per_second)])
    table.append(_total_row(paper, names, measured, launches, rows, limits))
    return markdown(["", "row", "class", "Gflop", "Mwords in", "out", "PyTorch, V100", "paper's, V100", "ours unfused",
                     "ours selected", "% of peak flop", "TB/s", "% of peak"], table, left=3)


def _paper_time(lines: list[dict], k: int) -> str:
    """The time of a fused kernel at its first row; at its other rows, the number of that row."""
    if lines[k]["paper_v100_us"]:
        return lines[k]["paper_v100_us"]
    first = next(n for n in range(k, -1, -1) if lines[n]["paper_v100_us"])
    return f"in {first + 1}"


def _total_row(paper: list[dict], names: list[list[str]], measured: Measured, launches: list[Launch], rows: list,
               limits: Limits) -> list[str]:
    line = next(line for line in paper if line["class"] == "total")
    seconds = sum(launch.seconds for launch in launches)
    flop = sum(row.flop for row in rows)
    moved = sum(launch.moved_bytes for launch in launches)
    unfused = measured.together(name for each in names for name in each)
    return ["", "all", "", f"{flop / 1e9:.3f}", "", "", line["pytorch_v100_us"], line["paper_v100_us"],
            micro(unfused), micro(seconds), percent(flop / seconds, limits.flop_per_second),
            f"{moved / seconds / 1e12:.2f}", percent(moved / seconds, limits.bytes_per_second)]


# --- algebraic fusion ---


def _stacked(names: list[str], suffixes: list[str] | None) -> str:
    text = " + ".join(names)
    return f"{text} with {', '.join(suffixes)}" if suffixes else text


def _stackings(measured: Measured, names: list[str], suffixes: list[str] | None,
               sum_kernel: str) -> list[tuple[float | None, str]]:
    """Seconds, and which are stacked: none, the fastest pair, all three. `sum_kernel`: the kernel that adds the results
    of separate products. Stacked products add in their epilogues, the last operand of the sum first."""
    def partition(*numbers: int) -> str:
        order = reversed(numbers) if sum_kernel else numbers
        return _stacked([names[n] for n in numbers], [suffixes[n] for n in order] if suffixes else None)

    separate = measured.together([*names, sum_kernel] if sum_kernel else [partition(n) for n in range(3)])
    pairs = []
    for pair, other in (((0, 1), 2), ((1, 2), 0), ((0, 2), 1)):
        seconds = measured.together([partition(*pair), partition(other)])
        if seconds is not None:
            pairs.append((seconds, "".join(LETTERS[n] for n in pair)))
    two = min(pairs, default=(None, ""))
    return [(separate, ""), two, (measured.fastest(partition(0, 1, 2)), "")]


def algebraic_table(measured: Measured) -> str:
    q, k, v = (f"{letter}_projected einsum" for letter in LETTERS)
    biases = [f"{letter * 2} bias" for letter in LETTERS]
    gradients = [f"{letter} einsum d_w{name}" for letter, name in zip((f"{n}_projected" for n in LETTERS), LETTERS)]
    cases = [
        ("forward", "forward", [q, k, v], None, ""),
        ("forward, biases in the products", "", [q, k, v], biases, ""),
        ("dX, added to the residual's gradient", "backward", [f"{name} d_x" for name in (q, k, v)],
         ["d_x sum 3", "d_x sum 2", "d_x sum"], "residual*3 (d_x.sum.3)"),
        ("dW", "backward", gradients, None, ""),
        ("dW, gradients of the biases in the products", "", gradients,
         [f"{bias} d_b{letter}" for bias, letter in zip(biases, LETTERS)], ""),
    ]
    rows = []
    for title, paper, names, suffixes, sum_kernel in cases:
        stackings = _stackings(measured, names, suffixes, sum_kernel)
        known = [seconds for seconds, _ in stackings if seconds is not None]
        cells = [title, *(str(time) for time in PAPER_ALGEBRAIC.get(paper, ("", "", "")))]
        for seconds, which in stackings:
            shown = micro(seconds) + (f" ({which})" if which else "")
            cells.append(f"**{shown}**" if seconds is not None and seconds == min(known) else shown)
        rows.append(cells)
    return markdown(["", "paper, V100: separate", "two", "three", "ours: separate", "two", "three"], rows)


# --- heuristic against best algorithm ---


@dataclass(frozen=True)
class Gap:
    """The heuristic's candidate and the fastest one with the same layouts."""

    heuristic: Tried
    best: Tried

    @property
    def percent(self) -> float:
        return 100 * (self.heuristic.seconds / self.best.seconds - 1)


def gaps_of(tried: list[Tried]) -> list[Gap]:
    """One for every combination of layouts with measurements of the heuristic's and of other algorithms."""
    by_layouts: dict[str, list[Tried]] = defaultdict(list)
    for one in tried:
        if one.algorithm is not None:
            by_layouts[one.layouts].append(one)
    gaps = []
    for group in by_layouts.values():
        chosen = [one for one in group if one.algorithm == HEURISTIC]
        if chosen and len(chosen) < len(group):
            gaps.append(Gap(min(chosen, key=lambda one: one.seconds), min(group, key=lambda one: one.seconds)))
    return sorted(gaps, key=lambda gap: gap.best.seconds)


def heuristic_table(partitions: list[str], measured: Measured) -> str:
    """The fastest combination of layouts among those compared, and the largest gap among all of them."""
    rows, largest = [], None
    for partition in partitions:
        gaps = gaps_of(measured.of(partition))
        if not gaps:
            rows.append([partition, NOT_MEASURED, *[""] * 6])
            continue
        fastest, widest = gaps[0], max(gaps, key=lambda gap: gap.percent)
        if largest is None or widest.percent > largest[1].percent:
            largest = (partition, widest)
        algorithm = fastest.best.algorithm
        rows.append([partition, fastest.best.layouts,
                     told_attributes(algorithm) if algorithm != HEURISTIC else HEURISTIC,
                     micro(fastest.heuristic.seconds, 2), micro(fastest.best.seconds, 2), f"{fastest.percent:.2f}",
                     str(len(gaps)), f"{widest.percent:.2f}"])
    text = markdown(["contraction", "layouts", "best algorithm", "heuristic, µs", "best, µs", "gap, %",
                     "layouts compared", "largest gap, %"], rows, left=3)
    if largest is None:
        return text + "\nNo algorithm other than the heuristic's was measured.\n"
    partition, gap = largest
    return text + (f"\nLargest gap: **{gap.percent:.2f} %**, {partition} with layouts {gap.best.layouts}: "
                   f"{micro(gap.heuristic.seconds, 2)} µs with the heuristic, {micro(gap.best.seconds, 2)} µs with "
                   f"{told_attributes(gap.best.algorithm)}. The paper's largest: {PAPER_LARGEST_GAP} % (dX1 QKT).\n")


def layouts_table(partitions: list[str], measured: Measured) -> str:
    """The gain from layouts: the program's own compared with the best."""
    rows = []
    for partition in partitions:
        products = [one for one in measured.of(partition) if one.algorithm is not None]
        best = min(products, key=lambda one: one.seconds, default=None)
        written = min((one for one in products if one.is_written), key=lambda one: one.seconds, default=None)
        slowest = max(products, key=lambda one: one.seconds, default=None)
        if best is None:
            rows.append([partition, NOT_MEASURED, *[""] * 5])
            continue
        gap = f"{100 * (written.seconds / best.seconds - 1):.2f}" if written else ""
        rows.append([partition, best.layouts, micro(written.seconds if written else None, 2), micro(best.seconds, 2),
                     gap, micro(slowest.seconds, 2), str(len({one.layouts for one in products}))])
    return markdown(["contraction", "best layouts", "as written, µs", "best, µs", "gap, %", "slowest, µs",
                     "layouts measured"], rows, left=2)
