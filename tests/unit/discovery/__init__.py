"""Tests of ri2n_sdn.discovery."""
