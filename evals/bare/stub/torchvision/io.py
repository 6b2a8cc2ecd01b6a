# SPDX-License-Identifier: Apache-2.0
"""Reading images: not here."""

from enum import Enum

from . import absent as __getattr__

__all__ = ["ImageReadMode", "__getattr__"]


class ImageReadMode(Enum):
    """How an image would be read."""

    UNCHANGED = 0
    GRAY = 1
    RGB = 3
