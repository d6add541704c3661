"""Random programs as plans of random candidates, compiled, run on the CPU and compared with the reference.

Each plan has its own program, alternatives, candidates, conversions and arguments. One program in 16 is a full one, the
others are small (ProgramSize in tests/random/generator.h); before seed 199 all were full ones. Programs with more than
20 operators are left out and counted. 14 plans in 15 are compiled at -O1, since kernels as users compile them are
checked by the tests of candidates.
"""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("planned_programs", ("plans", 2_000), program_slice("planned_programs"))]
