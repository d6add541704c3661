"""Makes the paper's tables from a plan and its measurements, for bench/paper_tables.py."""
