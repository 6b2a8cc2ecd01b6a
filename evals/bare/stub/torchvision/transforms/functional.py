# SPDX-License-Identifier: Apache-2.0
"""Changing images: not here."""

from torchvision import absent as __getattr__

__all__ = ["__getattr__"]
