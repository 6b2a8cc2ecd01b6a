# SPDX-License-Identifier: Apache-2.0
"""The one name that is used without an image."""

from enum import Enum


class InterpolationMode(Enum):
    """How an image would be resized."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
