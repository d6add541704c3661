"""Millrace: data movement of transformer training, made visible and then made small."""

__version__ = "0.1.0"
