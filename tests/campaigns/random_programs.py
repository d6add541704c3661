"""Random programs, each of which is checked as tests/random/check.h says.

Its gradients agree with forward-mode derivatives and finite differences, and its fused groups, with and without
recomputation and saved predicates, agree with the unfused graph row by row. One in 16 is a full program, the others
are small (ProgramSize in tests/random/generator.h). The first 4,700 were all full ones; the count `of these small`
says how many are not.
"""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("random_programs", ("programs", 200_000), program_slice("random_programs"))]
