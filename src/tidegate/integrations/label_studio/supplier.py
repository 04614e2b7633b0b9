"""Labels from people: a supplier that creates tasks in Label Studio and reads annotations."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate._internal.arguments import check_function, check_kind, check_truth, check_whole_number
from tidegate.client.supplier import Delivered, Outcome, Refused, Request
from tidegate.errors import SupplierError
from tidegate.integrations.label_studio.server import LabelStudioServer, RefusedRequestError

Render = Callable[[Any], Mapping[str, Any]]
"""Given a sample, returns what people see of it: a value for each variable of the project's
labelling configuration, such as ``{"text": sample}`` for ``value="$text"``."""
Read = Callable[[list[dict[str, Any]], Any], Any]
"""Given the result of an annotation, as in Label Studio's JSON, and the sample, returns the sample
to train on."""

KEY = "tidegate_key"
"""Of a task's data: whose purchase it is."""
AT_ONCE = 50
"""Keys in one request, because they travel in its address."""
PAGE = 500
UNSHOWN = (400, 413)
"""Statuses of a request that holds a task without a variable, or one that is too large."""

logger = logging.getLogger(__name__)


def task_key(key: str) -> str:
    """Return a task's key for a purchase: a digest, because keys may hold file names.

    >>> task_key("run/site/7")
    '9158bbadab8cc6134e30502f182e518c'
    """
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class _Task:
    number: int
    annotations: Sequence[Mapping[str, Any]]

    @property
    def rank(self) -> tuple[float, int]:
        """Sort tasks of one key; the one that was labelled or created first is the purchase."""
        first = min((one["id"] for one in self.annotations), default=float("inf"))
        return first, self.number


