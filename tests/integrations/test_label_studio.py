"""Labels from people: a supplier before a real Label Studio, and before servers that misbehave."""

import http.server
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deployment import free_port
from label_studio import LabelStudio, read

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered, Refused, Request
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.integrations.label_studio import LabelStudioServer, LabelStudioSupplier
from tidegate.integrations.label_studio.supplier import AT_ONCE, KEY, task_key
from tidegate.wire import Order


def render(sample: object) -> dict[str, Any]:
    return {"text": f"sample {sample}"}


@pytest.fixture
def project(label_studio: LabelStudio) -> int:
    return label_studio.new_project()


@pytest.fixture
def supplier(label_studio: LabelStudio, project: int) -> LabelStudioSupplier:
    server = LabelStudioServer(label_studio.url, token_file=label_studio.token_file)
    return LabelStudioSupplier(server, project, render, read)


def requests(*samples: object) -> list[Request]:
    return [Request(f"run/site/{sample}.png", sample, 2.5) for sample in samples]


def keys(*samples: object) -> list[str]:
    return [one.key for one in requests(*samples)]


@pytest.mark.process
def test_a_sample_is_one_task_until_somebody_labels_it(
    label_studio: LabelStudio, project: int, supplier: LabelStudioSupplier
) -> None:
    supplier.ask(requests(1, 2))
    supplier.ask(requests(1, 2, 3))
    tasks = label_studio.tasks(project)
    assert [task["data"] for task in tasks] == [
        {"text": f"sample {one.sample}", KEY: task_key(one.key)} for one in requests(1, 2, 3)
    ]
    assert ".png" not in json.dumps(tasks)  # names of files stay on the device
    assert "2.5" not in json.dumps([task["data"] for task in tasks])
    assert list(supplier.collect(keys(1, 2, 3))) == []
    label_studio.label(tasks[0], "a cat")
    label_studio.label(tasks[0], "a second opinion")
    label_studio.skip(tasks[1])
    first, second = supplier.collect(keys(1, 2, 3))
    assert isinstance(first, Delivered)
    assert supplier.complete(1, first.answer) == (1, "a cat")
    assert second == Refused(keys(2)[0], refunded=False, reason="skipped")
    assert list(supplier.collect(keys(1, 2, 3))) == [first, second]  # as often as it is asked


@pytest.mark.process
def test_what_is_cancelled_is_deleted_unless_somebody_has_labelled_it(
    label_studio: LabelStudio, project: int, supplier: LabelStudioSupplier
) -> None:
    supplier.ask(requests(1, 2))
    label_studio.label(label_studio.tasks(project)[0], "a cat")
    labelled, deleted, unknown = supplier.cancel(keys(1, 2, 3))
    assert isinstance(labelled, Delivered)
    assert deleted == Refused(keys(2)[0], refunded=True, reason="nobody has labelled it in time")
    assert unknown == Refused(keys(3)[0], refunded=True, reason="there is no task for it")
    assert [task["data"]["text"] for task in label_studio.tasks(project)] == ["sample 1"]
    again = list(supplier.cancel(keys(2)))  # a client that died before it wrote the refusal down
    assert [(one.key, getattr(one, "refunded", None)) for one in again] == [(keys(2)[0], True)]


