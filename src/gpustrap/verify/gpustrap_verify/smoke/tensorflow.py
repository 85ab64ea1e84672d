"""TensorFlow: on every GPU a product and a convolution that are compared, a model that learns, and all together."""

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
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # what it warns of is the evidence
    step("import tensorflow")
    import tensorflow as tf  # noqa: PLC0415 - reads the environment; and whether it works is part of the answer

    common.own(tf)
    devices = _gpus(tf, wanted) if wanted.on_gpus else _cpus(tf)
    tf.config.set_soft_device_placement(False)  # else what a GPU cannot do is done on the CPU, in silence
    names = wanted.gpus or ["the CPU"]
    for device, name in zip(devices, names):
        with tf.device(device):
            _product(tf, wanted.size, device, name)
            _convolution(tf, device, name)
            if wanted.thorough:
                _halves(tf, device, name)
                step(name + ": a model learns")
                common.compare_losses(name, _train(tf))
    if wanted.thorough:
        _together(tf, devices)
    build = tf.sysconfig.get_build_info()
    return {"version": tf.__version__, "cuda": str(build.get("cuda_version", "")), "devices": len(names)}


def _cpus(tf: Any) -> list[str]:
    """The CPU, as two devices."""
    one = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(one, [tf.config.LogicalDeviceConfiguration()] * CPU_DEVICES)
    return [f"/CPU:{number}" for number in range(CPU_DEVICES)]


def _gpus(tf: Any, wanted: Wanted) -> list[str]:
    """The GPUs: where TensorFlow finds none it takes the CPU, and ends well."""
    build = tf.sysconfig.get_build_info()
    if not build.get("is_cuda_build"):
        raise SmokeError("cpu-build", f"TensorFlow {tf.__version__} is a build without CUDA")
    step("start CUDA")
    found = tf.config.list_physical_devices("GPU")
    common.count_gpus(wanted, len(found), "TensorFlow")
    for gpu, name in zip(found, wanted.gpus):
        tf.config.experimental.set_memory_growth(gpu, True)  # others' programs may be on it
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        if capability:
            common.need_code(name, build.get("cuda_compute_capabilities", ()), tuple(capability))
    return [f"/GPU:{number}" for number in range(len(found))]


def _product(tf: Any, size: int, device: str, name: str) -> None:
    step(name + ": matrix product")
    a, b = common.matrix(size, size, seed=1), common.matrix(size, size, seed=2)
    product = tf.linalg.matmul(tf.constant(a), tf.constant(b))
    _placed(product, device, name)
    common.compare_product(name, a, b, product.numpy().tolist())


def _halves(tf: Any, device: str, name: str) -> None:
    a, b = common.matrix(64, common.HALF_INNER, seed=3), common.matrix(common.HALF_INNER, 64, seed=4)
    for kind in (tf.float16, tf.bfloat16):
        what = f"{name}: matrix product in {kind.name}"
        step(what)
        product = tf.linalg.matmul(tf.cast(tf.constant(a), kind), tf.cast(tf.constant(b), kind))
        _placed(product, device, name)
        common.compare_product(what, a, b, tf.cast(product, tf.float32).numpy().tolist())


def _convolution(tf: Any, device: str, name: str) -> None:
    """Sums of squares of 3 x 3: this is what cuDNN does."""
    step(name + ": convolution")
    image = common.matrix(8, 8, seed=5)
    found = tf.nn.conv2d(tf.reshape(tf.constant(image), (1, 8, 8, 1)), tf.ones((3, 3, 1, 1)), 1, "VALID")
    _placed(found, device, name)
    common.compare_convolution(name, image, tf.reshape(found, (6, 6)).numpy().tolist())


def _placed(tensor: Any, device: str, name: str) -> None:
    if not tensor.device.endswith(device[1:]):
        raise SmokeError("wrong-device", f"{name}: the result lies on {tensor.device}")


def _train(tf: Any) -> list[float]:
    """Losses of a linear model that learns."""
    inputs, outputs = common.samples(common.ROWS)
    x, y = tf.constant(inputs), tf.constant(outputs)
    weights = tf.Variable(tf.zeros((common.FEATURES, 1)))
    losses = []
    for _ in range(common.STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matmul(x, weights) - y))
        weights.assign_sub(common.LEARNING_RATE * tape.gradient(loss, weights))
        losses.append(float(loss))
    return losses


def _together(tf: Any, devices: Sequence[str]) -> None:
    """``tf.distribute``: a copy of the model on each device, each with its share of the samples."""
    name = f"all devices together: MirroredStrategy on {len(devices)} devices"
    step(name)
    strategy = tf.distribute.MirroredStrategy(devices=list(devices))
    if strategy.num_replicas_in_sync != len(devices):
        raise SmokeError("together", f"{name}: it has {strategy.num_replicas_in_sync}")
    inputs, outputs = common.samples(common.ROWS * len(devices))
    world = len(devices)
    x, y = (
        strategy.experimental_distribute_values_from_function(
            lambda context, rows=rows: tf.constant(rows[context.replica_id_in_sync_group :: world])
        )
        for rows in (inputs, outputs)
    )
    with strategy.scope():
        weights = tf.Variable(tf.zeros((common.FEATURES, 1)), aggregation=tf.VariableAggregation.MEAN)

    def learn(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matmul(x, weights) - y))
        weights.assign_sub(common.LEARNING_RATE * tape.gradient(loss, weights))
        return loss

    together = tf.function(lambda: strategy.run(learn, args=(x, y)), autograph=False)
    losses = [float(strategy.reduce(tf.distribute.ReduceOp.MEAN, together(), None)) for _ in range(common.STEPS)]
    common.compare_losses(name, losses)


def main() -> None:
    """Be the process."""
    common.run(check)
