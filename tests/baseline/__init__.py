"""What the product does, written down: compared and renewed by `./dev baseline`."""
