"""What bench/compare.py is made of: one training step of a layer, by Millrace and by others."""
