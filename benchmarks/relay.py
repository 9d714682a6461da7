"""The relay's throughput next to requests that go straight to the same backend.

python benchmarks/relay.py [--rounds N] [--in-flight N]; three processes on loopback, and one table."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.support import busy, print_table, spread, wait_for_quiet

LOAD = Path(__file__).with_name("relay_load.py")
ROUTES = ("direct", "direct, TLS", "relay", "relay, TLS")
GOAL = 0.8


@dataclass(frozen=True)
class Run:
    """Requests a second; CPU seconds a request, of the client and (where there is one) of the relay."""

    rate: float
    client: float
    relay: float | None


def make_certificate(path: Path) -> None:
    """A certificate for localhost and its key, in one PEM file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    built = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
             .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
             .not_valid_after(now + timedelta(days=1))
             .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
             .sign(key, hashes.SHA256()))
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


@contextlib.contextmanager
def part(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """One part in a process of its own, and the ports it listens at."""
    process = subprocess.Popen([sys.executable, str(LOAD), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout is not None
    try:
        yield process, [int(port) for port in process.stdout.readline().split()]
    finally:
        process.kill()
        process.wait()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """CPU seconds that the relay has used."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(port: int, options: list[str]) -> tuple[float, float, int]:
    """Requests a second, the client's CPU seconds a request, all requests; ends the program where one failed."""
    done = subprocess.run([sys.executable, str(LOAD), "load", "--port", str(port), *options], text=True, check=True,
                          stdout=subprocess.PIPE)
    rate, failed, used, asked = map(float, done.stdout.split())
    if failed:
        sys.exit(f"{failed:.0f} requests failed")
    return rate, used, int(asked)


def play(route: str, folder: Path, ports: list[int], options: list[str]) -> Run:
    """One run of one route."""
    certificate = str(folder / "certificate.pem")
    tls = ["--tls", certificate] if route.endswith("TLS") else []
    if route.startswith("direct"):
        rate, client, _ = measure(ports[1 if tls else 0], [*options, *tls])
        return Run(rate, client, None)
    with part("relay", "--uds", str(folder / "socket"), *tls) as (process, (port,)):
        before = cpu_of(process)
        rate, client, asked = measure(port, [*options, *tls])
        return Run(rate, client, (cpu_of(process) - before) / asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--size", type=int, default=8192, help="bytes of a prompt")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the backend takes")
    args = parser.parse_args()
    options = ["--seconds", str(args.seconds), "--in-flight", str(args.in_flight), "--size", str(args.size)]
    runs: dict[str, list[Run]] = {route: [] for route in ROUTES}
    wait_for_quiet(20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificate(folder / "certificate.pem")
        with part("backend", "--uds", str(folder / "socket"), "--latency", str(args.latency), "--tls",
                  str(folder / "certificate.pem")) as (_, ports):
            for _ in range(args.rounds):
                for route in ROUTES:
                    runs[route].append(play(route, folder, ports, options))
    show(runs)


def show(runs: dict[str, list[Run]]) -> None:
    """The table."""
    rows = []
    for route, played in runs.items():
        direct = runs["direct"]
        ratio = statistics.median(one.rate / other.rate for one, other in zip(played, direct, strict=True))
        relays = [one.relay * 1e6 for one in played if one.relay is not None]
        rows.append([route, spread([one.rate for one in played]), f"{ratio:.2f}",
                     spread([one.client * 1e6 for one in played]), spread(relays) if relays else "-"])
    print_table(["route", "requests/s", "next to direct", "client, CPU µs a request", "relay, CPU µs a request"], rows)
    print(f"goal: at least {GOAL}; {busy()}")


if __name__ == "__main__":
    main()
