# SPDX-License-Identifier: Apache-2.0
"""What lets the patched tree's tests run from its Python sources alone.

Loaded into the interpreter that runs them, which may be a ROCm or CUDA image of the
user's: everything here needs pytest, torch and triton only, and writes nothing into the
tree.
"""
