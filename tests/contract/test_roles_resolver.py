"""What the resolver writes into the lock is what the roles take: nothing unknown, nothing missing, right types."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.environment import Environment
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request
from gpustrap.model.roles import SITE_ORDER
from gpustrap.resolve.plan import plan_node

ROOT = Path(__file__).resolve().parent.parent.parent
FACTS = Facts.model_validate(
    {
        "os": {"id": "debian", "version_id": "13", "codename": "trixie", "architecture": "x86_64"},
        "kernel": {"running": "6.12.117+deb13-amd64", "headers": ["6.12.117+deb13-amd64"]},
        "package_manager": {
            "kind": "apt",
            "candidates": dict.fromkeys(
                ("docker.io", "docker-cli", "linux-headers-6.12.117+deb13-amd64", "nano"), "1.0"
            ),
        },
        # A board and a switch of HGX H100: every role has something to do.
        "pci": [
            {"address": "0000:18:00.0", "vendor": "10de", "device": "2330", "pci_class": "0302"},
            {"address": "0000:07:00.0", "vendor": "10de", "device": "22a3", "pci_class": "0680"},
        ],
    }
)
REQUESTS = {
    "nothing said": {},
    "all said": {
        "hostname": "n1",
        "timezone": "Europe/Berlin",
        "packages": ["nano"],
        "unattended_upgrades": "security",
        "ssh_hardening": True,
        "proxy": {"http": "http://proxy:3128", "no_proxy": ["mirror"]},
        "docker_origin": "upstream",
        "docker_users": ["ubuntu"],
        "docker_daemon": {"labels": ["a=b"]},
        "conda_channels": ["conda-forge", "bioconda"],
        "python_mirror": "https://mirror.example/python",
        "ca_bundle": "/etc/ssl/certs/site.pem",
        "environments": [
            "torch",
            {"name": "course", "framework": "jax", "python": "3.12", "extras": ["optax"], "users": "students"},
            {"name": "all", "framework": "pytorch", "engine": "conda", "jupyter": True, "gpus": ["H100 SXM5 80GB"]},
            {"name": "mine", "framework": "python", "requirements": "mine.txt"},
        ],
    },
}


def options(role: str):
    """The role's options as Ansible's own validator wants them: without descriptions."""

    def strip(found):
        return {
            name: {k: strip(v) if k == "options" else v for k, v in option.items() if k != "description"}
            for name, option in found.items()
        }

    spec = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return strip(spec["argument_specs"]["main"]["options"])


@pytest.mark.parametrize("role", SITE_ORDER)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_plan_fits_the_role(role, request_):
    lock = plan_node("n1", FACTS, Request.model_validate(request_), load_catalog()).lock
    assert isinstance(lock, NodeLock), lock
    result = ArgumentSpecValidator(options(role)).validate((lock.roles | lock.pending)[role])
    assert result.error_messages == []
    assert result.unsupported_parameters == set()


def test_an_environment_of_the_lock_is_what_the_role_takes():
    """The model is what everything else reads a lock's environments with."""
    taken = options("ml_environments")["ml_environments_environments"]["options"]
    assert set(taken) == set(Environment.model_fields)
    for name, field in Environment.model_fields.items():
        choices = getattr(field.annotation, "__args__", ())
        assert name in {"framework", "engine", "interpreter"} or "choices" not in taken[name]
        assert "choices" not in taken[name] or set(taken[name]["choices"]) == set(choices), name
