"""Random programs: gradients against forward-mode derivatives and finite differences, fused groups row by row."""

from campaign import Campaign, program_slice

CAMPAIGNS = [Campaign("random_programs", ("programs", 200_000), program_slice("random_programs"))]
