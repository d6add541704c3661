"""Random programs as plans of random candidates, compiled, run on the CPU and compared with the reference."""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("planned_programs", ("plans", 2_000), program_slice("planned_programs"))]
