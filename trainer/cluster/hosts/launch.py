"""A deepspeed command line with a hostfile: the hosts that it trains on, and the same command on fewer of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts import hostfile

DEEPSPEED = ("deepspeed", "ds", "deepspeed.launcher.runner")  # its command's names, and its module
PDSH = "pdsh"  # DeepSpeed's launcher by ssh; the others ask a scheduler, which knows its hosts


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
        first = next((index + 1 for index, word in enumerate(words) if Path(word).name in DEEPSPEED), 0)
        if not first or not any(word.startswith(("--hostfile", "-H")) for word in words):
            return None
        from deepsiam.trainer.training.engine import launcher  # takes seconds, and a single host does not need it

        given = launcher.options([*words[first:], *command[module:]])
        slots = hostfile.read(Path(given.hostfile))
        chosen = launcher.chosen(slots, given)
        launcher.check(given, slots, chosen)
        # DeepSpeed takes a single host for this one, whatever its name
        by_ssh = given.launcher.lower() == PDSH and not given.no_ssh and (len(chosen) > 1 or given.force_multi)
        return cls(command, module, chosen, given.ssh_port, by_ssh, given.master_port)

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
        chosen = []
        for host in hosts:
            slots = self.slots[host][:ranks]
            ranks -= len(slots)
            if slots:
                chosen.append(f"{host}:{','.join(map(str, slots))}")
        own = [] if hosts[0] == next(iter(self.slots)) else ["--master_addr="]  # that of a host that is left out
        # the last of repeated options wins; force_multi: see from_command
        narrowed = ["--include", "@".join(chosen), "--exclude=", "--num_nodes=-1", "--num_gpus=-1", "--force_multi"]
        return [*self.command[: self.module], *narrowed, *own, *self.command[self.module :]]
