"""The campaigns of tests/campaigns/: a small slice of each, what a slice leaves behind, and where the next one begins."""

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/campaigns"))

import run as campaigns  # noqa: E402
from campaign import Binaries, Campaign, Slice, State, Store, run_slice, table  # noqa: E402

from command_test_case import BINARY, long  # noqa: E402

BUILD = Path(BINARY).resolve().parent
# Altered artefacts need no sanitizer to be tried; the fuzzers are tests of their own.
BINARIES = Binaries(BUILD, BUILD)


class SliceTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.store = Store(self.folder / "state", self.folder / "campaigns.json")

    def campaign(self, **changes) -> Campaign:
        def run(binaries, seed, seconds, most, folder):
            return Slice(seed + most, {"seeds": most}, [], changes.get("failures", []))

        return Campaign("counted", ("seeds", 100), run)

    def test_slices_continue_where_the_last_one_stopped(self) -> None:
        campaign = self.campaign()
        for _ in range(3):
            run_slice(campaign, self.store, BINARIES, 0, 10)
        state = Store(self.folder / "state").state_of(campaign)
        self.assertEqual((state.next_seed, state.counts, state.slices), (31, {"seeds": 30}, 3))

    def test_a_slice_that_dies_changes_nothing(self) -> None:
        campaign = self.campaign()
        run_slice(campaign, self.store, BINARIES, 0, 10)

        def dies(*_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            run_slice(Campaign("counted", ("seeds", 100), dies), self.store, BINARIES, 0, 10)
        self.assertEqual(self.store.state_of(campaign).next_seed, 11)

    def test_without_a_state_the_record_is_continued(self) -> None:
        campaign = self.campaign()
        run_slice(campaign, self.store, BINARIES, 0, 10)
        self.store.record([campaign])
        elsewhere = Store(self.folder / "another", self.folder / "campaigns.json")
        run_slice(campaign, elsewhere, BINARIES, 0, 10)
        self.assertEqual(elsewhere.state_of(campaign).counts, {"seeds": 20})
        self.assertEqual(elsewhere.state_of(campaign).next_seed, 21)

    def test_failures_are_kept_and_shown(self) -> None:
        campaign = self.campaign(failures=[{"seed": "7", "what": "wrong"}])
        run_slice(campaign, self.store, BINARIES, 0, 10)
        self.assertEqual(self.store.state_of(campaign).failures, [{"seed": "7", "what": "wrong"}])
        self.assertRegex(table([campaign], self.store), r"counted +10 +100 +1 ")

    def test_the_record_of_this_repository_fits(self) -> None:
        known = {campaign.name for campaign in campaigns.ALL}
        for name, state in Store(self.folder / "state").recorded().items():
            self.assertIn(name, known)
            self.assertEqual(State(**state).failures, [], f"{name} has failures that nobody explained")


class EachCampaignTest(unittest.TestCase):
    """Seeds that no recorded campaign has reached, and another one in every run."""

    def try_one(self, name: str, seconds: float = 0.5, most: int = 1000) -> dict[str, int]:
        campaign = next(each for each in campaigns.ALL if each.name == name)
        seed = 10**6 + int.from_bytes(os.urandom(3), "big")
        with tempfile.TemporaryDirectory() as folder:
            done = campaign.run(BINARIES, seed, seconds, most, Path(folder))
        self.assertEqual(done.failures, [], f"{name} from seed {seed}")
        self.assertGreater(done.next_seed, seed)
        return done.counts

    @long
    def test_random_programs(self) -> None:
        self.assertGreaterEqual(self.try_one("random_programs")["programs"], 1)

    def test_kills(self) -> None:
        counts = self.try_one("kills", most=1)
        self.assertEqual(counts["explorations"], 1)
        self.assertGreaterEqual(counts["kills"], 5)  # one may have ended by itself before

    @long
    def test_altered_databases(self) -> None:
        self.assertGreaterEqual(self.try_one("altered_databases")["databases"], 1)

    @long
    def test_planned_programs(self) -> None:
        self.try_one("planned_programs", most=1)

    @long
    def test_mutants(self) -> None:
        self.assertGreater(sum(self.try_one("cpu_mutants", most=1).values()), 0)
        self.assertGreater(sum(self.try_one("cuda_mutants", most=1).values()), 0)

    @long
    def test_altered_plans(self) -> None:
        self.assertGreaterEqual(self.try_one("altered_plans", 2)["plans"], 1)

    @long
    def test_masks(self) -> None:
        self.assertGreaterEqual(self.try_one("masks", most=1)["masks"], 2)


if __name__ == "__main__":
    unittest.main()
