"""The hosts of a training: the hostfile, what each host has, and on which of them to launch."""
