"""Faults planted in generated kernels: each must be found by the check that every candidate goes through.

CUDA kernels run on the emulated GPU. What the check did not find is examined with other inputs: `without effect` (the
same bits), `within rounding`, or `missed`.
"""

from campaign import Campaign, program_slice

CAMPAIGNS = [
    Campaign("cpu_mutants", ("mutants", 1_000), program_slice("cpu_mutants")),
    Campaign("cuda_mutants", ("mutants", 1_000), program_slice("cuda_mutants")),
]
