"""``./run bench``: ratios of one run on lab nodes. Times are printed as they were; nothing is asserted.

- no-op: ``gpustrap apply`` (without verify) and ``gpustrap drift`` against ``ansible-playbook``, same site and lock.
- full: ``gpustrap apply`` (without verify) of a fresh node against a bare shell script that installs the same packages.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from gpustrap.content import ansible_config, content_root

LAB = "bench"
ROUNDS = 3
BIN = Path(sys.executable).parent


class Bench:
    """A lab with two fresh nodes: one for gpustrap, one for the shell script."""

    def __init__(self, root: Path) -> None:
        self.site = root / "site"
        self.environ = os.environ | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "GPUSTRAP_SITE": str(self.site),
            "ANSIBLE_CONFIG": str(ansible_config()),
        }

    def run(self, *argv: str, stdin: str = "") -> float:
        """Run a command, and give its wall time in seconds. A failure ends the benchmark."""
        start = time.monotonic()
        done = subprocess.run(
            argv, env=self.environ, text=True, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return time.monotonic() - start

    def prepare(self) -> None:
        """Two nodes; the first is enrolled and planned."""
        self.run("gpustrap", "init", str(self.site))
        self.run(
            "gpustrap",
            "lab",
            "up",
            "ours:debian13",
            "shell:debian13",
            "--lab",
            LAB,
            "--site",
            str(self.site),
            "--standins",
        )
        path = subprocess.check_output(["gpustrap", "lab", "password-file", "--lab", LAB], env=self.environ, text=True)
        self.environ["GPUSTRAP_SSH_PASSWORD"] = Path(path.strip()).read_text(encoding="utf-8").strip()
        self.run("gpustrap", "enroll", "ours", "--accept-new", "--passwordless-sudo")
        del self.environ["GPUSTRAP_SSH_PASSWORD"]
        self.run("gpustrap", "plan", "ours")

    def playbook(self) -> tuple[str, ...]:
        """The same site and lock by plain Ansible."""
        state = self.site / ".gpustrap"
        return (
            "ansible-playbook", "-i", str(self.site / "inventory"), "-i", str(self.site / "gpustrap.lock.yml"),
            "--limit", "ours", "--private-key", str(state / "ssh/id_ed25519"),
            "--ssh-common-args", f"-o UserKnownHostsFile={state / 'known_hosts'}",
            str(content_root() / "playbooks/site.yml"),
        )  # fmt: skip

    def shell_script(self) -> str:
        """What somebody would type who wants the packages and the conda of the lock, and nothing else."""
        roles = yaml.safe_load((self.site / "gpustrap.lock.yml").read_text(encoding="utf-8"))["nodes"]["ours"]["roles"]
        docker = [f"{p['name']}={p['version']}" for p in roles["docker"]["docker_packages"]]
        packages = " ".join([*roles["ubuntu_server"]["ubuntu_server_packages"], *docker])
        conda = roles["conda"]
        return f"""set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends {packages} >/dev/null
python3 - <<'EOF'
import urllib.request
urllib.request.urlretrieve("{conda["conda_installer_url"]}", "/tmp/conda.sh")
EOF
echo "{conda["conda_installer_sha256"]}  /tmp/conda.sh" | sha256sum -c --quiet
bash /tmp/conda.sh -b -p {conda["conda_prefix"]} >/dev/null
rm /tmp/conda.sh
"""


def show(name: str, ours: list[float], other: list[float], against: str) -> None:
    """One line: medians, and the ratio pair by pair."""
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    print(
        f"{name:24} {statistics.median(ours):7.2f} s  {against:18} {statistics.median(other):7.2f} s"
        f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}, {len(ratios)} rounds)"
    )


def main() -> None:
    """Prepare, measure in turn (A B A B …), print, tear down."""
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch))
        try:
            bench.prepare()
            script = bench.shell_script()
            full = bench.run("gpustrap", "apply", "ours", "--no-verify")
            bare = bench.run("gpustrap", "lab", "shell", "--lab", LAB, "shell", stdin=script)
            noop, plain, drift = [], [], []
            for _ in range(ROUNDS):
                noop.append(bench.run("gpustrap", "apply", "ours", "--no-verify"))
                plain.append(bench.run(*bench.playbook()))
                drift.append(bench.run("gpustrap", "drift", "ours"))
        finally:
            bench.run("gpustrap", "lab", "down", "--lab", LAB)
    print(f"simulated (stand-ins of the lab); load {os.getloadavg()[0]:.1f}")
    show("no-op apply", noop, plain, "ansible-playbook")
    show("drift", drift, plain, "ansible-playbook")
    show("full apply, one node", [full], [bare], "bare shell script")


if __name__ == "__main__":
    main()
