# SPDX-License-Identifier: Apache-2.0
"""Traffic between hosts of a lab, and what is measured of it.

There is iperf3, UDP streams with sequence numbers, bulk transfers, MPI programs, losses and floods.
"""
