"""Tests of ri2n_parallel."""
