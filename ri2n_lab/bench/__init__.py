"""The tables of the papers, measured with real traffic."""