class LabelStudioSupplier:
    """Buys labels from people who work with Label Studio.

    Each requested sample becomes one task, which is found again by its key: asking twice creates
    one task, even if the client or the server died in between. The first annotation is delivered. A
    skipped task is refused. A cancelled task is deleted, unless somebody has labelled it.

    Label Studio has no prices: the run's prices say what a label costs.
    """

    def __init__(
        self,
        server: LabelStudioServer,
        project: int,
        render: Render,
        read: Read,
        *,
        refund_skipped: bool = False,
    ) -> None:
        """Buy labels in one project.

        Args:
            server: the Label Studio server.
            project: its number, as in the address of its page, ``/projects/1``.
            render: returns what people see of a sample; see ``Render``. Tasks hold nothing else,
                besides a digest of the purchase's key.
            read: makes a sample from an answer; see ``Read``.
            refund_skipped: whether a skipped task costs nothing.
        """
        example = "LabelStudioServer('https://labels.example')"
        check_kind("server", server, LabelStudioServer, f"such as {example}")
        check_whole_number("project", project)
        check_function("render", render, ["a sample"], "such as lambda text: {'text': text}")
        takes = "an annotation's result", "a sample"
        remedy = "such as lambda result, text: (text, result[0]['value']['choices'][0])"
        check_function("read", read, takes, remedy)
        check_truth("refund_skipped", refund_skipped)
        self._server = server
        self._project = project
        self._render = render
        self._read = read
        self._refund_skipped = refund_skipped

    def ask(self, requests: Sequence[Request]) -> None:
        """Create a task for each sample that has none."""
        wanted, failed = dict[str, dict[str, Any]](), list[str]()
        for one in requests:
            try:
                wanted[task_key(one.key)] = self._data(one)
            except Exception as wrong:  # the others can be requested
                logger.exception("render failed for %a", one.key)
                failed.append(f"{one.key}: {type(wrong).__name__}")
        for keys in _parts(list(wanted)):
            known = self._tasks(keys)
            # Filters see data only; what is read again is meta, without the content.
            missing = [
                {"data": wanted[key], "meta": {KEY: key}} for key in keys if key not in known
            ]
            failed += self._import(missing)
        if failed:
            raise SupplierError(
                "render",
                (
                    f"failed for {len(failed)} of {len(requests)} samples ({failed[0]}); the "
                    "client asks for them again with the next order, and gives up after "
                    "give_up_after rounds"
                ),
            )

    def _import(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Create tasks, all or none in one import; return what went wrong with each that failed.

        If Label Studio refuses the content of an import, it is tried again in halves, so that one
        sample that cannot be shown does not delay the others.
        """
        if not tasks:
            return []
        try:
            self._server.post(f"/api/projects/{self._project}/import", tasks)
        except RefusedRequestError as refusal:
            if refusal.status not in UNSHOWN:
                raise
            if len(tasks) == 1:
                return [str(refusal)]
            half = len(tasks) // 2
            return self._import(tasks[:half]) + self._import(tasks[half:])
        return []

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """Return what was labelled or skipped."""
        for key, task in self._found(keys):
            outcome = task and self._outcome(key, task)
            if outcome:
                yield outcome

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """Delete tasks that nobody has labelled."""
        for key, task in self._found(keys):
            if task is None:
                yield Refused(key, refunded=True, reason="there is no task for it")
            elif outcome := self._outcome(key, task):
                yield outcome
            elif self._deleted(task.number, task_key(key)):
                yield Refused(key, refunded=True, reason="nobody has labelled it in time")

    def complete(self, sample: Any, answer: Any) -> Any:
        """Return the sample to train on, by ``read``."""
        return self._read(answer, sample)

    def _data(self, request: Request) -> dict[str, Any]:
        """Return what a task holds."""
        shown = self._render(request.sample)
        if not isinstance(shown, Mapping) or not all(isinstance(name, str) for name in shown):
            raise TypeError(
                f"render returned a {type(shown).__name__}; it must return a dictionary with a "
                "value for each variable of the labelling configuration, such as "
                f"{{'text': 'a text'}}"
            )
        data = {**shown, KEY: task_key(request.key)}
        json.dumps(data, allow_nan=False)  # an array or NaN fails here, by itself
        return data

    def _outcome(self, key: str, task: _Task) -> Outcome | None:
        finished = [one for one in task.annotations if not one["was_cancelled"]]
        if finished:
            return Delivered(key, min(finished, key=lambda one: int(one["id"]))["result"])
        if task.annotations:
            return Refused(key, refunded=self._refund_skipped, reason="skipped")
        return None

    def _found(self, keys: Sequence[str]) -> Iterator[tuple[str, _Task | None]]:
        """Return each key with its task."""
        for some in _parts(keys):
            tasks = self._tasks([task_key(key) for key in some])
            for key in some:
                yield key, tasks.get(task_key(key))

    def _tasks(self, keys: Sequence[str]) -> dict[str, _Task]:
        """Return tasks by their keys.

        If a client was killed while it asked, its request may arrive after the next process has
        looked for its tasks and requested them again: duplicates are deleted here.
        """
        named = {
            "filter": f"filter:tasks:data.{KEY}",
            "operator": "in_list",
            "type": "List",
            "value": list(keys),
        }
        query = {"filters": {"conjunction": "and", "items": [named]}, "ordering": ["tasks:id"]}
        asked: dict[str, str | int] = {
            "project": self._project,
            "query": json.dumps(query),
            "fields": "all",
            "include": "id,meta,annotations,was_cancelled,result",
            "page_size": PAGE,
        }
        tasks = dict[str, list[_Task]]()
        for one in self._server.get("/api/tasks", asked)["tasks"]:
            key = one["meta"].get(KEY)  # missing where somebody made tasks from other tasks' data
            if key is not None:
                tasks.setdefault(key, []).append(_Task(one["id"], one["annotations"]))
        first = dict[str, _Task]()
        for key, several in tasks.items():
            first[key], *others = sorted(several, key=lambda task: task.rank)
            for one in others:
                if not self._deleted(one.number, key):
                    logger.warning("%s was labelled twice, as task %d, too", key, one.number)
        return first

    def _deleted(self, number: int, key: str) -> bool:
        """Delete a task unless it was labelled meanwhile; return whether it was deleted."""
        path = f"/api/tasks/{number}/"
        task = self._server.find(path)
        if task is None or task["data"].get(KEY) != key:  # numbers are used again
            return True
        if task["annotations"]:
            return False
        self._server.delete(path)
        return True


def _parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), AT_ONCE):
        yield keys[start : start + AT_ONCE]
