"""The sum of several cheap NICs on several cheap switches, as one IP address:

an Open vSwitch application.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
