# SPDX-License-Identifier: Apache-2.0
"""What a workload says of the kernels of its steps."""

import pytest

from evals import engine
from evals.ab_options import arms_of, parse
from evals.arms import Outcome, VoidError, require_claims
from evals.decode import claims
from evals.kinds import Launch
from evals.workloads import Gdn

KERNELS = {
    "rowwise": "_gdn_decode_rowwise_kernel",
    "unfused": "fused_sigmoid_gating_delta_rule_update_kernel",
}


class Generator:
    """Steps of two layers, each a call of one kernel."""

    def __init__(self, arm: str) -> None:
        self.launches = [Launch(KERNELS[arm], 2.0)] * 2

    def profiled(self, tokens: int) -> tuple[list[Launch], float]:
        steps = 3 if tokens == engine.PROFILED_LONG else 1
        return steps * self.launches, float(steps)


def told(*by_number: str) -> Outcome:
    work = Gdn.__new__(Gdn)
    work.generators = {  # type: ignore[assignment]
        number: Generator(arm) for number, arm in enumerate(by_number, 1)
    }
    calls, notes = work.witness()
    assert notes.keys() == {f"step of {n}" for n in range(1, len(by_number) + 1)}
    return Outcome({}, calls, {}, notes)


def test_an_arm_is_held_to_its_kernel_at_every_number_of_requests() -> None:
    words = ["--arm", "rowwise=true", "--arm", "unfused=true", "--out", "x"]
    arm = arms_of(parse([*words, *claims("gdn", "rowwise")], None))[0]
    calls = told("rowwise", "rowwise")
    assert calls.calls["gdn_rowwise"] == 2.0
    require_claims(arm, calls)
    for mixed in (("unfused", "rowwise"), ("rowwise", "unfused")):
        with pytest.raises(VoidError, match="called gdn_unfused 2 times"):
            require_claims(arm, told(*mixed))
