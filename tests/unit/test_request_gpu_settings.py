"""What a person may write in gpustrap_gpu_power_limit, and how a wrong value is told."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpustrap.model.request import Request
from gpustrap.site.values import wrong_value

GOOD = {None: None, 250: {"any": 250}}
WRONG = ["250", "250 W", 0, -1, 99.5, True, [250], {"RTX 3090": "250 W"}, {"RTX 3090": True}]


@pytest.mark.parametrize("value", GOOD)
def test_a_number_is_for_every_gpu(value):
    assert Request.model_validate({"gpu_power_limit": value}).gpu_power_limit == GOOD[value]


def test_a_mapping_stays_one():
    limits = {"RTX 3090": 250, "0000:65:00.0": 200}
    assert Request.model_validate({"gpu_power_limit": limits}).gpu_power_limit == limits


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_watts_are_whole_numbers(value):
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"gpu_power_limit": value})
    (error,) = caught.value.errors()
    assert wrong_value(error).said.startswith("must be whole watts, e.g. 250, or a mapping")
