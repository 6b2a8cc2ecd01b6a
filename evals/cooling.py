# SPDX-License-Identifier: Apache-2.0
"""Waits until the GPU is as cool as it was before the other runs."""

import time
from collections.abc import Callable

from evals.sensors import Sensor
from series.errors import SeriesError

INTERVAL_S = 2.0


class HotError(SeriesError):
    """The GPU does not cool down to the temperature that was asked for."""


def cool_down(
    sensor: Sensor,
    limit_c: float,
    patience_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float | None] | None:
    """Waits until the GPU is no hotter than the limit.

    Args:
        sensor: What reads the temperature.
        limit_c: In degrees Celsius.
        patience_s: How long to wait at most, in seconds.
        sleep: Waits so many seconds.

    Returns:
        The last reading; None where there is no sensor.

    Raises:
        HotError: It is still hotter when patience ends.
    """
    if sensor.read is None:
        return None
    waited = 0.0
    while True:
        reading = sensor.read()
        heat = reading.temperature_c
        if heat is None or heat <= limit_c:
            return reading.as_dict()
        if waited >= patience_s:
            raise HotError(
                f"the GPU is still at {heat:.0f} °C after {waited:.0f} s, the limit "
                f"is {limit_c:.0f} °C.",
                "Give a higher --cool, or more --patience; --resume goes on.",
            )
        sleep(INTERVAL_S)
        waited += INTERVAL_S
