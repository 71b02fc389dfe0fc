"""A cluster on one machine: namespaces, Open vSwitch, shaped links, faults."""
