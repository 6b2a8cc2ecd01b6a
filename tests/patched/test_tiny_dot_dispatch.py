# SPDX-License-Identifier: Apache-2.0
"""Every 1-wide linear of the tree, and whether the tiny dot may answer for it.

The dispatcher's change fires for any unquantized fp16/bf16 Linear(K, 1), so a
new one in the tree is a decision: it fails here until it is listed.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import vllm
from vllm.model_executor.layers import utils

TREE = Path(vllm.__file__).parent.parent
MODELS = "vllm/model_executor/models"

# (file, class, name of the layer): what the dispatcher can see of it on gfx1151.
ANSWERED = {
    (f"{MODELS}/interns2_mobius.py", "ReplicatedLinear", "shared_expert_gate"),
    (f"{MODELS}/qwen2_moe.py", "ReplicatedLinear", "shared_expert_gate"),
    (f"{MODELS}/qwen3_moe.py", "ReplicatedLinear", "shared_expert_gate"),
    (f"{MODELS}/qwen3_next.py", "ReplicatedLinear", "shared_expert_gate"),
    (
        "vllm/models/kimi_k3/amd/linear.py",
        "ReplicatedLinear",
        "self_attention_res_proj",
    ),
    ("vllm/models/kimi_k3/amd/linear.py", "ReplicatedLinear", "mlp_res_proj"),
    ("vllm/models/kimi_k3/amd/linear.py", "ReplicatedLinear", "output_attn_res_proj"),
}
REASONS = {
    # Pooling heads in head_dtype, fp32 by default: _is_tiny_dot refuses fp32.
    (f"{MODELS}/internlm2.py", "RowParallelLinear", "v_head"): "fp32 by default",
    (f"{MODELS}/qwen3_dspark.py", "ReplicatedLinear", "proj"): "fp32",
    # Plain torch modules never reach vLLM's dispatcher.
    (f"{MODELS}/clef_omni.py", "Linear", ""): "torch.nn",
    (f"{MODELS}/roberta.py", "Linear", "sparse_linear"): "torch.nn",
    # Built on CUDA only.
    **{
        ("vllm/models/kimi_k3/nvidia/model.py", "ReplicatedLinear", name): "CUDA"
        for name in ("self_attention_res_proj", "mlp_res_proj", "output_attn_res_proj")
    },
}


def _one_wide(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Class and attribute name of each linear built with the literal width 1."""
    owner: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Attribute):
                owner[node.value] = target.attr
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else ""
        name = called.id if isinstance(called, ast.Name) else name
        if not name.endswith("Linear"):
            continue
        words = {word.arg: word.value for word in node.keywords}
        width = node.args[1] if len(node.args) > 1 else None
        width = width or words.get("output_size") or words.get("out_features")
        if isinstance(width, ast.Constant) and width.value == 1:
            yield name, owner.get(node, "")


