"""A real Flower deployment on this machine: TLS, authenticated SuperNodes, one port each."""

import contextlib
import datetime as dt
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Found = TypeVar("Found")

CONNECTION = "here"
BIN = Path(sys.executable).parent
TIMEOUT = 240.0
RESTART_SECONDS = 10.0
"""From one start of a node to the next; each costs seconds, and may be refused for a minute."""


def wait_for(
    look: Callable[[], Found | None], what: str, timeout: float = TIMEOUT, every: float = 0.05
) -> Found:
    """Look again and again until something is there; Flower's own commands take a second each."""
    deadline = time.monotonic() + timeout
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout:.0f} s")
        time.sleep(every)
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _write_key(
    path: Path,
    form: serialization.PrivateFormat = serialization.PrivateFormat.TraditionalOpenSSL,
) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return key


def write_certificates(folder: Path) -> None:
    """A certificate authority of our own, and a server certificate for 127.0.0.1."""
    today = dt.datetime.now(dt.UTC)
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
             for name in ("test authority", "localhost")}  # fmt: skip
    authority = _write_key(folder / "ca.key")

    def signed(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["test authority"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - dt.timedelta(days=1))
            .not_valid_after(today + dt.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
                critical=False,
            )
        )
        if is_authority:
            usage = {
                "digital_signature": True, "key_cert_sign": True, "crl_sign": True,
                "content_commitment": False, "key_encipherment": False,
                "data_encipherment": False, "key_agreement": False, "encipher_only": False,
                "decipher_only": False,
            }  # fmt: skip
            builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        else:
            places = [
                x509.DNSName("localhost"),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    server = _write_key(folder / "server.key")
    (folder / "ca.crt").write_bytes(signed("test authority", authority, is_authority=True))
    (folder / "server.pem").write_bytes(signed("localhost", server, is_authority=False))


class SuperLink:
    """A SuperLink and all that was started beside it; everything is gone when the block is left."""

    known_as = CONNECTION
    """What Flower's configuration calls the SuperLink."""

    def __init__(self, folder: Path, *, connection: str, options: list[str]) -> None:
        self.folder = folder
        self.port = free_port()
        self._options = options
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # 0.05 takes half a core, for nothing
            "RAY_USAGE_STATS_ENABLED": "0",
            "NO_COLOR": "1",
        }
        # A process starts for every message: each would compile Flower anew, for ten seconds.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        (folder / "home").mkdir(parents=True)
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\n{connection}\n'
        )

    def __enter__(self) -> Self:
        self.start_link()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all that was started."""
        for process in reversed(self._processes):
            kill(process)
        for left in self.processes():  # what a SuperLink that was killed had started
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)

    def start_link(self) -> None:
        """Start the SuperLink, also again after it was killed, and wait until it answers."""
        options = ["--host", "127.0.0.1", "--port", str(self.port), *self._options]
        self.link = self.start(
            "superlink", "flower-superlink", "--disable-runtime-dependency-installation", *options
        )
        wait_for(self._healthy, "the SuperLink's health")

    def processes(self) -> list[int]:
        """All that was started for this deployment and lives."""
        everything = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [process for process in everything if self.owns(process)]

    def owns(self, process: int, program: str = "") -> bool:
        """Whether a process lives and was started for this deployment: it has its home."""
        mark, place = f"FLWR_HOME={self.folder / 'home'}".encode(), Path(f"/proc/{process}")
        with contextlib.suppress(OSError):
            mine = mark in (place / "environ").read_bytes().split(b"\0")
            return mine and program.encode() in (place / "cmdline").read_bytes()
        return False

    def start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of Flower's in a session of its own; its output goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / program), *arguments],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def run(self, app: Path, run_config: Mapping[str, Any], *options: str) -> str:
        """Start a run and return its id."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        answer = self.flwr(
            "run", str(app), self.known_as, "--format", "json", "--run-config", pairs, *options
        )
        return str(json.loads(answer)["run-id"])

    def status(self, run_id: str) -> str:
        listed = json.loads(
            self.flwr("list", self.known_as, "--run-id", run_id, "--format", "json")
        )
        return str(listed["runs"][0]["status"])

    def finished(self, run_id: str, timeout: float = TIMEOUT) -> str:
        """Wait for the end of a run and return its status."""
        # Its log is streamed until it ends; to ask again and again takes a second of work each.
        with contextlib.suppress(RuntimeError):  # a stream that breaks says nothing about the run
            self.flwr("log", run_id, self.known_as, "--stream", timeout=timeout)

        def ended() -> str | None:
            status = self.status(run_id)
            return status if status.startswith("finished") else None

        return wait_for(ended, f"the end of run {run_id}", timeout, every=1.0)

    def log(self, run_id: str) -> str:
        """What the server app logged."""
        return self.flwr("log", run_id, self.known_as, "--show")

    def output(self, name: str) -> str:
        """What a process printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def flwr(self, *arguments: str, timeout: float = TIMEOUT) -> str:
        """Run a command of Flower's."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def _healthy(self) -> bool | None:
        secure = (self.folder / "ca.crt").exists()
        trusted = ssl.create_default_context(cafile=self.path("ca.crt")) if secure else None
        scheme = "https" if secure else "http"
        with contextlib.suppress(OSError):
            answer = urllib.request.urlopen(  # noqa: S310 - this machine
                f"{scheme}://127.0.0.1:{self.port}/health", context=trusted, timeout=5
            )
            return bool(answer.status == 200)
        return None

    def path(self, name: str) -> str:
        return str(self.folder / name)


