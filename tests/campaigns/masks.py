"""Dropout masks of compiled plans: forward equals backward; shares, neighbours, dropouts and steps are independent."""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("masks", ("masks", 100_000), program_slice("masks"))]
