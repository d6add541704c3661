"""Modules of bench/mue.py, which measures memory usage efficiency with the GPU's counters."""
