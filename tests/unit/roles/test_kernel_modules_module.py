"""Module gpustrap_kernel_modules on a machine below a scratch root: its files, its initramfs, its contradictions."""

from __future__ import annotations

import os
import subprocess

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_kernel_modules as core
from gpustrap.ansible_plugins.module_utils.gpustrap_initramfs import contents
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host

CONF = "/etc/modprobe.d/gpustrap-nvidia.conf"
RIVALS = ["nouveau", "nova_core", "nova_drm", "nvidiafb", "rivafb"]
UNITS = ["nvidia-suspend.service", "nvidia-resume.service"]
GIVEN = {
    "name": "gpustrap-nvidia",
    "blacklist": RIVALS,
    "options": [{"module": "nouveau", "values": {"modeset": "0"}}],
    "load": ["nvidia", "nvidia_uvm"],
}
KERNELS = ("6.12.1-amd64", "6.12.2-amd64")


class Tree(Host):
    """A recorded tree on which the commands of the test run."""

    def run(self, argv, timeout=10.0):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
        except FileNotFoundError:
            return None
        return Completed(done.returncode, done.stdout, done.stderr)


class Machine:
    """A scratch root with two kernels, whose initramfs was made before anybody thought of blacklists."""

    def __init__(self, root, run):
        self.root, self.call = root, run
        for kernel in KERNELS:
            self.write(f"/boot/vmlinuz-{kernel}", "")
            self.image(kernel, old=True)
        # As initramfs-tools does: an image holds modprobe.d as it is then. A line for each run, into a log.
        self.write("/usr/sbin/update-initramfs", self.maker(f'echo "$0" "$@" >>{root}/made'), mode=0o755)

    def maker(self, log):
        each = f"for image in {self.root}/boot/initrd.img-*; do ls {self.root}/etc/modprobe.d/* >$image; done"
        return f"#!/bin/sh\n{log}\n{each}\n"

    def path(self, name):
        return self.root / name.lstrip("/")

    def write(self, name, text, mode=0o644):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)
        self.path(name).chmod(mode)

    def image(self, kernel, *, old=False, text="usr/lib/modules/x/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz\n"):
        self.write(f"/boot/initrd.img-{kernel}", text)
        if old:
            os.utime(self.path(f"/boot/initrd.img-{kernel}"), (1, 1))

    def read(self, name):
        return self.path(name).read_text()

    @property
    def made(self):
        """How often images were made."""
        return len(self.read("/made").splitlines()) if self.path("/made").exists() else 0

    def apply(self, **given):
        check = given.pop("check", False)
        makers = {"Host": lambda _: Tree(self.root)}
        return self.call("gpustrap_kernel_modules", check=check, patch=makers, **{**GIVEN, **given})


def warned(result):
    return "\n".join(one["event"]["msg"] for one in result.get("warnings", []))


@pytest.fixture
def machine(tmp_path, run, tools):
    tools(lsinitramfs='sed "s,.*/etc,etc," "$1"')
    return Machine(tmp_path / "node", run)


def test_nouveau_bound_rivals_are_kept_out_from_the_initramfs_on(machine):
    result = machine.apply()
    assert result["changed"]
    text = machine.read(CONF)
    assert text.splitlines()[1:] == [*(f"blacklist {name}" for name in RIVALS), "options nouveau modeset=0"]
    assert machine.made == 1
    assert machine.read("/made").endswith("update-initramfs -u -k all\n")
    assert len(result["rebuilt"]) == len(KERNELS)
    assert {claim["name"] for claim in result["claims"]} == {CONF, "/etc/modules-load.d/gpustrap-nvidia.conf"}


def test_the_initramfs_is_made_once_and_not_even_opened_again(machine, tools):
    machine.apply()
    tools(lsinitramfs=f"touch {machine.root}/opened")
    again = machine.apply()
    assert not again["changed"]
    assert machine.made == 1
    assert not machine.path("/opened").exists()


def test_an_image_that_somebody_made_without_our_file_is_made_anew(machine):
    machine.apply()
    machine.image(KERNELS[1])
    again = machine.apply()
    assert again["rebuilt"] == [f"/boot/initrd.img-{KERNELS[1]}: it holds drivers that must stay out, and not {CONF}"]
    assert machine.made == 2


def test_an_image_made_anew_with_our_file_is_good(machine):
    machine.apply()
    machine.image(KERNELS[1], text=f"{CONF}\nusr/lib/modules/x/nouveau.ko\n")
    assert not machine.apply()["changed"]


