"""What was meant by a variable that there is not: an order only where it is surely a good one."""

from __future__ import annotations

import pytest

from gpustrap.model.request import Request
from gpustrap.site.meant import Meant, variable_meant


@pytest.mark.parametrize(
    ("name", "value", "variable", "written"),
    [
        ("cuda", "12.9", "cuda_version", ""),
        ("driver", 580, "driver_branch", ""),
        ("driver", "580.178.04", "driver_version", ""),
        ("driver", "open", "driver_flavour", ""),
        ("driver", None, "driver_branch", ""),
        ("drivers", "nvidia", "driver_origin", ""),
        ("nvidia_driver", 580, "driver_branch", ""),
        ("nvidia_driver_branch", 580, "driver_branch", ""),
        ("cuda_toolkit_version", "12.9", "cuda_version", ""),
        ("docker_repo", "https://mirror.example", "docker_repository", ""),
        ("dokcer", True, "docker", ""),
        ("time_zone", "UTC", "timezone", ""),
        ("frame-works", ["jax"], "environments", ""),
        ("Driver_Branch", 580, "driver_branch", ""),
        ("gpus", "none", "gpu", ""),
        ("torch", True, "environments", "[torch]"),
        ("pytorch", True, "environments", "[pytorch]"),
        ("frameworks", ["torch"], "environments", ""),
        ("latest", True, "policy", "latest"),
        ("miniconda", True, "conda_distribution", "miniconda"),
    ],
)
def test_what_was_meant(name: str, value: object, variable: str, written: str) -> None:
    assert variable_meant(f"gpustrap_{name}", value) == Meant(f"gpustrap_{variable}", written)


@pytest.mark.parametrize("name", ["secure_boot", "cudnn_version", "kernel", "gpu_count", "users", "a", "", "auto"])
def test_nothing_is_guessed_of_what_is_far(name: str) -> None:
    assert variable_meant(f"gpustrap_{name}", 1) is None


def test_every_variable_without_its_prefix_is_itself() -> None:
    assert [variable_meant(name) for name in Request.model_fields] == [
        Meant(f"gpustrap_{name}") for name in Request.model_fields
    ]
