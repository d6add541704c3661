"""Plans and databases, altered and sealed with a hash that fits, under ASan and UBSan: refused, or right."""

from campaign import Campaign, program_slice

CAMPAIGNS = [
    Campaign("altered_plans", ("plans", 50_000), program_slice("altered_plans", sanitized=True)),
    Campaign("altered_databases", ("databases", 50_000), program_slice("altered_databases", sanitized=True)),
]
