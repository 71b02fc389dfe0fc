"""The documentation as a site: what `./dev docs` adds to the pages of docs/."""
