# SPDX-License-Identifier: Apache-2.0
"""Temperature, clocks and power of the GPU, on NVIDIA and AMD; none elsewhere."""

import importlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Reading:
    """One look at the GPU; what a driver does not tell is None.

    Attributes:
        temperature_c: Of the chip, in degrees Celsius.
        core_mhz: Clock of the compute units.
        memory_mhz: Clock of the memory.
        power_w: Power drawn by the board or the socket.
    """

    temperature_c: float | None = None
    core_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """The reading as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Sensor:
    """What reads the GPU, or why nothing can.

    Attributes:
        read: Takes one reading; None where there is no sensor.
        source: The library that reads, or the reason that none does.
        driver: Version of the driver, empty if unknown.
    """

    read: Callable[[], Reading] | None
    source: str
    driver: str = ""


def visible_index(*variables: str) -> int | str:
    """The physical GPU that is this process's first: a number, or a UUID."""
    for name in variables:
        first = os.environ.get(name, "").split(",")[0].strip()
        if first:
            return int(first) if first.isdigit() else first
    return 0


def _maybe(read: Callable[[], Any]) -> float | None:
    """A value of the driver, None where it has none: each may be unsupported."""
    try:
        return float(read())
    except Exception:
        return None


def _nvidia() -> Sensor:
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    which = visible_index("CUDA_VISIBLE_DEVICES")
    if isinstance(which, str):
        handle = nvml.nvmlDeviceGetHandleByUUID(which)
    else:
        handle = nvml.nvmlDeviceGetHandleByIndex(which)

    def clock(kind: int) -> float | None:
        return _maybe(lambda: nvml.nvmlDeviceGetClockInfo(handle, kind))

    def read() -> Reading:
        heat = nvml.NVML_TEMPERATURE_GPU
        power = _maybe(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return Reading(
            _maybe(lambda: nvml.nvmlDeviceGetTemperature(handle, heat)),
            clock(nvml.NVML_CLOCK_SM),
            clock(nvml.NVML_CLOCK_MEM),
            None if power is None else power / 1e3,
        )

    return Sensor(read, "nvidia-ml-py", str(nvml.nvmlSystemGetDriverVersion()))


def _amd() -> Sensor:
    smi: Any = importlib.import_module("amdsmi")
    smi.amdsmi_init()
    handles = smi.amdsmi_get_processor_handles()
    which = visible_index("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    handle = handles[which if isinstance(which, int) and which < len(handles) else 0]

    def temperature() -> float | None:
        now = smi.AmdSmiTemperatureMetric.CURRENT
        kinds = smi.AmdSmiTemperatureType
        for kind in (kinds.HOTSPOT, kinds.EDGE):
            value = _maybe(partial(smi.amdsmi_get_temp_metric, handle, kind, now))
            if value:
                return value
        return None

    def clock(kind: Any) -> float | None:
        return _maybe(lambda: smi.amdsmi_get_clock_info(handle, kind)["clk"])

    def power() -> float | None:
        info = smi.amdsmi_get_power_info(handle)
        for name in ("current_socket_power", "average_socket_power"):
            value = _maybe(partial(info.__getitem__, name))
            if value is not None:
                return value
        return None

    def read() -> Reading:
        kinds = smi.AmdSmiClkType
        return Reading(temperature(), clock(kinds.GFX), clock(kinds.MEM), power())

    info = smi.amdsmi_get_gpu_driver_info(handle)
    return Sensor(read, "amdsmi", str(info.get("driver_version", "")))


def find_sensor() -> Sensor:
    """The sensor of this process's first GPU, or the reason that there is none."""
    reasons = []
    for name, make in (("nvidia-ml-py", _nvidia), ("amdsmi", _amd)):
        try:
            return make()
        # A library may be missing, or there without its driver: each says it its way.
        except Exception as error:
            reasons.append(f"{name}: {str(error) or type(error).__name__}")
    return Sensor(None, "; ".join(reasons))