class Deployment(SuperLink):
    """A SuperLink with TLS, and SuperNodes that must prove who they are."""

    def __init__(self, folder: Path, *more: str) -> None:
        write_certificates(folder)
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}
        self._place: dict[int, int] = {}
        self.ways: dict[int, int] = {}
        """The port by which a node reaches the SuperLink, where it is not the SuperLink's own."""
        options = [
            "--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile",
            str(folder / "server.pem"), "--ssl-keyfile", str(folder / "server.key"),
            "--enable-supernode-auth", *more,
        ]  # fmt: skip
        connection = f'root-certificates = "{folder / "ca.crt"}"'
        super().__init__(folder, connection=connection, options=options)

    def register(self, number: int) -> None:
        """Make a key for a node and register it by name."""
        key = _write_key(self.folder / f"node-{number}", serialization.PrivateFormat.OpenSSH)
        (self.folder / f"node-{number}.pub").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
        )
        self.flwr(
            "supernode", "register", self.path(f"node-{number}.pub"), CONNECTION,
            "--name", f"partition-{number}",
        )  # fmt: skip

    def start_node(self, number: int, count: int) -> None:
        """Start a registered node, also again."""
        port = self.ways.get(number, self.port)
        self._started[number] = time.monotonic()
        self.forget_output(number)
        self.nodes[number] = self.start(
            f"node-{number}",
            "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()),
            "--root-certificates", self.path("ca.crt"),
            "--auth-supernode-private-key", self.path(f"node-{number}"),
            "--node-config", f"partition-id={number} num-partitions={count} "
            f'tidegate-folder="{self.buffers(number)}"',
        )  # fmt: skip

    def buffers(self, number: int) -> Path:
        """Where a node keeps its buffers."""
        return self.folder / f"buffers-{number}"

    def start_nodes(self, count: int) -> None:
        """Register nodes and start them, all at once, and wait until they are online."""

        def start(number: int) -> None:
            self.register(number)
            self.start_node(number, count)

        with ThreadPoolExecutor() as at_once:
            list(at_once.map(start, range(count)))
        self.wait_for_nodes(count)

    def keep_node(self, number: int, count: int) -> None:
        """Start a node again if it has ended; one that was killed is refused for a while."""
        rested = time.monotonic() > self._started[number] + RESTART_SECONDS
        if self.nodes[number].poll() is not None and rested:
            self.start_node(number, count)

    def restart_node(self, number: int, count: int) -> None:
        """Start a node again, and again while it is refused because it was killed."""

        def back() -> bool | None:
            self.keep_node(number, count)
            return self.let_in(number) or None

        wait_for(back, f"node {number}'s return")
        self.wait_for_nodes(count)

    def let_in(self, number: int) -> bool:
        """Whether a node lives, and was let in by the SuperLink since it was started last."""
        return self.nodes[number].poll() is None and b"SuperNode ID" in self.printed(number)

    def printed(self, number: int) -> bytes:
        """What a node has printed since it was started last."""
        with self._node_log(number).open("rb") as log:
            log.seek(self._place[number])
            return log.read()

    def forget_output(self, number: int) -> None:
        """Look only at what a node prints from now on."""
        log = self._node_log(number)
        self._place[number] = log.stat().st_size if log.exists() else 0

    def _node_log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def online(self) -> int:
        """Nodes that the SuperLink can reach."""
        listed = json.loads(self.flwr("supernode", "list", CONNECTION, "--format", "json"))
        return sum(node["status"] == "online" for node in listed["nodes"])

    def wait_for_nodes(self, count: int) -> None:
        def all_online() -> bool | None:
            for number, node in self.nodes.items():
                if node.poll() is not None:
                    raise RuntimeError(f"node {number} ended: {self.output(f'node-{number}')}")
            # The nodes' own word first: to ask the SuperLink takes a second of work.
            return all(map(self.let_in, self.nodes)) or None

        def confirmed() -> bool | None:
            return self.online() == count or None

        wait_for(all_online, f"{count} nodes online")
        wait_for(confirmed, f"{count} nodes online", every=1.0)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and all that it started; the number of one that has ended may be taken."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def deployed(folder: Path, count: int) -> Iterator[Deployment]:
    """A deployment with nodes that are all online."""
    with Deployment(folder) as deployment:
        deployment.start_nodes(count)
        yield deployment


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[SuperLink]:
    """Flower's Simulation engine (Ray), behind a SuperLink of its own."""
    options = ["--insecure", "--simulation"]
    with SuperLink(folder, connection="insecure = true", options=options) as simulation:
        yield simulation
