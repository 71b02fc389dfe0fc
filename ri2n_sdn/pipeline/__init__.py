"""Pure: the fabric and its weights as OpenFlow tables and groups, as plain data; their
difference.
"""
