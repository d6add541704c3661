"""Modules of bench/compare.py, which compares a training step in Millrace and in other frameworks."""