def test_an_image_with_an_older_nvidia_driver_than_the_disk_is_made_anew(machine):
    machine.apply()
    image = f"{CONF}\nusr/lib/modules/x/updates/dkms/nvidia.ko.zst\n"
    machine.image(KERNELS[0], text=image)
    machine.write(f"/lib/modules/{KERNELS[0]}/updates/dkms/nvidia.ko", "")
    os.utime(machine.path(f"/boot/initrd.img-{KERNELS[0]}"), (2_000_000_000, 2_000_000_000))
    os.utime(machine.path(f"/lib/modules/{KERNELS[0]}/updates/dkms/nvidia.ko"), (2_100_000_000, 2_100_000_000))
    assert "older NVIDIA driver" in machine.apply(check=True)["rebuilt"][0]


def test_check_mode_says_what_would_be_and_writes_nothing(machine):
    result = machine.apply(check=True)
    assert result["changed"]
    assert len(result["rebuilt"]) == len(KERNELS)
    assert not machine.path("/etc").exists()
    assert machine.made == 0


def test_no_kernel_no_initramfs(machine):
    for kernel in KERNELS:
        machine.path(f"/boot/vmlinuz-{kernel}").unlink()
    assert machine.apply()["rebuilt"] == []
    assert machine.made == 0


def test_nothing_that_makes_an_initramfs_is_a_warning(machine):
    machine.path("/usr/sbin/update-initramfs").unlink()
    result = machine.apply()
    assert "nothing that makes an initramfs is installed" in warned(result)


def test_an_image_that_stays_as_it_was_fails(machine):
    machine.write("/usr/sbin/update-initramfs", "#!/bin/sh\nexit 0\n", mode=0o755)
    result = machine.apply()
    assert result["failed"]
    assert "ended well, but /boot/initrd.img-6.12.1-amd64: it is older than" in result["msg"]


def test_a_full_boot_says_so(machine):
    machine.write(
        "/usr/sbin/update-initramfs", "#!/bin/sh\necho 'cp: No space left on device' >&2\nexit 1\n", mode=0o755
    )
    assert "found no space in /boot. Remove old kernels" in machine.apply()["msg"]


def test_a_clock_that_was_set_back_does_not_make_images_for_ever(machine):
    machine.apply()
    os.utime(machine.path(CONF), (4_000_000_000, 4_000_000_000))
    machine.image(KERNELS[0])
    machine.apply()
    assert not machine.apply()["changed"]


def test_dracut_and_grubby_leave_the_rivals_out(machine):
    machine.path("/usr/sbin/update-initramfs").unlink()
    machine.path("/etc/dracut.conf.d").mkdir(parents=True)
    machine.write("/usr/bin/dracut", machine.maker(f'echo dracut "$@" >>{machine.root}/made'), mode=0o755)
    arguments = machine.path("/arguments")
    arguments.write_text('args="ro rd.driver.blacklist=nouveau,pcspkr"\n')
    grubby = f"""case $1 in
--info=ALL) cat {arguments} ;;
--update-kernel=ALL) echo "args=\\"ro ${{2#--args=}}\\"" >{arguments} ;;
esac"""
    machine.write("/usr/sbin/grubby", f"#!/bin/sh\n{grubby}\n", mode=0o755)
    machine.apply()
    assert machine.read("/made") == "dracut --regenerate-all --force\n"
    assert 'omit_drivers+=" nouveau nova_core' in machine.read("/etc/dracut.conf.d/gpustrap-nvidia.conf")
    assert arguments.read_text() == f'args="ro rd.driver.blacklist={",".join(sorted([*RIVALS, "pcspkr"]))}"\n'
    assert not machine.apply()["changed"]


def test_cuda_999_uvm_is_loaded_at_boot(machine):
    machine.apply()
    assert machine.read("/etc/modules-load.d/gpustrap-nvidia.conf").splitlines()[1:] == ["nvidia", "nvidia_uvm"]


