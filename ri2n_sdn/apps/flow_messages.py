# SPDX-License-Identifier: Apache-2.0
"""The request for rows of a switch, as an object of os-ken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_OURS
from ri2n_sdn.pipeline.messages import MatchValue

__all__ = ["flow_request"]


def flow_request(
    channel: Channel,
    table: int = ofp.OFPTT_ALL,
    cookie: int = COOKIE_OURS << 48,
    mask: int = COOKIE_MASK,
    match: Mapping[str, MatchValue] | None = None,
) -> Any:
    """A request for the rows of one table, or of all, with this cookie under `mask`.

    These are by default all rows of this controller. With `match`, they are rows for such frames.
    """
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        table,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        cookie,
        mask,
        parser.OFPMatch(**match or {}),
    )
