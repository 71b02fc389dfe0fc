# SPDX-License-Identifier: Apache-2.0
"""Pure: finds dead links, wrong cables and changed wiring, in trunks and in fat trees."""