def test_a_users_contrary_lines_are_told_and_left(machine):
    mine = "# mine\noptions nouveau \\\n  modeset=1\nblacklist nvidia-uvm\n"
    machine.write("/etc/modprobe.d/mine.conf", mine)
    machine.write("/etc/modprobe.d/off.conf", "install nvidia /bin/false\nalias nvidia off\n")
    machine.write("/usr/lib/modprobe.d/mine.conf", "blacklist nvidia\n")  # hidden by the one in /etc
    machine.write("/proc/cmdline", "ro modprobe.blacklist=nvidia,x nouveau.modeset=1 quiet\n")
    result = machine.apply()
    assert result["contradictions"] == [
        "/etc/modprobe.d/mine.conf:2: options nouveau modeset=1; gpustrap sets modeset=0",
        "/etc/modprobe.d/mine.conf:4: blacklist nvidia-uvm keeps nvidia_uvm from being loaded",
        "/etc/modprobe.d/off.conf:1: install nvidia /bin/false keeps nvidia from being loaded",
        "/etc/modprobe.d/off.conf:2: alias nvidia off keeps nvidia from being loaded",
        "the kernel's command line, modprobe.blacklist=nvidia,x, keeps nvidia from being loaded",
        "the kernel's command line has nouveau.modeset=1; gpustrap sets modeset=0",
    ]
    assert "blacklist nvidia-uvm keeps nvidia_uvm from being loaded. It was left as it is" in warned(result)
    assert machine.read("/etc/modprobe.d/mine.conf") == mine


def test_the_same_in_other_files_is_no_contradiction(machine):
    machine.write("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\noptions nouveau modeset=0\noptions snd x=1\n")
    assert machine.apply()["contradictions"] == []


def test_options_reach_the_module_that_debian_renames(machine):
    machine.write("/etc/modprobe.d/nvidia.conf", "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n")
    machine.apply(options=[{"module": "nvidia", "values": {"NVreg_X": "1"}}])
    assert "options nvidia NVreg_X=1\noptions nvidia-current-open NVreg_X=1\n" in machine.read(CONF)


def test_sleep_saves_memory_only_where_the_packages_units_are_there(machine):
    options = [{"module": "nvidia", "values": {"NVreg_PreserveVideoMemoryAllocations": "1"}, "units": UNITS}]
    machine.write("/usr/lib/systemd/system/nvidia-suspend.service", "")
    machine.apply(options=options)
    assert "Preserve" not in machine.read(CONF)
    machine.write("/usr/lib/systemd/system/nvidia-resume.service", "")
    machine.apply(options=options)
    assert "NVreg_PreserveVideoMemoryAllocations=1" in machine.read(CONF)


def test_a_desktop_on_the_gpu_is_left_alone_and_told_what_it_loses(machine):
    device = "/sys/bus/pci/devices/0000:01:00.0"
    machine.write(device + "/vendor", "0x10de\n")
    machine.write(device + "/boot_vga", "1\n")
    assert "desktop" not in warned(machine.apply())
    machine.write("/etc/systemd/system/display-manager.service", "")
    assert "a desktop starts on GPU 0000:01:00.0" in warned(machine.apply())


def test_a_desktop_with_the_drivers_opengl_loses_nothing(machine):
    found = core.screen(Tree(machine.root))
    assert found == ""
    machine.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    machine.write("/sys/bus/pci/devices/0000:01:00.0/boot_vga", "1\n")
    machine.write("/etc/systemd/system/display-manager.service", "")
    assert core.screen(Tree(machine.root)) == "0000:01:00.0"
    machine.write("/usr/lib64/libGLX_nvidia.so.0", "")
    assert core.screen(Tree(machine.root)) == ""


def test_device_files_for_one_group(machine):
    machine.apply(group="root")
    assert "NVreg_DeviceFileUID=0 NVreg_DeviceFileGID=0 NVreg_DeviceFileMode=0660" in machine.read(CONF)
    missing = machine.apply(group="no-such-group")
    assert "Create it: sudo groupadd --system no-such-group" in missing["msg"]


LISTINGS = {
    "drwxr-xr-x 2 root root 0 etc\n-rw-r--r-- 1 root root 9 Jan 1 00:00 etc/modprobe.d/gpustrap-nvidia.conf": (1, 0, 0),
    "usr/lib/modules/6.12/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst": (0, 1, 0),
    "lib/modules/6.12/extra/nova-core.ko\nlib/modules/6.12/updates/dkms/nvidia-current.ko": (0, 1, 1),
    "etc/modprobe.d/gpustrap-nvidia.conf.bak\nx/nouveau.kotlin\nx/i2c-nvidia-gpu.ko": (0, 0, 0),
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_what_a_listing_says(listing):
    assert contents(listing, CONF, RIVALS) == LISTINGS[listing]


def test_every_option_has_its_line():
    text = core.render(["nouveau"], [core.Options("nvidia", {"NVreg_A": "1", "NVreg_B": "/var"})])
    assert text == core.HEADER + "blacklist nouveau\noptions nvidia NVreg_A=1 NVreg_B=/var\n"
