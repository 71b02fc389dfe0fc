# SPDX-License-Identifier: Apache-2.0
"""The controller's os-ken apps. They send what `pipeline` and `weights` have computed."""
