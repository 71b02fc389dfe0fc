# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: what `./dev docs` adds to the pages of docs/."""
