# SPDX-License-Identifier: Apache-2.0
"""The places of the pipeline's rows, by table, from the first row that is tried to the last.

A priority says only which of the rows of one table that match a frame decides. Open vSwitch tries
the highest number first. Rows that can never match the same frame may share a number, and the gaps
are for rows to come. A row with another number is another row: its cookie is another one, so every
bridge gets it anew. Cookies are hashes of how rows print, so the numbers are plain integers.
"""

from __future__ import annotations

from typing import NamedTuple

from ri2n_sdn.pipeline.layout import STARTUP_RECEIVE, Table

__all__ = [
    "CANARY",
    "LAST",
    "LEARNED",
    "ORDER",
    "STARTUP",
    "Classify",
    "Enclosed",
    "Follows",
    "Place",
    "Placed",
    "Receive",
    "ReceiveCount",
    "Send",
    "SendUnmanaged",
    "Striped",
]


class Place(NamedTuple):
    """A table, and a priority in it. 100 is for rows of which only one can match a frame."""

    table: int
    priority: int = 100


LAST = 0
"""The priority of the row that takes what is left in a table whose other rows are at 100."""


class Classify:
    """Where frames go from their port (Table.CLASSIFY)."""

    FORGED = Place(Table.CLASSIFY, 1001)  # a probe or helper's frame from the wrong port: dropped
    PROBE = Place(Table.CLASSIFY, 1000)  # to the controller
    OF_CLASS = Place(Table.CLASSIFY, 990)  # a job's packet, whose class goes into a register
    ENCLOSED = Place(Table.CLASSIFY, 985)  # an isolated job's host sends: through its wall first
    TAGGED = Place(Table.CLASSIFY, 110)  # a tag of the fabric, a helper link or a helper's message
    HANDSHAKE = Place(Table.CLASSIFY, 107)  # SYN-ACK, FIN, RST of connections that are placed
    PLACED = Place(Table.CLASSIFY, 106)  # other packets of such connections
    NO_LINK = Place(Table.CLASSIFY, 106)  # a helper's frame whose tag is of no link: dropped
    KEEPS_LINK = Place(Table.CLASSIFY, 105)  # a class of traffic that helpers do not stripe
    OF_CHANNEL = Place(Table.CLASSIFY, 105)  # a job's frame that its helper hands back
    FROM_PORT = Place(Table.CLASSIFY, 100)  # all else from a port where frames may come from
    FROM_HELPER = Place(Table.CLASSIFY, 90)  # all else from the helper's ports: dropped


class Receive:
    """Frames from NICs (Table.RECEIVE)."""

    ENCLOSED = Place(Table.RECEIVE, 1100)  # to an isolated job's host: through its wall first
    OWN_SOURCE = Place(Table.RECEIVE, 200)  # back from a switch, or forged: dropped
    STRIPED = Place(Table.RECEIVE, 197)  # a helper's frame for this NIC
    STRIPED_ELSEWHERE = Place(Table.RECEIVE, 196)  # a helper's frame for another NIC: dropped
    TO_NIC = Place(Table.RECEIVE, 195)  # a managed host's frame for this NIC
    FOR_SWITCHES = Place(Table.RECEIVE, 190)  # between bridges, and announcements: dropped
    TO_OTHER_NIC = Place(Table.RECEIVE, 186)  # a flooded copy for this host's other NIC: dropped
    FROM_NIC = Place(Table.RECEIVE, 185)  # a flooded copy between other hosts' NICs: dropped
    NEIGHBOUR = Place(Table.RECEIVE, 180)  # ARP and neighbour discovery, from any NIC
    BROADCAST = Place(Table.RECEIVE, 150)  # of a managed host, from one NIC at a time
    FROM_HOST = Place(Table.RECEIVE, 85)  # a managed host's frame under its own address
    UNMANAGED = Place(Table.RECEIVE, 50)  # all else: from hosts without Open vSwitch


class ReceiveCount:
    """Frames from managed hosts (Table.RECEIVE_COUNT)."""

    PATH = Place(Table.RECEIVE_COUNT, 100)  # by a path that is known
    OTHER_CABLE = Place(Table.RECEIVE_COUNT, 50)  # cables differ from what was learned


class Striped:
    """Frames between helpers (Table.STRIPED)."""

    FORGED = Place(Table.STRIPED, 120)  # a source that no NIC can have: dropped
    RETURNED = Place(Table.STRIPED, 110)  # our own frame, which a dead helper's host sent back
    FROM_PEER = Place(Table.STRIPED, 100)


class Send:
    """Frames that the host, its guests and its helper send (Table.SEND)."""

    TO_GUEST = Place(Table.SEND, 230)  # to a port of the same bridge
    CONTROL = Place(Table.SEND, 220)  # the controller's connection, into every network
    NEIGHBOUR = Place(Table.SEND, 210)  # ARP and neighbour discovery, into every network
    BROADCAST = Place(Table.SEND, 200)  # by one NIC per network
    OF_CLASS_DSCP = Place(Table.SEND, 132)  # a job's packet with the DSCP of a path table
    OF_CHANNEL = Place(Table.SEND, 131)  # a job's packet that its helper may send
    OF_CLASS = Place(Table.SEND, 130)  # any other packet of a job with paths of its own
    BY_PATH = Place(Table.SEND, 115)  # a placed connection's packet
    STRIPED = Place(Table.SEND, 110)  # to the helper
    TO_PEER = Place(Table.SEND, 100)  # by the pair's slot table
    PLAIN = Place(Table.SEND, 90)  # to a managed host, under the sender's own address
    UNMANAGED = Place(Table.SEND, 1)  # all else: where its destination was heard last


class SendUnmanaged:
    """Frames to hosts without Open vSwitch (Table.SEND_UNMANAGED)."""

    BY_NETWORK = Place(Table.SEND_UNMANAGED, 100)  # heard nowhere, or at a NIC of the host
    BY_PORT = Place(Table.SEND_UNMANAGED, 1)  # heard at any other port


class Enclosed:
    """The walls of an isolated job (Table.ENCLOSED_SENDS and Table.ENCLOSED_RECEIVES)."""

    SEND_OF_JOB = Place(Table.ENCLOSED_SENDS, 100)
    SEND = Place(Table.ENCLOSED_SENDS, 90)  # to services, and what every host needs
    RECEIVE_OF_JOB = Place(Table.ENCLOSED_RECEIVES, 100)
    RECEIVE = Place(Table.ENCLOSED_RECEIVES, 90)  # from services, and what every host needs


class Placed:
    """What places connections (Table.PLACED)."""

    BY_CONTROLLER = Place(Table.PLACED, 20)
    FOLLOWED = Place(Table.PLACED, 10)  # learned from a server's frame


class Follows:
    """What learns from a server's frame (Table.FOLLOW)."""

    RESET = Place(Table.FOLLOW, 110)  # nobody answers a RST: a row learned from it would stay
    LEARN = Place(Table.FOLLOW, 100)


CANARY = Place(Table.CANARY, 1)
"""The row that no frame hits. While a poll finds it, nobody has emptied the tables."""

LEARNED = Place(Table.LEARNED, 10)
"""Where an address without Open vSwitch was heard last: learned by the bridge itself."""

STARTUP = Place(STARTUP_RECEIVE, 100)
"""The rows of `host-up` that tell the host's addresses."""

ORDER = 1000
"""The priority of order 0 among the messages for a host's scripts (Table.JOB_ANSWERS).

Order N has N more. An answer has the number of its class, which is lower.
"""
