"""The commands `ri2n lab`, `ri2n bench` and `ri2n demo`, and what the product's commands ask
about labs.
"""
