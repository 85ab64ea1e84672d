"""docs/certificate.schema.json is what `python -m gpustrap.report.certificate_json` writes; certificates keep to it."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator

from gpustrap.content import content_root
from gpustrap.exitcodes import ExitCode
from gpustrap.model.certificate import Certificate, Change, Fleet, Gpu, Hardware
from gpustrap.model.check import Check, Measure, Series, Verdict
from gpustrap.report.certificate_json import data, schema, target

SCHEMA = target(content_root())
COMMON = {"level": "quick", "run": "r", "started": "2026-12-01T04:00:00+00:00", "tool": "1.2.3", "catalog": "sha256:0"}


def certificate() -> Certificate:
    check = Check(
        id="gpu-matmul",
        title="Products are right",
        verdict=Verdict.PASS,
        measures=(Measure(name="matmul-bf16", subject="GPU-1", value=731, expected=730, unit="TFLOPS", source="s"),),
        series=(Series(name="power", subject="GPU-1", unit="W", points=((0, 70), (1, 690.5))),),
    )
    machine = Hardware(
        **dict.fromkeys(("os", "kernel", "virtualization", "cpu", "driver", "flavour"), "x"),
        secure_boot=None,
        threads=8,
        memory=1 << 34,
        gpus=(Gpu(address="0000:01:00.0", name="A100", pci_id="10de:20b0"),),
        switches=(),
    )
    return Certificate(
        **COMMON, node="n1", verdict=Verdict.PASS, simulated=False, hardware=machine, stack=(), checks=(check,)
    )


def test_the_schema_is_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), f"python -m gpustrap.report.certificate_json writes {SCHEMA}"
    Draft202012Validator.check_schema(json.loads(schema()))


def test_certificates_keep_to_it() -> None:
    change = Change(node="n1", what="stack", subject="driver", before="1", after="2", worse=False)
    fleet = Fleet(**COMMON, seconds=1, nodes=(certificate(),), against="old", changes=(change,), exit_code=ExitCode.OK)
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for one in (certificate(), fleet):
        validator.validate(json.loads(json.dumps(data(one))))


def test_what_does_not_keep_to_it_is_found() -> None:
    broken = data(certificate()) | {"verdict": "splendid"}
    assert list(Draft202012Validator(json.loads(schema())).iter_errors(broken))
