"""Pure: how dead links, wrong cables and changed wiring are found, for trunks and fat trees
alike.
"""
