# SPDX-License-Identifier: Apache-2.0
import sys
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the arms are torch's")
pytest.importorskip("triton", reason="the bounded dot is a Triton kernel")

from evals import bounded_dot, dot_arms  # noqa: E402
from evals.dot_arms import Arm, Case  # noqa: E402


def tiny_dot_triton(x: Any, weight: Any, apply_sigmoid: bool = False) -> Any:
    dot = (x.float() * weight.float()).sum(-1, keepdim=True).to(x.dtype)
    return torch.sigmoid(dot) if apply_sigmoid else dot


def gated_output_triton(x: Any, weight: Any, expert: Any) -> Any:
    return tiny_dot_triton(x, weight, True) * expert


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A tree with both kernels, computed by torch on this machine's CPU."""
    monkeypatch.setattr(dot_arms, "DEVICE", "cpu")
    made: dict[str, Any] = {}
    for name, function in (
        (dot_arms._TINY_DOT, tiny_dot_triton),
        (dot_arms._OUTPUT, gated_output_triton),
    ):
        made[name] = ModuleType(name)
        setattr(made[name], function.__name__, function)
        monkeypatch.setitem(sys.modules, name, made[name])
    monkeypatch.setattr(dot_arms.vllm_tree, "has", made.__contains__)
    return made


def names(case: Case) -> list[str]:
    return [*dot_arms.available(case)]


def test_the_bounded_dot_stands_beside_what_replaced_it(modules: dict) -> None:
    assert names(Case(2048, "bf16", "dot")) == ["blas", "eager", "bounded", "triton"]
    past = bounded_dot.MAX_K + 1
    assert names(Case(past, "bf16", "gate")) == ["blas", "eager", "triton"]


def test_a_tree_with_a_bound_has_the_bounded_dot_itself(modules: dict) -> None:
    modules[dot_arms._TINY_DOT].TINY_DOT_MAX_K = 4096
    assert names(Case(4096, "bf16", "dot")) == ["blas", "eager", "triton"]
    assert names(Case(4097, "bf16", "dot")) == ["blas", "eager"]
    assert names(Case(4097, "bf16", "output")) == ["blas", "eager"]


def test_an_output_has_the_two_launches_and_the_one(modules: dict) -> None:
    case = Case(64, "bf16", "output")
    arms = dot_arms.available(case)
    assert [*arms] == ["blas", "eager", dot_arms.TWO_LAUNCHES, "triton"]
    assert arms["triton"].alone
    assert dot_arms.foreign(arms["triton"]) == [dot_arms.KERNEL]
    assert dot_arms.foreign(arms["blas"]) == [dot_arms.KERNEL, dot_arms.OUTPUT_KERNEL]
    del modules[dot_arms._OUTPUT]
    assert names(case) == ["blas", "eager", dot_arms.TWO_LAUNCHES]


@pytest.mark.parametrize("form", dot_arms.FORMS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_right_arms_agree_and_wrong_ones_do_not(
    modules: dict, form: str, dtype: str
) -> None:
    case = Case(2048, dtype, form)
    arms = dot_arms.available(case)
    for name in set(arms) - {"bounded"}:
        assert dot_arms.disagreement(case, arms[name], 7) == ""

    def off(*operands: Any) -> Any:
        out = arms["triton"].call(*operands).clone()
        out.view(-1)[-1] *= 1.2
        return out

    said = dot_arms.disagreement(case, Arm("off", off, {}), 7)
    assert said.startswith(f"K=2048 {dtype} {form}: off gives ")
    nothing = Arm("nan", lambda *o: arms["triton"].call(*o) * float("nan"), {})
    assert "nan gives nan" in dot_arms.disagreement(case, nothing, 7)


def test_an_output_of_another_shape_is_wrong(modules: dict) -> None:
    case = Case(64, "bf16", "output")
    gate = Arm("gate", lambda x, w, e: tiny_dot_triton(x, w, True), {})
    assert "gate gives" in dot_arms.disagreement(case, gate, 7)


def test_one_bit_is_a_difference(modules: dict) -> None:
    case = Case(64, "bf16", "output")
    arms = dot_arms.available(case)
    assert dot_arms.differing(case, arms, 3)[dot_arms.TWO_LAUNCHES] == 0

    def flipped(*operands: Any) -> Any:
        out = gated_output_triton(*operands)
        out.view(torch.int16)[0, 5] ^= 1
        return out

    arms["triton"] = Arm("triton", flipped, {})
    counts = dot_arms.differing(case, arms, 3)
    assert counts[dot_arms.TWO_LAUNCHES] == dot_arms.TOKENS
    assert dot_arms.differing(Case(64, "bf16", "dot"), arms, 3) == {}
