"""What `./dev test` runs:

the tiers, one after the other, in guests where they need another kernel, and their tally.
"""
