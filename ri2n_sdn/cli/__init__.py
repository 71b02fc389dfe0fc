"""The `ri2n` command."""
