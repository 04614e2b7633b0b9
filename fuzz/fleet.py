"""A server whose clients say anything goes on."""

from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fuzz.choices import Choices, text_of
from fuzz.limits import LONGEST_REASON, may_refuse
from fuzz.receipts import honest_receipt
from tidegate.errors import WireError
from tidegate.flower.records import TEXT, expect, find, key_of
from tidegate.policies import DEFAULT_OPTIONS
from tidegate.policies.presets import find_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction, Order, Receipt

POLICIES = ("acdpp", "constant_admission", "hybrid", "costless_oracle", "tide")
CLIENTS = ("a", "b", "c")
HONEST = ("x", "y")
"""Always there; a hybrid fleet needs two."""


def target(data: bytes) -> None:
    """Introductions and receipts with changes; two honest clients are always there."""
    choices = Choices(data)
    maker = find_policy(choices.pick(POLICIES))
    terms = Terms(
        policy=lambda problem: maker(problem, DEFAULT_OPTIONS),
        policy_name="fuzzed",
        budget=16.5,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        num_rounds=100,
    )
    controller = Controller(terms, "r")
    for client in HONEST:
        controller.join(Introduction(run="r", client=client, buffer_capacity=9, buffer_id="b"))
    present = set(HONEST)
    for _ in range(1 + choices.number(4)):
        for client in CLIENTS[: choices.number(3)]:
            with may_refuse(WireError, longest=LONGEST_REASON):
                present.add(_join(controller, choices, client))
        orders = controller.decide(present, present)
        for client, order in orders.items():
            _answer(controller, choices, client, order)
        row = controller.close()
        if not (row.spent >= 0 and row.admitted >= 0 and row.cost_debt >= 0):
            raise AssertionError(f"a round that cannot be: {row}")


def _join(controller: Controller, choices: Choices, client: str) -> str:
    """Introduce a client, and say by which name it is known now."""
    known = client in controller.ledger.clients
    content = RecordDict()
    introduction = Introduction(
        run="r",
        client=client,
        buffer_capacity=5,
        buffer_id="b",
        void_round=controller.round_number - 1,
    )
    _put(content, Introduction, choices.edited(introduction.to_record()))
    if known and choices.number(1):
        account = controller.ledger.account(client)
        order = account.outstanding or Order(
            run="r", round_number=max(controller.round_number - 1, 1), price=0.0, retention="frozen"
        )
        newest = honest_receipt(account, order, 0)
        _put(content, Receipt, choices.edited(newest.to_record()))
    introduced = expect(content, Introduction)
    controller.join(introduced, find(content, Receipt))
    return introduced.client


def _answer(controller: Controller, choices: Choices, client: str, order: Order) -> None:
    account = controller.ledger.account(client)
    bought = min(choices.number(3), account.most_bought(order))
    honest = honest_receipt(account, order, bought)
    if client in HONEST:
        controller.book(client, honest)
        return
    content = RecordDict()
    _put(content, Receipt, choices.edited(honest.to_record()))
    with may_refuse(WireError, longest=LONGEST_REASON):
        controller.book(client, expect(content, Receipt))


def _put(content: RecordDict, kind: type[Introduction | Receipt], tree: Any) -> None:
    content[key_of(kind)] = ConfigRecord({TEXT: text_of(tree)})


def seeds() -> list[bytes]:
    """Fleets of every policy, honest and not."""
    return [
        *(bytes([number, 3, 2, 0, 0, 2, 0, 0, 1, 1]) for number in range(len(POLICIES))),
        *(bytes([number, 4, 3, *range(number, 60)]) for number in range(len(POLICIES))),
    ]
