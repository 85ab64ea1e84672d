"""One framework for each environment: another may also come as what some package depends on."""

from __future__ import annotations

from gpustrap.environments.closure import Closure, ClosureError
from gpustrap.environments.text import packages

# Of the package index, and of conda.
PACKAGES = {
    "torch": "PyTorch",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "tensorflow-cpu": "TensorFlow",
    "jax": "JAX",
    "jaxlib": "JAX",
}


def two_frameworks(closure: Closure, body: str) -> ClosureError | None:
    """Why an environment cannot be: it would hold more than one framework. None where it holds one at most.

    Args:
        closure: What it was made from.
        body: Its packages.
    """
    found = {PACKAGES[name]: f"{name} {version}" for name, version in packages(body).items() if name in PACKAGES}
    if len(found) < 2:
        return None
    asked = ", ".join(closure.requirements)
    return ClosureError(
        "frameworks-in-one-environment",
        f"{' and '.join(found)} would be in one environment, and each pins NVIDIA libraries of its own",
        "leave out the extra that brings the other one, or put it into an environment of its own",
        f"asked for: {asked}\nfound: {', '.join(found.values())}",
    )
