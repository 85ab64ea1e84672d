"""The lock file: stable, readable, refused when it is not one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustrap.errors import GpustrapError
from gpustrap.model.lock import Choice, Lock, LockedRepository, NodeLock
from gpustrap.model.site import Site
from gpustrap.site.lockfile import diff_locks, dump_lock, read_lock, write_lock

CHOICE = Choice(item="docker", value="docker.io 26", reason="newest", source="node")
ODD = "{{ lookup('pipe', 'id') }}: # é"


def node(version: str = "26", **roles: object) -> NodeLock:
    packages = [{"name": "docker.io", "version": version}]
    docker = {"docker_packages": packages, "docker_users": [], "docker_daemon": {"key": ODD}} | roles
    return NodeLock(request_digest="r", system_digest="s", os="debian 13", choices=(CHOICE,), roles={"docker": docker})


def lock(**nodes: NodeLock) -> Lock:
    return Lock(tool="gpustrap 1", catalog="sha256:0", nodes=nodes)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert read_lock(site) is None
    write_lock(site, lock(n2=node(), n1=node()))
    assert read_lock(site) == lock(n1=node(), n2=node())
    assert site.lock.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in tmp_path.iterdir()] == [site.lock.name]


def test_the_order_in_which_nodes_were_planned_does_not_show() -> None:
    assert dump_lock(lock(n2=node(), n1=node())) == dump_lock(lock(n1=node(), n2=node()))


def test_roles_keep_the_order_of_the_site(tmp_path: Path) -> None:
    entry = node().model_copy(update={"roles": {"ubuntu_server": {}, "docker": {}, "conda": {}}})
    write_lock(Site(tmp_path), lock(n1=entry))
    read = read_lock(Site(tmp_path))
    assert read is not None
    assert list(read.nodes["n1"].roles) == ["ubuntu_server", "docker", "conda"]


@pytest.mark.parametrize(
    ("text", "code", "subject"),
    [
        ("a: [1\nb", "lock-broken", ":2"),
        ("version: 2\nnodes: {}\n", "lock-newer", ""),
        ("version: 1\nnodes: {}\n", "lock-broken", ""),
        ("version: one\n", "lock-broken", ""),
        ("- 1\n", "lock-broken", ""),
        ("", "lock-broken", ""),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, text: str, code: str, subject: str) -> None:
    site = Site(tmp_path)
    site.lock.write_text(text)
    with pytest.raises(GpustrapError) as caught:
        read_lock(site)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert problem.subject.endswith(subject)
    assert problem.remedy


def test_a_failed_write_leaves_the_old_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    write_lock(site, lock(n1=node()))
    before = site.lock.read_text()

    def fail(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(GpustrapError) as caught:
        write_lock(site, lock(n1=node("27")))
    assert caught.value.problems[0].code == "lock-not-written"
    assert "disk full" in caught.value.problems[0].evidence
    assert site.lock.read_text() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_differences_are_lines_for_people() -> None:
    old = lock(n1=node(), gone=node())
    new = lock(n1=node("27", docker_users=["ann"]), n3=node())
    assert diff_locks(old, new) == (
        "- gone: no longer in the inventory",
        "~ n1: docker_packages: - docker.io=26, + docker.io=27",
        "~ n1: docker_users: + ann",
        "+ n3: new, debian 13",
    )
    assert diff_locks(old, old) == ()
    assert diff_locks(None, lock(n1=node())) == ("+ n1: new, debian 13",)


def test_of_a_list_only_what_differs_is_shown() -> None:
    old, new = node(users=["ann", "bob"], pools=["a", "b"]), node(users=["ann", "eve", "kim"], pools=["b", "a"])
    assert diff_locks(lock(n1=old), lock(n1=new)) == (
        "~ n1: pools: in another order",
        "~ n1: users: - bob, + eve, + kim",
    )


def test_of_what_has_a_name_and_a_version_these_are_shown() -> None:
    torch, later = (
        {"name": "torch", "version": "2.14", "index": "i"},
        {"name": "torch", "version": "2.15", "index": "i"},
    )
    moved = torch | {"index": "j"}
    assert diff_locks(lock(n1=node(x=[torch])), lock(n1=node(x=[later]))) == ("~ n1: x: - torch=2.14, + torch=2.15",)
    (line,) = diff_locks(lock(n1=node(x=[torch])), lock(n1=node(x=[moved])))
    assert line == "~ n1: x: ~ torch (index i -> j)"
    same, other = moved | {"digest": "a" * 64}, moved | {"digest": "b" * 64}
    assert diff_locks(lock(n1=node(x=[same])), lock(n1=node(x=[other]))) == ("~ n1: x: ~ torch (other packages)",)


def test_a_new_request_with_the_same_outcome_is_said() -> None:
    other = node().model_copy(update={"request_digest": "q"})
    assert diff_locks(lock(n1=node()), lock(n1=other)) == ("~ n1: its variables changed, what it gets does not",)


def test_roles_and_systems_that_change_are_named() -> None:
    other = node().model_copy(update={"system_digest": "t", "roles": {"conda": {}}})
    assert diff_locks(lock(n1=node()), lock(n1=other)) == (
        "~ n1: its hardware changed",
        "~ n1: docker is no longer managed; it stays on the node",
        "~ n1: conda is managed from now on",
    )


def waiting(**change: object) -> NodeLock:
    driver: dict[str, object] = {"nvidia_driver_branch": "580", "nvidia_driver_repository": {"uri": "u", "suite": "/"}}
    rows = (
        LockedRepository(name="b", uri="http://b.example", retention="kept"),
        LockedRepository(name="a", uri="http://a.example", fingerprints=("F",), retention="superseded", snapshot="s"),
    )
    return node().model_copy(update={"pending": {"nvidia_driver": driver}, "repositories": rows, **change})


def test_what_is_pending_and_where_versions_come_from_is_written_and_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_lock(site, lock(n1=waiting(choices=(CHOICE.model_copy(update={"pending": True}),))))
    assert read_lock(site) == lock(n1=waiting(choices=(CHOICE.model_copy(update={"pending": True}),)))


def test_what_says_nothing_is_left_out() -> None:
    bare, full = dump_lock(lock(n1=node())), dump_lock(lock(n1=waiting()))
    assert not any(word in bare for word in ("pending", "repositories", "simulated"))
    assert full.count("snapshot:") == full.count("fingerprints:") == 1
    assert "sha256:\n" not in full


def test_differences_of_what_is_pending_and_of_repositories_are_told() -> None:
    driver = {"nvidia_driver_branch": "595", "nvidia_driver_repository": {"uri": "v", "suite": "/"}}
    (second, first) = waiting().repositories
    moved = (first.model_copy(update={"uri": "http://c.example", "fingerprints": ("G",)}),)
    come, change = ("~ n1: nvidia_driver is planned from now on",), waiting(pending={"nvidia_driver": driver})
    assert diff_locks(lock(n1=node()), lock(n1=waiting())) == (
        *come,
        "~ n1: repository a: new, http://a.example",
        "~ n1: repository b: new, http://b.example",
    )
    assert diff_locks(lock(n1=waiting()), lock(n1=change)) == (
        "~ n1: nvidia_driver_branch 580 -> 595",
        "~ n1: nvidia_driver_repository.uri u -> v",
    )
    assert diff_locks(lock(n1=waiting()), lock(n1=waiting(repositories=moved))) == (
        "~ n1: repository a: fingerprints: - F, + G",
        "~ n1: repository a: uri http://a.example -> http://c.example",
        "~ n1: repository b: no longer used",
    )
    assert diff_locks(lock(n1=waiting()), lock(n1=waiting(pending={}))) == ("~ n1: nvidia_driver is no longer planned",)
    other = waiting(request_digest="q", repositories=(second, *moved))
    assert "~ n1: its variables changed, what it gets does not" not in diff_locks(lock(n1=waiting()), lock(n1=other))


def test_a_role_that_this_version_installs_at_last_is_said_to_be_managed() -> None:
    old = waiting()
    new = old.model_copy(update={"roles": old.roles | old.pending, "pending": {}})
    assert diff_locks(lock(n1=old), lock(n1=new)) == ("~ n1: nvidia_driver is managed from now on",)
