# SPDX-License-Identifier: Apache-2.0
from tests.harness import kernels

BEFORE = """\
import triton
import triton.language as tl


@triton.jit
def _scaled(x, by):
    return x * by


@triton.jit
def update(x, out):
    tl.store(out, _scaled(tl.load(x), 2))


@triton.autotune(configs=[], key=[])
@triton.jit(do_not_specialize=["n"])
def other(x, n):
    tl.store(x, n)


def launch(x):
    update[(1,)](x, x)
"""
PATH = "vllm/layers/ops.py"


def test_a_new_file_brings_its_kernels_but_not_their_parts() -> None:
    found = ["vllm.layers.ops.update", "vllm.layers.ops.other"]
    assert kernels.changed(PATH, "", BEFORE) == found


def test_what_stays_the_same_is_not_a_change() -> None:
    moved = BEFORE.replace("def launch", "# a comment\n\n\ndef launch")
    assert kernels.changed(PATH, BEFORE, moved) == []


def test_a_change_of_a_kernel_names_it_alone() -> None:
    after = BEFORE.replace("tl.store(x, n)", "tl.store(x, n + 1)")
    assert kernels.changed(PATH, BEFORE, after) == ["vllm.layers.ops.other"]


def test_a_change_of_a_part_is_one_of_the_kernel_that_runs_it() -> None:
    after = BEFORE.replace("return x * by", "return by * x")
    assert kernels.changed(PATH, BEFORE, after) == ["vllm.layers.ops.update"]


def test_parts_that_call_each_other_end() -> None:
    source = "".join(
        f"@triton.jit\ndef {name}(x): {callee}(x)\n"
        for name, callee in (("a", "b"), ("b", "c"), ("c", "b"))
    )
    assert kernels.changed("vllm/__init__.py", "", source) == ["vllm.a"]


def test_a_file_without_kernels() -> None:
    assert kernels.changed(PATH, "", "def plain(x): return x\n") == []
