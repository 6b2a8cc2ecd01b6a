# SPDX-License-Identifier: Apache-2.0
"""The modules behind apply.py: pin, checkout, stack, export, report."""
