"""What hosts of a lab send each other, and what is counted of it:

iperf3, streams, bulk transfers, MPI, floods.
"""
