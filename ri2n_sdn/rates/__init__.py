"""Pure: what rates over paths add up to on links, and which rates are max-min fair."""
