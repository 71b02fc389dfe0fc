"""Pure: one file per weight strategy, one signature; slots.py turns weights into slot tables."""
