"""What a node *is*, as the probe read it. Missing tools are data, not errors: None means "could not be read"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpustrap.model.base import FromNode

NVSWITCH = "0680"  # class of NVIDIA's; other bridges are not among a node's devices


class OsFacts(FromNode):
    """From os-release and uname. ``id`` and ``version_id`` are os-release's own."""

    id: str
    id_like: tuple[str, ...] = ()
    version_id: str = ""
    codename: str = ""
    pretty_name: str = ""
    architecture: str = Field(description="uname -m, e.g. x86_64")
    hostname: str = ""
    timezone: str | None = None
    python: str = Field(default="", description="version of the Python the probe ran under, e.g. 3.11.2")


class KernelFacts(FromNode):
    """The running kernel and every bootable one."""

    running: str
    installed: tuple[str, ...] = Field(default=(), description="from /boot/vmlinuz-*")
    headers: tuple[str, ...] = Field(default=(), description="kernels of which modules can be built: build/ is there")
    modules_loadable: bool | None = Field(default=None, description="whether /proc/modules exists")
    cmdline: str = ""


class CpuFacts(FromNode):
    """From /proc/cpuinfo."""

    model: str = ""
    threads: int = 0


class MemoryFacts(FromNode):
    """From /proc/meminfo, in bytes."""

    total: int = 0
    available: int = 0
    swap: int = 0


class FilesystemFacts(FromNode):
    """One mounted, writable or system filesystem; bytes and inodes."""

    mount: str
    device: str = ""
    type: str = ""
    options: tuple[str, ...] = ()
    size: int = 0
    free: int = 0
    inodes: int = 0
    inodes_free: int = 0


class PciFacts(FromNode):
    """A display, 3D or NVSwitch device, from sysfs; speeds in GT/s, BAR sizes in bytes."""

    address: str
    vendor: str
    device: str
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    pci_class: str = ""
    driver: str | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    link_speed: float | None = None
    link_speed_max: float | None = None
    bars: tuple[int, ...] = ()
    bars_unassigned: int = Field(default=0, description="memory BARs the firmware gave no address")
    numa_node: int | None = None
    bridges: tuple[str, ...] = Field(default=(), description="addresses of the bridges above it, the root port first")
    iommu_type: str | None = Field(default=None, description="of its group: DMA, DMA-FQ, identity; None: no IOMMU")
    uuid: str = Field(default="", max_length=60, description="as NVIDIA's driver tells it; empty before it is loaded")


class BridgeFacts(FromNode):
    """A PCI bridge above one of those devices; speeds in GT/s."""

    address: str
    vendor: str = ""
    device: str = ""
    link_width: int | None = None
    link_width_max: int | None = None
    link_speed_max: float | None = None
    acs_redirect: bool | None = Field(default=None, description="ACS sends peer-to-peer traffic up; needs root to read")


class NvidiaFacts(FromNode):
    """What runs of NVIDIA's driver now.

    Attributes:
        module: Version of the loaded module; empty where none is loaded.
        flavour: Of the loaded module.
        bound: PCI addresses the module drives, from /proc/driver/nvidia/gpus.
        nvml: PCI addresses that nvidia-smi lists; None where it is not there or gave no list.
        nvml_error: Its words where it failed or did not end in time.
        simulated: The GPUs are the lab's; what rests on them says nothing about hardware.
    """

    module: str = ""
    flavour: Literal["open", "proprietary"] | None = None
    bound: tuple[str, ...] = ()
    nvml: tuple[str, ...] | None = None
    nvml_error: str = ""
    simulated: bool = False


class SecureBootFacts(FromNode):
    """Enabled, and what said so (efivar, lockdown, mokutil)."""

    enabled: bool | None = None
    source: str = ""


class BootKernelFacts(FromNode):
    """The NVIDIA module that one bootable kernel would load, read from its file.

    Attributes:
        release: As uname -r will say.
        module: Path of the file; empty where there is none.
        version: Of the driver.
        flavour: By its license.
        built_for: The kernel in its vermagic.
        signer: Common name of the key it is signed with; empty: not signed.
        own_key: Whether that is the key DKMS has on this node.
        rivals: Why another driver may take the GPUs first, a sentence each.
    """

    release: str
    module: str = ""
    version: str = ""
    flavour: Literal["open", "proprietary"] | None = None
    built_for: str = ""
    signer: str = ""
    own_key: bool = False
    rivals: tuple[str, ...] = ()


class LibraryFacts(FromNode):
    """One libnvidia-ml.so.VERSION."""

    version: str
    path: str


class MokFacts(FromNode):
    """The certificate DKMS signs modules with on this node, and what Secure Boot's shim knows of it."""

    certificate: str = Field(default="", description="its path; empty: there is none")
    subject: str = ""
    serial: str = ""
    enrolled: bool | None = None
    requested: bool | None = Field(default=None, description="its enrolment is asked for at the next boot")


