"""The paper's tables out of a plan and what was measured for it; bench/paper_tables.py writes them."""
