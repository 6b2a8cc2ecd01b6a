# SPDX-License-Identifier: Apache-2.0
"""Runs the patched tree's tests and says what ran: the modules behind tests/run.py.

All but tree use the standard library alone: the bundle carries them to machines that
have nothing else. tree asks git, through the series package.
"""
