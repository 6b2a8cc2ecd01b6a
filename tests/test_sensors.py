# SPDX-License-Identifier: Apache-2.0
"""The sensors against stand-ins of the two libraries, and without either."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from evals import sensors


def refuse(*_: object) -> float:
    raise RuntimeError("Not Supported")


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("CUDA", "HIP", "ROCR"):
        monkeypatch.delenv(f"{name}_VISIBLE_DEVICES", raising=False)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> None:
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)


@pytest.mark.usefixtures("no_libraries")
def test_without_a_library_it_says_so() -> None:
    found = sensors.find_sensor()
    assert found.read is None
    assert "nvidia-ml-py" in found.source
    assert "amdsmi" in found.source


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize(
    ("visible", "expected"), [("", 0), ("3,1", 3), ("GPU-1f", "GPU-1f")]
)
def test_nvidia(
    monkeypatch: pytest.MonkeyPatch, visible: str, expected: object
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    module(
        monkeypatch,
        "pynvml",
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda at: at,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTemperature=lambda handle, kind: 35 if handle == expected else 0,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
        nvmlDeviceGetPowerUsage=refuse,
        nvmlSystemGetDriverVersion=lambda: "580.1",
    )
    found = sensors.find_sensor()
    assert (found.source, found.driver) == ("nvidia-ml-py", "580.1")
    assert found.read is not None
    assert found.read() == sensors.Reading(35.0, 1980.0, 3201.0, None)


@pytest.mark.usefixtures("no_libraries")
def test_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    def temperature(handle: str, kind: str, metric: str) -> float:
        return 0 if kind == "hotspot" else 34

    module(
        monkeypatch,
        "amdsmi",
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT="now"),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT="hotspot", EDGE="edge"),
        AmdSmiClkType=SimpleNamespace(GFX="gfx", MEM="mem"),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["one"],
        amdsmi_get_temp_metric=temperature,
        amdsmi_get_clock_info=lambda handle, kind: {"clk": 2100},
        amdsmi_get_power_info=lambda handle: {
            "current_socket_power": "N/A",
            "average_socket_power": 120,
        },
        amdsmi_get_gpu_driver_info=lambda handle: {"driver_version": "6.14"},
    )
    found = sensors.find_sensor()
    assert (found.source, found.driver) == ("amdsmi", "6.14")
    assert found.read is not None
    assert found.read() == sensors.Reading(34.0, 2100.0, 2100.0, 120.0)
