# SPDX-License-Identifier: Apache-2.0
"""Changing images: not here."""

from .. import InterpolationMode
from . import functional

__all__ = ["InterpolationMode", "functional"]
