# SPDX-License-Identifier: Apache-2.0
"""The web process: REST, GUI and metrics of a controller, which it knows by its socket alone."""
