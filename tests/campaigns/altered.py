"""Plans and databases, altered and sealed with a hash that fits, under ASan and UBSan: refused, or right.

A plan has one to three values changed (tests/campaigns/checks/alter.h). It is either refused with a message; or it is
verified, compiled and run, and computes what the program in it says. The library next to it must never be executed.

A database has other bytes, rows with other values and a hash that fits, or changed lines for an import. It is refused,
or gives only rows that a database may hold; what `db` reads of it and what can be salvaged is read, too.
"""

from campaign import Campaign, program_slice

CAMPAIGNS = [
    Campaign("altered_plans", ("plans", 50_000), program_slice("altered_plans", sanitized=True)),
    Campaign("altered_databases", ("databases", 50_000), program_slice("altered_databases", sanitized=True)),
]
