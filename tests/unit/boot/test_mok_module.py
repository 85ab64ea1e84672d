"""gpustrap_mok: the key for modules, and its enrolment asked for; mokutil and openssl are played."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import ansible.module_utils
import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import mok, reboots
from gpustrap.content import PACKAGE

PASSWORD = "bcdefghijkln"
NEXT = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module's core, found where Ansible finds it."""
    paths = [*ansible.module_utils.__path__, str(PACKAGE / "ansible_plugins/module_utils")]
    monkeypatch.setattr(ansible.module_utils, "__path__", paths)
    return importlib.import_module("ansible.module_utils.gpustrap_mok")


class Programs:
    """openssl, mokutil and Ubuntu's script, as far as they are asked; what they were given is kept."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.calls: list[tuple[list[str], str, dict[str, str]]] = []
        self.mokutil: tuple[int, str] = (0, "")

    def __call__(self, argv: list[str], given: str, environment: dict[str, str]) -> tuple[int, str]:
        self.calls.append((argv, given, environment))
        certificate = self.tree.root / "var/lib/dkms/mok.pub"
        if argv[0] == "openssl":
            self.tree.text("var/lib/dkms/mok.key", "private")
            self.tree.raw("var/lib/dkms/mok.pub", self.tree.certificate)
        elif argv[0].endswith("update-secureboot-policy"):
            self.tree.text("var/lib/shim-signed/mok/MOK.priv", "private")
            self.tree.raw("var/lib/shim-signed/mok/MOK.der", self.tree.certificate)
        elif self.mokutil[0] == 0:
            certificate = self.tree.root / argv[2].removeprefix(str(self.tree.root)).lstrip("/")
            self.tree.raw(f"{mok.REQUEST.lstrip('/')}", bytes(4) + certificate.read_bytes())
        return self.mokutil if argv[0] == "mokutil" else (0, "")

    @property
    def names(self) -> list[str]:
        return [argv[0].rpartition("/")[2] for argv, _given, _environment in self.calls]


@pytest.fixture
def programs(tree: Any) -> Programs:
    return Programs(tree)


@pytest.fixture
def bare(tree: Any) -> Any:
    """Secure Boot on, and no key yet."""
    tree.secure_boot()
    (tree.root / "var/lib/dkms/mok.pub").unlink()
    return tree


def test_without_secure_boot_nothing_is_done(core: ModuleType, tree: Any, programs: Programs) -> None:
    assert core.ensure(tree.host(), programs, PASSWORD, False) == {"changed": False, "state": "secure boot is off"}
    assert programs.calls == []


def test_a_key_is_made_as_dkms_makes_it_and_its_enrolment_asked_for(
    core: ModuleType, bare: Any, programs: Programs
) -> None:
    result = core.ensure(bare.host(), programs, PASSWORD, False)
    assert programs.names == ["openssl", "mokutil"]
    assert "/CN=DKMS module signing key" in programs.calls[0][0]
    assert (result["changed"], result["staged"], result["missed"]) == (True, True, False)
    assert {"kind": "file", "name": "/var/lib/dkms/mok.key"} in result["claims"]


def test_the_password_is_on_no_command_line_and_in_no_environment(
    core: ModuleType, bare: Any, programs: Programs
) -> None:
    result = core.ensure(bare.host(), programs, PASSWORD, False)
    [(argv, given, environment)] = [call for call in programs.calls if call[0][0] == "mokutil"]
    assert given == f"{PASSWORD}\n{PASSWORD}\n"
    assert PASSWORD not in " ".join(argv)
    assert environment == {}
    assert PASSWORD not in str(result)


def test_ubuntu_has_a_way_of_its_own_to_make_one(core: ModuleType, bare: Any, programs: Programs) -> None:
    bare.text("etc/os-release", "ID=ubuntu\n")
    bare.text("usr/sbin/update-secureboot-policy", "")
    core.ensure(bare.host(), programs, PASSWORD, False)
    assert programs.names == ["update-secureboot-policy", "mokutil"]
    assert programs.calls[0][2] == {"SHIM_NOTRIGGER": "y"}
    assert programs.calls[1][0][2].endswith("/var/lib/shim-signed/mok/MOK.der")


def test_a_key_that_is_there_is_used(core: ModuleType, bare: Any, programs: Programs) -> None:
    bare.secure_boot()
    bare.text("var/lib/dkms/mok.key", "private")
    core.ensure(bare.host(), programs, PASSWORD, False)
    assert programs.names == ["mokutil"]
    assert (bare.root / "var/lib/dkms/mok.key").read_text() == "private"


@pytest.mark.parametrize(("state", "word"), [({"enrolled": True}, "enrolled"), ({"requested": True}, "asked for")])
def test_what_is_enrolled_or_asked_for_stays(
    core: ModuleType, tree: Any, programs: Programs, state: dict[str, bool], word: str
) -> None:
    tree.secure_boot(**state)
    tree.text("var/lib/dkms/mok.key", "private")
    result = core.ensure(tree.host(), programs, "", False)
    assert (result["changed"], result["state"]) == (False, word)
    assert programs.calls == []


def test_a_boot_without_anybody_at_the_console_is_noticed(core: ModuleType, bare: Any, programs: Programs) -> None:
    core.ensure(bare.host(), programs, PASSWORD, False)
    (bare.root / mok.REQUEST.lstrip("/")).unlink()  # shim drops the request with that boot
    bare.text("proc/sys/kernel/random/boot_id", NEXT + "\n")
    again = core.ensure(bare.host(), programs, PASSWORD, False)
    assert (again["staged"], again["missed"]) == (True, True)


def test_once_enrolled_the_note_is_gone(core: ModuleType, bare: Any, programs: Programs) -> None:
    core.ensure(bare.host(), programs, PASSWORD, False)
    bare.secure_boot(enrolled=True)
    core.ensure(bare.host(), programs, "", False)
    assert reboots.history(bare.host()) == {}


def test_check_mode_makes_nothing(core: ModuleType, bare: Any, programs: Programs) -> None:
    assert "would follow" in core.ensure(bare.host(), programs, "", True)["state"]
    bare.secure_boot()
    bare.text("var/lib/dkms/mok.key", "private")
    assert core.ensure(bare.host(), programs, "", True)["changed"] is True
    assert programs.calls == []
    assert not (bare.root / "var/lib/gpustrap").exists()


@pytest.mark.parametrize(
    ("password", "answer", "words"),
    [
        ("", (0, ""), "gpustrap_mok_password"),
        (PASSWORD, (127, "not there"), "sudo apt-get install mokutil"),
        (PASSWORD, (1, f"EFI variables are not supported {PASSWORD}"), r"supported \*{8}"),
    ],
)
def test_what_does_not_work_says_why_and_never_the_password(
    core: ModuleType, bare: Any, programs: Programs, password: str, answer: tuple[int, str], words: str
) -> None:
    programs.mokutil = answer
    with pytest.raises(core.MokError, match=words) as raised:
        core.ensure(bare.host(), programs, password, False)
    assert not password or password not in str(raised.value)
    assert reboots.history(bare.host()) == {}


def test_key_without_certificate_is_not_written_over(core: ModuleType, bare: Any, programs: Programs) -> None:
    """It may sign other modules, too: only its certificate is made."""
    bare.text("var/lib/dkms/mok.key", "somebody's")
    core.ensure(bare.host(), programs, PASSWORD, False)
    [openssl] = [argv for argv, _given, _environment in programs.calls if argv[0] == "openssl"]
    assert openssl[openssl.index("-key") + 1].endswith("/var/lib/dkms/mok.key")
    assert not {"-newkey", "-keyout"} & set(openssl)
