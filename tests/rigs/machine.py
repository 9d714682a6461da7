"""What a rig asks of this machine: ports that are free, and a folder in memory."""

import os
import random
import socket


def answers(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    """Whether something accepts connections there."""
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below the range from which outgoing connections take theirs."""
    some = random.sample(range(10_000, 32_000), 10 * count)
    return [port for port in some if not answers(socket.AF_INET, ("127.0.0.1", port))][:count]


def parent_folder() -> str:
    """A short path; in memory where there is room for the database's many synchronous writes."""
    memory = os.statvfs("/dev/shm") if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    roomy = memory and memory.f_bavail * memory.f_frsize > 2**30 and not memory.f_flag & os.ST_NOEXEC
    return "/dev/shm" if roomy else "/tmp"
