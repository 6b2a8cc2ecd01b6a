# SPDX-License-Identifier: Apache-2.0
"""Public figures of the two change sets, kept apart from everything measured here."""

DOT_REGISTERS = {
    32: (65, 0),
    64: (99, 0),
    128: (175, 0),
    256: (256, 257),
    512: (256, 829),
}
"""VGPRs and spills of a dot by elements a lane, gfx1151, Triton 3.8."""
