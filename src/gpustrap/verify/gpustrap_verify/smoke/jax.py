"""JAX: on every GPU a product and a convolution that are compared, a model that learns, and all GPUs together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import common
from .common import SmokeError, Wanted, step

CPU_DEVICES = 2


def check(wanted: Wanted) -> dict[str, Any]:
    """Run it all.

    Raises:
        SmokeError: Something is not as it should be.
    """
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # others' programs may be on these GPUs
    if not wanted.on_gpus:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={CPU_DEVICES}"
    step("import jax")
    import jax  # noqa: PLC0415 - reads the environment; and whether it works is part of the answer

    common.own(jax)
    devices = _gpus(jax, wanted) if wanted.on_gpus else jax.devices("cpu")
    names = wanted.gpus or ["the CPU"]
    for device, name in zip(devices, names):
        _product(jax, wanted.size, device, name)
        _convolution(jax, device, name)
        if wanted.thorough:
            _halves(jax, device, name)
            step(name + ": a model learns")
            _train(jax, name, common.ROWS, device, [device])
    if wanted.thorough:
        _together(jax, devices)
    return {"version": jax.__version__, "devices": len(names)}


def _gpus(jax: Any, wanted: Wanted) -> Sequence[Any]:
    """The GPUs: where JAX finds none it takes the CPU unless it is asked for them."""
    step("start CUDA")
    devices: Sequence[Any] = jax.devices("cuda")
    common.count_gpus(wanted, len(devices), "JAX")
    return devices


def _product(jax: Any, size: int, device: Any, name: str) -> None:
    step(name + ": matrix product")
    a, b = common.matrix(size, size, seed=1), common.matrix(size, size, seed=2)
    product = jax.jit(jax.numpy.matmul)(_array(jax, a, device), _array(jax, b, device))
    _placed(product, [device], name)
    common.compare_product(name, a, b, product.tolist())


def _halves(jax: Any, device: Any, name: str) -> None:
    a, b = common.matrix(64, common.HALF_INNER, seed=3), common.matrix(common.HALF_INNER, 64, seed=4)
    for kind in ("float16", "bfloat16"):
        what = f"{name}: matrix product in {kind}"
        step(what)
        product = jax.numpy.matmul(_array(jax, a, device).astype(kind), _array(jax, b, device).astype(kind))
        _placed(product, [device], name)
        common.compare_product(what, a, b, product.astype("float32").tolist())


def _convolution(jax: Any, device: Any, name: str) -> None:
    """Sums of squares of 3 x 3: this is what cuDNN does."""
    step(name + ": convolution")
    image, ones = common.matrix(8, 8, seed=5), [[1.0] * 3] * 3
    found = jax.lax.conv(_array(jax, [[image]], device), _array(jax, [[ones]], device), (1, 1), "VALID")
    _placed(found, [device], name)
    common.compare_convolution(name, image, found.tolist()[0][0])


def _array(jax: Any, values: Any, place: Any) -> Any:
    return jax.device_put(jax.numpy.array(values, dtype="float32"), place)


def _placed(array: Any, devices: Sequence[Any], name: str) -> None:
    if array.devices() != set(devices):
        raise SmokeError("wrong-device", f"{name}: the result lies on {array.devices()}, not on {devices}")


def _train(jax: Any, name: str, rows: int, place: Any, devices: Sequence[Any]) -> None:
    """Let a linear model learn from samples that lie on some devices, and on them alone."""
    inputs, outputs = common.samples(rows)
    x, y = _array(jax, inputs, place), _array(jax, outputs, place)  # arguments: a constant would lie anywhere

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        return jax.numpy.mean((x @ weights - y) ** 2)

    learn = jax.jit(jax.value_and_grad(loss_of))
    weights = jax.numpy.zeros((common.FEATURES, 1))
    losses = []
    for _ in range(common.STEPS):
        loss, gradient = learn(weights, x, y)
        weights = weights - common.LEARNING_RATE * gradient
        losses.append(float(loss))
    _placed(loss, devices, name)
    common.compare_losses(name, losses)


def _together(jax: Any, devices: Sequence[Any]) -> None:
    """One program over all devices, with the samples spread over them."""
    name = f"all devices together: samples on {len(devices)} devices"
    step(name)
    mesh = jax.sharding.Mesh(devices, ("samples",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("samples"))
    _train(jax, name, common.ROWS * len(devices), spread, devices)


def main() -> None:
    """Be the process."""
    common.run(check)