@pytest.mark.process
def test_a_label_that_comes_while_a_task_is_cancelled_is_not_deleted(
    label_studio: LabelStudio,
    project: int,
    supplier: LabelStudioSupplier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supplier.ask(requests(1))
    find = LabelStudioServer.find

    def labelled_before(server: LabelStudioServer, path: str) -> Any:
        label_studio.label(label_studio.tasks(project)[0], "just in time")
        return find(server, path)

    monkeypatch.setattr(LabelStudioServer, "find", labelled_before)
    assert list(supplier.cancel(keys(1))) == []  # still under way
    (outcome,) = supplier.collect(keys(1))
    assert isinstance(outcome, Delivered)


@pytest.mark.process
def test_a_task_that_a_dying_client_made_twice_is_one_purchase(
    label_studio: LabelStudio,
    project: int,
    supplier: LabelStudioSupplier,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The request of a killed process may be served after the next process has looked."""
    supplier.ask(requests(1, 2))
    twice = [
        {"data": task["data"], "meta": {KEY: task["data"][KEY]}}
        for task in label_studio.tasks(project)
    ]
    label_studio.request("POST", f"/api/projects/{project}/import", twice)
    one, two, _, two_again = label_studio.tasks(project)
    label_studio.label(two_again, "the second")
    (outcome,) = supplier.collect(keys(1, 2))
    assert (outcome.key, supplier.complete(2, getattr(outcome, "answer", []))) == (
        keys(2)[0],
        (2, "the second"),
    )
    assert [task["id"] for task in label_studio.tasks(project)] == [one["id"], two_again["id"]]
    label_studio.request("POST", f"/api/projects/{project}/import", twice[:1])
    for task in label_studio.tasks(project):
        if task["data"] == one["data"]:
            label_studio.label(task, f"of {task['id']}")
    (outcome,) = supplier.collect(keys(1))
    assert supplier.complete(1, getattr(outcome, "answer", [])) == (1, f"of {one['id']}")
    assert "was labelled twice" in caplog.text
    assert two["id"] not in [task["id"] for task in label_studio.tasks(project)]


@pytest.mark.process
def test_more_keys_than_a_request_carries(
    label_studio: LabelStudio, project: int, supplier: LabelStudioSupplier
) -> None:
    many = range(2 * AT_ONCE + 1)
    supplier.ask(requests(*many))
    supplier.ask(requests(*many))
    tasks = label_studio.tasks(project)
    assert len(tasks) == len(many)
    label_studio.label(tasks[-1], "the last")
    (outcome,) = supplier.collect(keys(*many))
    assert outcome.key == keys(many[-1])[0]


@pytest.mark.process
def test_a_sample_that_cannot_be_shown_holds_up_no_other(
    label_studio: LabelStudio, project: int
) -> None:
    def only_some(sample: object) -> Any:
        shown = {1: {"text": "a text"}, 2: {"text": float("nan")}, 3: "a text", 4: {1: "a text"}}
        shown[5] = {"nothing": "that the project shows"}
        return shown[sample]  # type: ignore[index]

    server = LabelStudioServer(label_studio.url, token_file=label_studio.token_file)
    supplier = LabelStudioSupplier(server, project, only_some, read)
    told = r"render failed for 5 of 6 samples \(run/site/2.png"
    with pytest.raises(SupplierError, match=told):
        supplier.ask(requests(5, 1, 2, 3, 4, 6))
    assert [task["data"]["text"] for task in label_studio.tasks(project)] == ["a text"]


@pytest.mark.process
def test_a_personal_token_is_exchanged_and_exchanged_again_when_it_is_old(
    label_studio: LabelStudio,
    project: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    personal = label_studio.request("POST", "/api/token/", {})["token"]
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", personal)
    server = LabelStudioServer(label_studio.url)
    supplier = LabelStudioSupplier(server, project, render, read)
    supplier.ask(requests(1))
    assert server._access is not None
    server._access = "an old one"
    assert list(supplier.collect(keys(1))) == []
    assert len(label_studio.tasks(project)) == 1
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", f"{personal}x")
    server._access = None
    with pytest.raises(
        SupplierError, match="refused POST /api/token/refresh with status 401"
    ) as no:
        supplier.ask(requests(2))
    assert "check that the token is valid" in str(no.value)
    assert personal not in f"{caplog.text} {no.value} {server!r} {no.value.__context__}"


@pytest.mark.process
def test_a_refusal_names_status_and_remedy(
    label_studio: LabelStudio, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LabelStudioServer(label_studio.url, token_file=label_studio.token_file)
    nowhere = LabelStudioSupplier(server, 10**6, render, read)
    with pytest.raises(SupplierError, match=r"GET /api/tasks with status 404.*project's number"):
        list(nowhere.collect(keys(1)))
    other = LabelStudioSupplier(server, project, lambda sample: {"secret": "a sample"}, read)
    with pytest.raises(SupplierError, match=r'status 400.*"text" key is expected.*render') as no:
        other.ask(requests(1))
    assert "a sample" not in str(no.value)
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", "wrong")
    stranger = LabelStudioSupplier(LabelStudioServer(label_studio.url), project, render, read)
    with pytest.raises(SupplierError, match=r"status 401 \(Invalid token.\); check that the token"):
        list(stranger.cancel(keys(1)))


def order(now: int, count: int) -> Order:
    return Order(run="run", round_number=now, price=2.0, retention="oldest_first", count=count)


@pytest.mark.process
def test_while_the_server_is_away_books_go_on_and_what_was_bought_is_asked_for_later(
    label_studio: LabelStudio,
    project: int,
    supplier: LabelStudioSupplier,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(tmp_path / "buffer.sqlite", "run", "site", 4)
    away = LabelStudioServer(
        f"http://127.0.0.1:{free_port()}", token_file=label_studio.token_file, timeout=5
    )
    stream = IndexedStream("abcdef")
    gate = Gate(store, stream, supplier=LabelStudioSupplier(away, project, render, read))
    assert gate.apply(order(1, 2)).under_way == 2
    assert gate.apply(order(2, 1)).under_way == 3  # its first two cannot be collected either
    assert "cannot be reached ([Errno 111] Connection refused): start it" in caplog.text
    caplog.clear()
    gate = Gate(store, stream, supplier=supplier, give_up_after=3)
    gate.apply(order(3, 0))
    tasks = label_studio.tasks(project)
    assert [task["data"]["text"] for task in tasks] == ["sample a", "sample b", "sample c"]
    label_studio.label(tasks[1], "B")
    receipt = gate.apply(order(4, 0))
    assert (receipt.admitted, receipt.refused, receipt.refunded) == (1, 1, 2.0)
    assert (receipt.under_way, list(gate.samples())) == (1, [("b", "B")])
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    store.close()


@pytest.mark.process
@pytest.mark.full
def test_a_killed_server_keeps_its_tasks_and_is_asked_again(
    label_studio: LabelStudio, tmp_path: Path
) -> None:
    with LabelStudio(label_studio._made, tmp_path / "data") as broken:
        project = broken.new_project()
        server = LabelStudioServer(broken.url, token_file=broken.token_file)
        supplier = LabelStudioSupplier(server, project, render, read)
        supplier.ask(requests(1))
        broken.label(broken.tasks(project)[0], "a cat")
        broken.kill()
        with pytest.raises(SupplierError, match="cannot be reached"):
            supplier.ask(requests(1, 2))
        broken.start()
        supplier.ask(requests(1, 2))
        assert len(broken.tasks(project)) == 2
        (outcome,) = supplier.collect(keys(1, 2))
        assert outcome.key == keys(1)[0]


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[LabelStudioSupplier]:
    """A supplier before a server that is not Label Studio."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    server = LabelStudioServer(f"http://127.0.0.1:{served.server_port}", timeout=0.5)
    try:
        yield LabelStudioSupplier(server, 1, render, read)
    finally:
        served.shutdown()
        served.server_close()


def sends(status: int, body: bytes, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hangs(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.connection.recv(1)  # until the other side has had enough


def breaks_off(handler: http.server.BaseHTTPRequestHandler) -> None:
    sends(200, b'{"tasks"', **{"Content-Length": "100"})(handler)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (hangs, r"cannot be reached \(timed out\)"),
        (breaks_off, r"cannot be reached \(peer closed connection"),
        (sends(200, b"<html>"), "does not reply as Label Studio does"),
        (sends(502, b"<html>"), "status 502; the client asks again with the next order"),
        (sends(302, b"", Location="https://elsewhere/"), "redirects to https://elsewhere/: give"),
        (sends(500, b'{"detail": 7, "validation_errors": 1}'), "status 500; the client asks again"),
    ],
)
def test_what_does_not_answer_as_it_should_fails_by_name(
    answer: Answer, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", "not for others")
    with answering(answer) as supplier, pytest.raises(SupplierError, match=told) as failure:
        list(supplier.collect(keys(1)))
    assert "http://127.0.0.1" in str(failure.value)
    assert "not for others" not in str(failure.value)


def test_a_proxy_does_not_see_the_token_of_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", "not for others")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with answering(sends(200, b'{"tasks": []}')) as supplier:
        assert list(supplier.collect(keys(1))) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": "labels.example"}, "url must be the address of a Label Studio server"),
        ({"url": "ftp://labels.example"}, "url must be the address of a Label Studio server"),
        ({"url": None}, "url must be the address of a Label Studio server, got None"),
        ({"url": "https://me:secret@labels.example"}, "must not contain a user name or a password"),
        ({"url": "http://labels.example"}, "would send the token to labels.example"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0, got 0"),
        ({"token_file": "a", "token_variable": "B"}, "token_file or token_variable, not both"),
        ({"token_file": "missing"}, "token_file missing cannot be read"),
        ({"token_variable": "NO_TOKEN"}, "the environment variable NO_TOKEN"),
        ({"token_variable": "EMPTY_TOKEN"}, "the token of Label Studio is empty"),
    ],
)
def test_a_server_that_cannot_be_is_refused_at_once(
    given: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", "a token")
    monkeypatch.setenv("EMPTY_TOKEN", "")
    with pytest.raises(ConfigurationError, match=told) as refused:
        LabelStudioServer(**{"url": "https://labels.example", **given})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"server": "https://labels.example"}, "server must be a LabelStudioServer"),
        ({"project": 0}, "project must be a whole number of at least 1, got 0"),
        ({"render": "text"}, "render must be a function of a sample, got 'text'"),
        ({"read": lambda result: result}, "read must be a function of an annotation's result and"),
        ({"refund_skipped": 1}, "refund_skipped must be True or False, got 1"),
    ],
)
def test_a_supplier_that_cannot_be_is_refused_at_once(
    given: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", "a token")
    server = LabelStudioServer("https://labels.example")
    values = {"server": server, "project": 1, "render": render, "read": read, **given}
    with pytest.raises(ConfigurationError, match=told):
        LabelStudioSupplier(**values)
