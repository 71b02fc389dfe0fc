# SPDX-License-Identifier: Apache-2.0
"""Jobs: who may use which paths, from when until when, and what is in the way. All pure."""
