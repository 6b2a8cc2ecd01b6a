# SPDX-License-Identifier: Apache-2.0
"""Changing images: not here."""

from torchvision import absent as __getattr__

from .. import InterpolationMode

__all__ = ["InterpolationMode", "__getattr__"]
