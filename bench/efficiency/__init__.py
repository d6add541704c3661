"""What bench/mue.py is made of: how near a plan's launches come to the memory's limits, by the GPU's counters."""