def _found() -> set[tuple[str, str, str]]:
    found = set()
    for path in sorted((TREE / "vllm").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "Linear(" in source:
            name = path.relative_to(TREE).as_posix()
            found |= {(name, *linear) for linear in _one_wide(ast.parse(source))}
    return found


def test_every_one_wide_linear_of_the_tree_is_listed() -> None:
    assert _found() == ANSWERED | REASONS.keys()


def test_the_scan_sees_a_linear_that_is_new() -> None:
    source = "class M:\n def f(self):\n  self.gate = ColumnParallelLinear(64, 1)"
    assert list(_one_wide(ast.parse(source))) == [("ColumnParallelLinear", "gate")]


def _calls(source: str, name: str) -> list[str]:
    """The functions of a module that call ``name``."""
    return [
        function.name
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
    ]


LAYERS = TREE / "vllm/model_executor/layers"
GATE = "vllm/model_executor/layers/shared_expert_gate.py"
# Which patches of the gate the tree has, by what each leaves there.
HAS_GATE = (TREE / GATE).exists()
HAS_PRODUCT = (LAYERS / "shared_expert_gate_triton.py").exists()
HAS_HOPPER = HAS_GATE and "_on_hopper" in (TREE / GATE).read_text(encoding="utf-8")
BY_CAPABILITY = {"_is_tiny_dot", "can_gate_on_hopper"} if HAS_HOPPER else set()


@pytest.mark.parametrize(
    ("name", "callers"),
    [
        ("_tiny_dot", {"rocm_unquantized_gemm_impl", "rocm_shared_expert_gate_impl"}),
        ("_is_tiny_dot", {"rocm_unquantized_gemm_impl", "can_fuse_shared_expert_gate"}),
        ("tiny_dot_triton", {"_tiny_dot"}),
        (
            "can_fuse_shared_expert_gate",
            {"apply_shared_expert_gate"} if HAS_PRODUCT else {"forward"},
        ),
        (
            "gated_output_triton",
            {"shared_expert_gated_output_impl"} if HAS_PRODUCT else set(),
        ),
        ("apply_shared_expert_gate", {"forward"} if HAS_PRODUCT else set()),
        ("_is_one_wide", BY_CAPABILITY),
    ],
)
def test_nothing_else_reaches_the_kernel(name: str, callers: set[str]) -> None:
    if not HAS_GATE:
        pytest.skip("the tree stands before patch 0003")
    found = set()
    for path in sorted((TREE / "vllm").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if name in source:
            found |= set(_calls(source, name))
    assert found == callers


def _users(call: str) -> set[str]:
    """The files of the tree in which a call is written."""
    return {
        path.relative_to(TREE).as_posix()
        for path in (TREE / "vllm").rglob("*.py")
        if call in path.read_text(encoding="utf-8")
    }


def test_only_the_gated_mlps_take_the_gate_ops() -> None:
    if not HAS_GATE:
        pytest.skip("the tree stands before patch 0003")
    mlp = f"{MODELS}/qwen2_moe.py"
    takes_the_gate = {GATE} if HAS_PRODUCT else {mlp}
    assert _users("rocm_shared_expert_gate(") == takes_the_gate
    if HAS_PRODUCT:
        assert _users("vllm.shared_expert_gated_output(") == {GATE}
        gated = _users("apply_shared_expert_gate(")
        # The MLP of Qwen3-MoE is folded on by a patch of its own.
        assert {GATE, mlp} <= gated <= {GATE, mlp, f"{MODELS}/qwen3_moe.py"}


SHAPES = [
    pytest.param((1, 2048), (1, 2048), torch.bfloat16, None, True, id="gate"),
    pytest.param((1, 2048), (1, 2048), torch.float16, None, True, id="fp16"),
    pytest.param((2048,), (1, 2048), torch.bfloat16, None, True, id="one-dimension"),
    pytest.param((1, 1, 29), (1, 29), torch.bfloat16, None, True, id="batched"),
    pytest.param((1, 2048), (1, 2048), torch.float32, None, False, id="fp32"),
    pytest.param((1, 2048), (1, 2048), torch.float64, None, False, id="fp64"),
    pytest.param((1, 2048), (2, 2048), torch.bfloat16, None, False, id="two-wide"),
    pytest.param((1, 2048), (2048,), torch.bfloat16, None, False, id="weight-1d"),
    pytest.param((1, 2048), (1, 2048), torch.bfloat16, 1, False, id="bias"),
]


@pytest.mark.parametrize(("x", "weight", "dtype", "bias", "taken"), SHAPES)
def test_predicate(
    monkeypatch: pytest.MonkeyPatch,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    dtype: torch.dtype,
    bias: int | None,
    taken: bool,
) -> None:
    monkeypatch.setattr("vllm.platforms.rocm.on_gfx1151", lambda: True)
    vector = None if bias is None else torch.empty(bias, dtype=dtype)
    words = torch.empty(x, dtype=dtype), torch.empty(weight, dtype=dtype), vector
    assert utils._is_tiny_dot(*words) is taken
    monkeypatch.setattr("vllm.platforms.rocm.on_gfx1151", lambda: False)
    assert utils._is_tiny_dot(*words) is False


def test_cpu_tensors_leave_before_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a CPU tensor reached the ROCm op")

    monkeypatch.setattr(torch.ops.vllm, "rocm_unquantized_gemm", refuse)
    x, weight = torch.randn(1, 64), torch.randn(1, 64)
    out = utils.rocm_unquantized_gemm(SimpleNamespace(), x, weight)
    torch.testing.assert_close(out, x @ weight.t())


def test_other_platforms_never_name_the_dot() -> None:
    for dispatch in (utils.default_unquantized_gemm, utils.cpu_unquantized_gemm):
        assert "tiny_dot" not in inspect.getsource(dispatch)
