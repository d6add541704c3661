#!/usr/bin/env python3
"""run.py [NAME...]: runs campaigns, slice by slice in turn, and continues where they stopped. Without names, it runs
those that have not reached their goal.

    tests/campaigns/run.py --minutes 60              all of them
    tests/campaigns/run.py kills --minutes 5         one of them
    tests/campaigns/run.py --table                   what was done so far
    tests/campaigns/run.py --record                  puts it into bench/results/campaigns.json

Builds: `cmake --build --preset release --target millrace millrace-worker millrace-guard campaign_checks`, and for parsers
and altered artefacts `cmake --preset campaign && cmake --build --preset campaign --target campaign_checks
frontend_fuzzer measurements_fuzzer plan_fuzzer rows_fuzzer safetensors_fuzzer`: the sanitizers with optimization.
"""

import argparse
import sys
import time
from pathlib import Path

import altered
import kills
import masks
import mutants
import parsers
import planned_programs
import random_programs
from campaign import RECORD, ROOT, Binaries, Campaign, Slice, Store, run_slice, table

MODULES = (random_programs, planned_programs, kills, mutants, altered, parsers, masks)
ALL = [campaign for module in MODULES for campaign in module.CAMPAIGNS]
ENDLESS = 10**9  # seeds of a slice


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(each.name for each in ALL)}")
    parser.add_argument("--minutes", type=float, default=0, help="how long to run; 0: one slice of each")
    parser.add_argument("--slice", type=float, default=30, metavar="SECONDS", help="length of one slice (default: 30)")
    parser.add_argument("--most", type=int, default=ENDLESS, metavar="SEEDS", help="most seeds of one slice")
    parser.add_argument("--state", type=Path, default=ROOT / "build/campaigns/state", help="where states are kept")
    parser.add_argument("--record-file", type=Path, default=RECORD, help="what campaigns without a state continue")
    parser.add_argument("--release", type=Path, default=ROOT / "build/release", help="the build to check")
    parser.add_argument("--sanitized", type=Path, default=ROOT / "build/campaign", help="the build with sanitizers")
    parser.add_argument("--table", action="store_true", help="only prints what was done")
    parser.add_argument("--record", action="store_true", help="records what was done, and prints it")
    return parser.parse_args()


def chosen(names: list[str]) -> list[Campaign]:
    known = {each.name: each for each in ALL}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"run.py: unknown campaign '{unknown[0]}' (campaigns: {', '.join(known)})")
    return [known[name] for name in names]


def unfinished(store: Store) -> list[Campaign]:
    return [each for each in ALL if store.state_of(each).counts.get(each.goal[0], 0) < each.goal[1]]


def show(campaign: Campaign, done: Slice) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(done.counts.items()))
    print(f"{campaign.name}: {counts}; next seed {done.next_seed}", flush=True)
    for failure in done.failures:
        print(f"{campaign.name}: FAILED at seed {failure['seed']}: {failure['what']}", flush=True)


def main() -> int:
    options = arguments()
    campaigns, store = chosen(options.names), Store(options.state, options.record_file)
    failed = False
    if not options.table and not options.record:
        end = time.monotonic() + 60 * options.minutes
        while todo := campaigns or unfinished(store):
            for campaign in todo:
                binaries = Binaries(options.release.resolve(), options.sanitized.resolve())
                done = run_slice(campaign, store, binaries, options.slice, options.most)
                show(campaign, done)
                failed = failed or bool(done.failures)
            if time.monotonic() >= end:
                break
    if options.record:
        store.record(campaigns or ALL)
    print(table(campaigns or ALL, store))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
