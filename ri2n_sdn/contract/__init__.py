"""The contract: what processes say to each other, with one owner for each fact. Pure."""
