"""``gpustrap lab``: throw-away nodes on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpustrap.cli.options import FormatOption, examples
from gpustrap.cli.output import Format, emit, stderr, stdout, tell
from gpustrap.cli.progress import progress
from gpustrap.model.site import Site
from gpustrap.report.escape import visible
from gpustrap.report.layout import Columns

LabOption = Annotated[str, typer.Option("--lab", envvar="GPUSTRAP_LAB", help="Which lab.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.")]
BareOption = Annotated[bool, typer.Option("--bare", help="Without python3, as some minimal installations come.")]

lab_app = typer.Typer(
    help="Throw-away nodes in containers on this machine, reached over real SSH.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.add_typer(lab_app, name="lab")


@lab_app.command(
    epilog=examples(
        "gpustrap lab up",
        "gpustrap lab up n1:debian13 n2:debian12 --site my-site --standins",
        "gpustrap lab up n1:debian13 --gpus 4x-rtx3090",
        "cd my-site",
        'gpustrap enroll --accept-new --passwordless-sudo --password-fd 3 3< "$(gpustrap lab password-file)"',
    )
)
def up(
    *,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE:OS]...",
            help="Nodes to start; node1:debian13 node2:debian12 if left out. "
            "Systems: debian12, debian13, ubuntu2204, ubuntu2404, ubuntu2604.",
        ),
    ] = None,
    lab: LabOption = "lab",
    site: Annotated[Path | None, typer.Option("--site", help="Put the nodes into the inventory of this site.")] = None,
    bare: BareOption = False,
    standins: Annotated[
        bool, typer.Option("--standins", help="Serve stand-ins for what is out of reach; results say 'simulated'.")
    ] = False,
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="PROFILE[:BRANCH[:FLAVOUR]]",
            help="Simulated GPUs, e.g. 4x-rtx3090; with a branch, e.g. 4x-rtx3090:580, their driver runs already.",
        ),
    ] = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Start nodes, or those of them that do not run yet.

    A node looks like a freshly installed server: systemd, sshd, user ubuntu with a random password and sudo.
    """
    from gpustrap.commands import lab as commands

    if standins and site is None:
        raise typer.BadParameter("stand-ins are made known to a site: add --site DIR", param_hint="--standins")
    with progress("lab up") as say:
        started = commands.up(
            nodes or (),
            lab=lab,
            site=Site(site) if site else None,
            bare=bare,
            standins=standins,
            gpus=gpus,
            progress=say,
        )
    rows = [(node.name, node.os, node.address, node.user, node.host_key_fingerprint) for node in started]
    table = Columns(("node", "system", "address", "user", "host key (ed25519)"), rows)
    names = ("lab", "name", "os", "address", "user", "host_key_fingerprint")
    emit([{name: getattr(node, name) for name in names} for node in started], table, form)
    if gpus:
        stderr.print(visible(f"GPUs {gpus}: simulated. What rests on them says nothing about real hardware."))
    which = "" if lab == "lab" else f" --lab {lab}"
    where = f" --site {site}" if site else ""
    stderr.print(
        visible(
            f"Enrol: gpustrap enroll{where} --accept-new --passwordless-sudo --password-fd 3 3< "
            f'"$(gpustrap lab password-file{which})"\n'
            f"Remove: gpustrap lab down{which}"
        )
    )


@lab_app.command(epilog=examples("gpustrap lab down", "gpustrap lab down --lab demo", "gpustrap lab down --all"))
def down(
    lab: LabOption = "lab",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every lab of this machine, and the images too.")] = False,
) -> None:
    """Remove a lab: nodes, volumes, bridge, snapshots, and its nodes from sites. Images are kept."""
    from gpustrap.commands import lab as commands

    with progress("lab down") as say:
        gone = commands.down_all(say) if everything else commands.down(lab, say)
    if gone or everything:
        tell(f"Removed: {', '.join(gone) or 'nothing'}")
    else:
        tell(f"Nothing to remove of lab {lab}. Labs here: {', '.join(commands.labs()) or 'none'}")


@lab_app.command(epilog=examples("gpustrap lab status", "gpustrap lab status --format json"))
def status(form: FormatOption = Format.TABLE) -> None:
    """Show the containers of every lab on this machine, also what a crash left behind."""
    from gpustrap.commands import lab as commands

    found = commands.status()
    rows = [(one.lab, one.name, one.os, one.address, one.state) for one in found]
    table = Columns(("lab", "node", "system", "address", "state"), rows)
    names = ("lab", "name", "os", "address", "state")
    emit([{name: getattr(one, name) for name in names} for one in found], table, form)
    for lab in sorted({one.lab for one in found if one.state != "running"}):
        tell(f"Lab {lab} has leftovers. Remove: gpustrap lab down --lab {lab}")


