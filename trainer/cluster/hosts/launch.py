"""A deepspeed command line with a hostfile: the hosts that it trains on, and the same command on fewer of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import read_bytes

DEEPSPEED = ("deepspeed", "ds", "deepspeed.launcher.runner")  # its command's names, and its module
PDSH = "pdsh"  # DeepSpeed's launcher by ssh; the others ask a scheduler, which knows its hosts

FORM = "NAME slots=NUMBER"
LARGEST, MOST_HOSTS, MOST_SLOTS, DIGITS = 1 << 22, 10_000, 1024, 9  # bytes of the file; hosts; of one; of that number
# DeepSpeed's parser reads these lines alike; it also accepts `slots=8x`, and takes a name like -v for an ssh option
_LINE = re.compile(r"([\w\[][\w.:@\[\]-]*)\s+slots=(\d+)(?:\s+#.*)?", re.ASCII)


@dataclass(frozen=True)
class Launch:
    """A command line, and the hosts that its hostfile and options choose."""

    command: Sequence[str]
    module: int  # the position of the module in it
    slots: Mapping[str, Sequence[int]]  # of each host, in order
    ssh_port: int | None
    by_ssh: bool
    port: int = 29500  # of the first host, where the ranks meet

    @classmethod
    def from_command(cls, command: Sequence[str], module: int) -> Launch | None:
        """Return the launch of a deepspeed command line; None for another command, or without a hostfile.

        `module` is the position of the module that it starts. Raise InputError if the hostfile and the options choose
        no hosts, or DeepSpeed cannot launch this way.
        """
        words = command[:module]
        options_start = next((index + 1 for index, word in enumerate(words) if Path(word).name in DEEPSPEED), 0)
        if not options_start or not any(word.startswith(("--hostfile", "-H")) for word in words):
            return None
        from deepsiam.trainer.training.engine import launcher  # takes seconds, and a single host does not need it

        flags = launcher.options([*words[options_start:], *command[module:]])
        slots = read_hostfile(Path(flags.hostfile))
        slots_by_host = launcher.chosen(slots, flags)
        launcher.check(flags, slots, slots_by_host)
        # DeepSpeed takes a single host for this one, whatever its name
        by_ssh = flags.launcher.lower() == PDSH and not flags.no_ssh and (len(slots_by_host) > 1 or flags.force_multi)
        return cls(command, module, slots_by_host, flags.ssh_port, by_ssh, flags.master_port)

    @property
    def ranks(self) -> int:
        """The number of ranks on all hosts."""
        return sum(map(len, self.slots.values()))

    def require_fewer(self) -> None:
        """Raise InputError where the command on fewer hosts could not be written: `--include` cannot name a host."""
        for host in self.slots if self.by_ssh else ():
            if "@" in host or ":" in host:
                raise InputError(
                    f"{host}: DeepSpeed's --include cannot name this host, so that no start could leave another out: "
                    "put its address and user in ~/.ssh/config, and that name in the hostfile"
                )

    def on(self, hosts: Sequence[str], ranks: int) -> list[str]:
        """Return the command line that starts `ranks` ranks on the first of these hosts."""
        included = []
        for host in hosts:
            slots = self.slots[host][:ranks]
            ranks -= len(slots)
            if slots:
                included.append(f"{host}:{','.join(map(str, slots))}")
        address = [] if hosts[0] == next(iter(self.slots)) else ["--master_addr="]  # that of a host that is left out
        # the last of repeated options wins; force_multi: see from_command
        narrowed = ["--include", "@".join(included), "--exclude=", "--num_nodes=-1", "--num_gpus=-1", "--force_multi"]
        return [*self.command[: self.module], *narrowed, *address, *self.command[self.module :]]


def read_hostfile(path: Path) -> dict[str, int]:
    """Return the number of ranks of each host, in the order of the file; raise InputError, naming the line at fault.

    DeepSpeed only warns about a missing file, and trains on this host alone.
    """
    try:
        lines = read_bytes(path, LARGEST).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text: give a file with a line `{FORM}` for each host") from None
    slots: dict[str, int] = {}
    line_numbers: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise InputError(f"{path}:{number}: {printable(line)!r} is not `{FORM}`")
        name = match[1]
        if len(match[2]) > DIGITS or int(match[2]) > MOST_SLOTS:
            raise InputError(f"{path}:{number}: more than {MOST_SLOTS:,} slots, the most of a host: give it one a GPU")
        if len(slots) == MOST_HOSTS:
            raise InputError(f"{path}:{number}: more than {MOST_HOSTS:,} hosts, the most that one job can have")
        if int(match[2]) == 0:
            raise InputError(f"{path}:{number}: {name} has no slots: give it one for each GPU, or remove the line")
        if name in line_numbers:
            raise InputError(
                f"{path}:{number}: {name} is named in line {line_numbers[name]} already: give each host one line"
            )
        slots[name], line_numbers[name] = int(match[2]), number
    if not slots:
        raise InputError(f"{path}: names no host: give a line `{FORM}` for each")
    return slots
