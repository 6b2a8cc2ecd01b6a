# SPDX-License-Identifier: Apache-2.0
"""Stands in for torchvision where only text is served: it imports, and no more.

The registry's torchvision does not load beside the torch that the CPU engine needs, and
the Qwen3.5 modules import it before they know that there are no images.
"""

from typing import Any, NoReturn

__version__ = "0.0.0+stub"


def absent(name: str) -> Any:
    """A function of that name, which says that there is none."""

    def refuse(*args: object, **words: object) -> NoReturn:
        raise RuntimeError(f"{name}: this torchvision stands in for text models only")

    if name.startswith("__"):
        raise AttributeError(name)
    return refuse