@lab_app.command(
    epilog=examples(
        "gpustrap lab standins",
        "gpustrap lab standins --fault key=rotated --repository debian13",
        "gpustrap lab standins --fault vanished=nvidia-open=595.91.07-1 --fault future=3",
        "gpustrap lab standins --fault wrong-sum=torch --repository pytorch",
        "gpustrap lab standins --heal",
    )
)
def standins(
    *,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KIND=VALUE",
            help="key=expired, key=rotated, key=sha1, key=sha1-signature, wrong-sum=PACKAGE, "
            "vanished=PACKAGE[=VERSION] or future=DAYS; of pypi and pytorch index=gone, wrong-sum, vanished; "
            "may be repeated.",
        ),
    ] = None,
    heal: Annotated[bool, typer.Option("--heal", help="Make the repositories sound again.")] = False,
    repository: Annotated[
        list[str] | None,
        typer.Option(
            "--repository",
            metavar="NAME",
            help="Only this repository, e.g. debian13, or index: pypi, pytorch; may be repeated.",
        ),
    ] = None,
    lab: LabOption = "lab",
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what is wrong with the lab's stand-ins of repositories and package indexes, let it be, or heal them.

    Nodes see it with their next apt-get update or download. The faults given take the place of those there were; those
    of an index go with --repository.
    """
    from gpustrap.commands import lab as commands

    if fault and heal:
        raise typer.BadParameter("give either --fault or --heal", param_hint="--heal")
    if repository and not (fault or heal):
        raise typer.BadParameter("goes with --fault or --heal", param_hint="--repository")
    found = commands.standins(lab, faults=fault or (), heal=heal, repositories=repository or ())
    rows = [(name, ", ".join(faults) or "none") for name, faults in found.items()]
    emit(
        [{"repository": name, "faults": faults} for name, faults in found.items()],
        Columns(("repository", "faults"), rows),
        form,
    )


@lab_app.command(epilog=examples("gpustrap lab shell node1", "gpustrap lab shell node1 --lab demo"))
def shell(node: NodeArgument, lab: LabOption = "lab") -> None:
    """Open a root shell in a node."""
    from gpustrap.commands import lab as commands

    raise typer.Exit(commands.shell(node, lab, terminal=sys.stdin.isatty()))


@lab_app.command(
    "password-file", epilog=examples("gpustrap lab password-file", "gpustrap lab password-file --lab demo")
)
def password_file(lab: LabOption = "lab") -> None:
    """Print the path of the file that holds the password of user ubuntu on the lab's nodes."""
    from gpustrap.commands import lab as commands

    stdout.print(str(commands.password_file(lab)))


@lab_app.command(epilog=examples("gpustrap lab image debian13", "gpustrap lab image debian12 --bare"))
def image(
    system: Annotated[str, typer.Argument(metavar="OS", help="debian12, debian13, ubuntu2204, ubuntu2404, ubuntu2604")],
    bare: BareOption = False,
) -> None:
    """Make sure the image of a system exists, and print its reference."""
    from gpustrap.commands import lab as commands

    with progress("lab image") as say:
        reference = commands.image(system, bare=bare, progress=say)
    stdout.print(reference)


@lab_app.command(
    epilog=examples(
        "gpustrap lab gpu n1",
        "gpustrap lab gpu n1 --fault lost --gpu 2",
        "gpustrap lab gpu n1 --fault xid=48 --fault hot=91 --gpu 0",
        "gpustrap lab gpu n1 --fault version-mismatch",
        "gpustrap lab gpu n1 --fault nouveau --next-boot",
        "gpustrap lab gpu n1 --clear",
    )
)
def gpu(
    node: NodeArgument,
    lab: LabOption = "lab",
    *,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KIND[=VALUE]",
            help="Break something; again for more. An unknown KIND lists them.",
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--gpu", min=0, help="Which GPU, by its number here.", show_default="the machine"),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take faults away first: those of --gpu, or all.")] = False,
    next_boot: Annotated[
        bool, typer.Option("--next-boot", help="Not now: the node finds it so when it boots the next time.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the simulated GPUs of a node, or let something go wrong with them.

    A fault shows at once on the PCI bus, in NVML, in nvidia-smi and in the kernel's log (journalctl -k). It lasts until
    --clear or the node's reboot. Nothing of this machine's own GPUs is touched.
    """
    from dataclasses import asdict

    from gpustrap.commands import lab_gpus as commands

    if fault or clear:
        found = commands.change(node, lab, kinds=fault or (), gpu=number, clearing=clear, next_boot=next_boot)
    else:
        found = commands.show(node, lab)
    rows = [
        (str(one.number), "-" if one.listed is None else str(one.listed), one.name, one.address,
         ", ".join(one.faults) or "none", ", ".join(one.settings) or "-")
        for one in found.gpus
    ]  # fmt: skip
    emit(asdict(found), Columns(("gpu", "nvml", "board", "address", "faults", "set"), rows), form)
    machine = f", {', '.join(found.faults)}" if found.faults else ""
    when = " at the next boot" if next_boot and (fault or clear) else ""
    tell(f"Simulated: {found.profile} with driver {found.driver}{machine}{when}.")
