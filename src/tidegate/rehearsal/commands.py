"""What one types on real machines for the deployment that was rehearsed."""

CERTIFICATES = r"""mkdir -p /etc/fleet /var/lib/fleet
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 3650 -subj '/CN=fleet authority' \
    -addext 'keyUsage=critical,keyCertSign,cRLSign' -keyout /etc/fleet/ca.key -out /etc/fleet/ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -subj '/CN=fleet.example' \
    -keyout /etc/fleet/server.key -out /etc/fleet/server.csr
echo 'subjectAltName=DNS:fleet.example,IP:127.0.0.1' > /etc/fleet/server.ext
openssl x509 -req -in /etc/fleet/server.csr -CA /etc/fleet/ca.crt -CAkey /etc/fleet/ca.key -CAcreateserial \
    -days 365 -extfile /etc/fleet/server.ext -out /etc/fleet/server.pem
"""  # noqa: E501
SUPERLINK = r"""flower-superlink --host 0.0.0.0 --port 8000 --database /var/lib/fleet/superlink.db \
    --ssl-ca-certfile /etc/fleet/ca.crt --ssl-certfile /etc/fleet/server.pem --ssl-keyfile /etc/fleet/server.key \
    --enable-supernode-auth --disable-runtime-dependency-installation
"""  # noqa: E501
CONNECTION = """[superlink]
default = "fleet"

[superlink.fleet]
address = "fleet.example:8000"
root-certificates = "/etc/fleet/ca.crt"
"""
FIRST_PORT = 9094
HEAD = """# What you type on real machines for the deployment that was rehearsed here. The server is
# fleet.example, the sites are {sites}; put your own names in their place.
# systemd units, backups and upgrades: docs/howto/deploy-with-tls.md
"""


def commands(app: str, nodes: int, rounds: int) -> list[tuple[str, str]]:
    """Return the commands of a deployment, in their order, each with the place where it is typed.

    Args:
        app: the folder of the app.
        nodes: sites, each of which has one SuperNode.
        rounds: of the run.

    >>> commands("my-fleet", nodes=1, rounds=3)[2][0]
    'at site-0: a key of its own'
    """
    sites = [f"site-{number}" for number in range(nodes)]
    keys = [
        (
            f"at {site}: a key of its own",
            f"ssh-keygen -q -t ecdsa -b 384 -N '' -f /etc/fleet/{site}\n",
        )
        for site in sites
    ]
    register = "".join(
        f"flwr supernode register /etc/fleet/{site}.pub fleet --name {site}\n" for site in sites
    )
    starts = [
        (f"at {site}, with ca.crt from the server", _supernode(site, number, nodes))
        for number, site in enumerate(sites)
    ]
    values = f'num-server-rounds={rounds} folder="/var/lib/fleet/run"'
    run = (
        "flwr supernode list fleet\n"
        f"flwr run {app} fleet --run-config '{values}'\n"
        "flwr list fleet\n"
    )
    return [
        ("on the server: an authority and a certificate", CERTIFICATES),
        ("on the server: the SuperLink, which stays", SUPERLINK),
        *keys,
        ("on the server, with the sites' .pub files: who may take part", register),
        *starts,
        ("on the server: the run; after a crash, the same command goes on", run),
        ("on the server: what the server app says", "flwr log RUN_ID fleet --show\n"),
        ("on the server: how it goes", "tidegate watch /var/lib/fleet/run --once\n"),
    ]


def commands_text(app: str, nodes: int, rounds: int) -> str:
    """Return the same as a text to keep."""
    sites = "site-0" if nodes == 1 else f"site-0 to site-{nodes - 1}"
    parts = [HEAD.format(sites=sites)]
    where = "# ~/.flwr/config.toml, wherever you give Flower's commands:\n"
    parts.append(where + "".join(f"#   {line}\n" for line in CONNECTION.splitlines()))
    parts += [f"# {place}\n{command}" for place, command in commands(app, nodes, rounds)]
    return "\n".join(parts)


def _supernode(site: str, number: int, nodes: int) -> str:
    values = f'partition-id={number} num-partitions={nodes} tidegate-folder="/var/lib/tidegate"'
    return (
        "flower-supernode --superlink fleet.example:8000 --root-certificates /etc/fleet/ca.crt \\\n"
        f"    --auth-supernode-private-key /etc/fleet/{site} --port {FIRST_PORT + number} \\\n"
        f"    --node-config '{values}'\n"
    )
