"""Labs on another kernel: user-mode Linux as a guest on this machine, in real or in virtual
time.
"""
