"""What a rehearsal says for real machines is what the guide to a deployment says."""

from guide import TLS, blocks

from tidegate.rehearsal.commands import CONNECTION, commands, commands_text


def test_they_are_those_of_the_guide() -> None:
    printed = "".join(blocks(TLS, "text"))
    for place, command in commands("my-fleet", nodes=2, rounds=3):
        for line in command.splitlines():
            assert f"{line}\n" in printed, place
    assert CONNECTION in blocks(TLS, "toml")


def test_each_site_has_a_key_a_name_and_a_port() -> None:
    text = commands_text("ward", nodes=3, rounds=7)
    for number in range(3):
        assert f"flwr supernode register /etc/fleet/site-{number}.pub" in text
        assert (
            f"--auth-supernode-private-key /etc/fleet/site-{number} --port {9094 + number}" in text
        )
        assert f"partition-id={number} num-partitions=3" in text
    assert "flwr run ward fleet --run-config 'num-server-rounds=7 folder=" in text