class BootFacts(FromNode):
    """What the next boot will load."""

    next: str = Field(default="", description="release of the kernel that boots next, as far as can be told")
    kernels: tuple[BootKernelFacts, ...] = ()
    library: str = Field(default="", description="version behind libnvidia-ml.so.1: the driver's user space")
    libraries: tuple[LibraryFacts, ...] = ()
    mok: MokFacts = MokFacts()

    def kernel(self, release: str) -> BootKernelFacts:
        """The one of that release; without a module where nothing is known of it."""
        return next((k for k in self.kernels if k.release == release), BootKernelFacts(release=release))


class AptSource(FromNode):
    """One source entry of apt, deb822 or one-line."""

    file: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    signed_by: str | None = None
    enabled: bool = True


class LockHolder(FromNode):
    """Who holds a package-manager lock."""

    path: str
    pid: int
    command: str = ""


class PackageManagerFacts(FromNode):
    """Health of apt/dpkg or dnf/rpm."""

    kind: Literal["apt", "dnf", "unknown"] = "unknown"
    locks: tuple[LockHolder, ...] = ()
    interrupted: bool | None = Field(default=None, description="dpkg was interrupted")
    broken: tuple[str, ...] = Field(default=(), description="packages not fully installed")
    sources: tuple[AptSource, ...] = ()
    source_problems: tuple[str, ...] = Field(
        default=(), description="duplicates, conflicting Signed-By, unreadable files; one sentence each"
    )
    holds: tuple[str, ...] = ()
    packages: dict[str, str] = Field(default_factory=dict, description="installed versions of the packages asked for")
    candidates: dict[str, str] = Field(default_factory=dict, description="candidate versions of the packages asked for")
    candidate_origins: dict[str, str] = Field(default_factory=dict, description="archive each candidate is from")
    versions: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="every version of the packages asked for that can be had, newest first"
    )
    installed_origins: dict[str, str] = Field(
        default_factory=dict, description="archive the installed version can be had from; absent: from none"
    )


class UnattendedUpgradesFacts(FromNode):
    """What will be upgraded behind our back."""

    installed: bool = False
    enabled: bool | None = None
    origins: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    automatic_reboot: bool | None = None


class InstallFacts(FromNode):
    """An existing NVIDIA, CUDA, docker, podman-docker or conda installation and where it came from."""

    what: str = Field(description="nvidia-driver, cuda, docker, podman-docker, conda, container-toolkit, environment")
    version: str = ""
    origin: str = Field(default="", description="package name, snap, runfile, unowned, path, lock")
    path: str = ""


class NetworkFacts(FromNode):
    """Addresses and routes, as CIDR strings; needed before docker picks its address pools."""

    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


class TimeFacts(FromNode):
    """The node's clock. ``skew`` is filled in by the controller, in seconds (node minus controller)."""

    epoch: float = 0.0
    synchronized: bool | None = None
    skew: float | None = None


class Facts(FromNode):
    """Everything the probe read in one round trip."""

    schema_version: Literal[1] = 1
    os: OsFacts
    kernel: KernelFacts
    virtualization: str = Field(default="unknown", description="systemd-detect-virt: none, kvm, podman, …")
    cpu: CpuFacts = CpuFacts()
    memory: MemoryFacts = MemoryFacts()
    filesystems: tuple[FilesystemFacts, ...] = ()
    pci: tuple[PciFacts, ...] = ()
    bridges: tuple[BridgeFacts, ...] = ()
    nvidia: NvidiaFacts = NvidiaFacts()
    boot: BootFacts = BootFacts()
    secure_boot: SecureBootFacts = SecureBootFacts()
    package_manager: PackageManagerFacts = PackageManagerFacts()
    network: NetworkFacts = NetworkFacts()
    time: TimeFacts = TimeFacts()
    reboot_required: bool | None = None
    reboot_reasons: tuple[str, ...] = ()
    installs: tuple[InstallFacts, ...] = ()
    unattended_upgrades: UnattendedUpgradesFacts = UnattendedUpgradesFacts()
    root: bool = Field(default=False, description="whether the probe ran as root")
    boot_id: str = ""
    machine_id_hash: str = Field(default="", description="sha256 of machine-id, never the id itself")
    notes: tuple[str, ...] = Field(default=(), description="what could not be read, and why")

    @property
    def gpus(self) -> tuple[PciFacts, ...]:
        """Displays and accelerators of whatever vendor; NVSwitches are none."""
        return tuple(device for device in self.pci if device.pci_class != NVSWITCH)

    @property
    def packages_there(self) -> dict[str, str]:
        """Name and version of every package that is known to be on the node."""
        mark = "package "
        installs = {i.origin.removeprefix(mark): i.version for i in self.installs if i.origin.startswith(mark)}
        return {**installs, **self.package_manager.packages}

    @property
    def missing_from_nvml(self) -> tuple[str, ...]:
        """Addresses of the GPUs that NVIDIA's driver is bound to and nvidia-smi does not list."""
        listed = self.nvidia.nvml
        return tuple(
            g.address for g in self.gpus if listed is not None and g.driver == "nvidia" and g.address not in listed
        )
