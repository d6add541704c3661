"""Random programs: one is checked as tests/random/check.h says.

Its gradients agree with forward-mode derivatives and finite differences, and its fused groups, with and without
recomputation and saved predicates, agree with the unfused graph row by row. All but one in eight are small (from seed 6,400 on one in 16) (ProgramSize in
tests/random/generator.h), from seed 4,701 on; all before were full ones.
"""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("random_programs", ("programs", 200_000), program_slice("random_programs"))]
