"""A virtual machine with the Linux server of NFS and two clients of it, to run commands in.

    H5SWEEP_GUEST_MOUNT=vers=3 python tests/samples/nfs_guest.py COMMAND WORD ...

The guest sees all files of this machine as they are, with the same paths, and what it writes is
gone with it. Nothing is installed: kernel and NFS programs are Debian's packages, unpacked into a
cache (`H5SWEEP_GUEST_CACHE`). What the guest does before the command is in `nfs_guest_init.sh`.
"""

from __future__ import annotations

import gzip
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

PACKAGES = ("busybox-static", "nfs-common", "nfs-kernel-server", "rpcbind", "libwrap0")
QEMU = "qemu-system-x86_64"
NEEDS = f"{QEMU} (Debian: qemu-system-x86), ip (iproute2), mkfs.ext4, and Debian's apt-get"
CACHE = Path(os.environ.get("H5SWEEP_GUEST_CACHE", "~/.cache/h5sweep-guest")).expanduser()
_FOLDER = Path(__file__).parent
_INIT = _FOLDER / "nfs_guest_init.sh"
# Modules and what these may need; more of them only make the first boot longer.
_MODULES = (
    *("fs/9p", "fs/ext4", "fs/fscache", "fs/jbd2", "fs/lockd", "fs/mbcache.ko", "fs/netfs"),
    *("fs/nfs", "fs/nfsd", "fs/nfs_common", "fs/overlayfs", "net/9p", "net/sunrpc"),
    *("net/dns_resolver", "drivers/virtio", "drivers/net/veth.ko", "drivers/block/virtio_blk.ko"),
    *("lib", "crypto"),
)
_ENDED = re.compile(r"^guest: exit (\d+)$", re.MULTILINE)


def is_possible() -> bool:
    """Whether this machine can make and boot the guest."""
    programs = (QEMU, "ip", "mkfs.ext4", "apt-get", "dpkg")
    return platform.machine() == "x86_64" and all(shutil.which(one) for one in programs)


def unpack_programs(cache: Path = CACHE) -> None:
    """Have kernel and programs in `cache`: once that fetches 70 MB."""
    if (cache / "root").is_dir():
        return
    cache.mkdir(parents=True, exist_ok=True)
    unpacked = Path(tempfile.mkdtemp(prefix="unpacking.", dir=cache))
    for package in (_kernel_package(), *PACKAGES):
        _unpack(package, unpacked)
    unpacked.rename(cache / "root")


def _kernel_package() -> str:
    """The package that Debian's newest kernel is in; its own has no files."""
    words = ["apt-cache", "depends", "linux-image-amd64"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return next(word for word in said.split() if re.match(r"linux-image-\d", word))


def _unpack(package: str, target: Path) -> None:
    subprocess.run(["apt-get", "download", "-q", package], cwd=target, check=True)
    (archive,) = target.glob("*.deb")
    subprocess.run(["dpkg", "-x", archive, target], check=True)
    archive.unlink()


def _write_initrd(root: Path, initrd: Path) -> None:
    """Write what the kernel starts from: busybox, modules, and our first program."""
    tree = initrd.with_suffix(".tree")
    for name in ("bin", "dev", "proc", "sys", "new", "host", "made"):
        (tree / name).mkdir(parents=True)
    busybox = Path(shutil.copy(root / "bin/busybox", tree / "bin/busybox"))
    shutil.copy(_INIT, tree / "init").chmod(0o755)
    (kernel,) = (root / "lib/modules").iterdir()
    for name in _MODULES:
        source, copy = kernel / "kernel" / name, tree / "lib/modules" / kernel.name / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    for name in ("modules.order", "modules.builtin"):
        shutil.copy(kernel / name, tree / "lib/modules" / kernel.name / name)
    subprocess.run([busybox, "depmod", "-b", tree, kernel.name], check=True, capture_output=True)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    archive = subprocess.run(
        [busybox, "cpio", "-o", "-H", "newc"],
        cwd=tree,
        input=names.encode(),
        capture_output=True,
        check=True,
    ).stdout
    initrd.write_bytes(gzip.compress(archive, 1))


def run_in_guest(
    words: list[str], *, mount: str, timeout_s: float, cache: Path = CACHE
) -> tuple[int, str]:
    """Boot, run a command in the folder we are in, and end; return its exit code and what it said.

    The clients' mounts have the options `mount`. The exit code is -1 if the guest has not said one.
    """
    unpack_programs(cache)
    mine = Path(tempfile.mkdtemp(prefix="guest.", dir=cache))
    try:
        _write_initrd(cache / "root", mine / "initrd")
        here = shlex.quote(str(Path.cwd()))
        (mine / "script").write_text(f"cd {here}\nexec {shlex.join(words)}\n")
        with (mine / "disk").open("wb") as disk:
            disk.truncate(2 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", mine / "disk"], check=True)
        boot = _boot_words(cache / "root", mine, mount)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(boot, stdin=subprocess.DEVNULL, timeout=timeout_s, check=True)
        said = (mine / "serial").read_bytes().decode(errors="replace").replace("\r\n", "\n")
    finally:
        shutil.rmtree(mine)
    ended = _ENDED.search(said)
    return int(ended[1]) if ended else -1, said


def _boot_words(root: Path, mine: Path, mount: str) -> list[str]:
    """The command that boots. By default without KVM, which is not everywhere what it seems."""
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    accelerator = os.environ.get("H5SWEEP_GUEST_ACCEL", "tcg,thread=multi")
    told = f"H5_ROOT={root} H5_MOUNT={mount} H5_SCRIPT={mine / 'script'}"
    return [
        *(QEMU, "-accel", accelerator, "-cpu", "max", "-smp", "2", "-m", "2500"),
        *("-display", "none", "-monitor", "none", "-serial", f"file:{mine / 'serial'}"),
        *("-no-reboot", "-nic", "none", "-kernel", str(kernel), "-initrd", str(mine / "initrd")),
        *("-drive", f"file={mine / 'disk'},format=raw,if=virtio,cache=unsafe"),
        "-virtfs",
        "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        *("-append", f"console=ttyS0 quiet panic=-1 no_timer_check {told}"),
    ]


if __name__ == "__main__":
    options = os.environ.get("H5SWEEP_GUEST_MOUNT", "vers=4.2")
    limit_s = float(os.environ.get("H5SWEEP_GUEST_TIMEOUT", "3600"))
    code, text = run_in_guest(sys.argv[1:], mount=options, timeout_s=limit_s)
    print(text)
    sys.exit(code)
