# SPDX-License-Identifier: Apache-2.0
"""An Open vSwitch application: several cheap NICs on several cheap switches as one IP address.

Hosts get the sum of their NICs' rates.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
