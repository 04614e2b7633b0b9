"""Laws that every policy, stream and sink must obey, for code outside this package too.

>>> from tidegate.client.streams import IterableStream
>>> check_stream(lambda: IterableStream(lambda: range(100)))

A law that is broken is a ``LawBrokenError``, which says which law, what happened and on which
input. The tests of Tidegate call the same functions.
"""

from tidegate.testing.law import LawBrokenError
from tidegate.testing.policies import POLICY_LAWS, check_policy
from tidegate.testing.sinks import SINK_LAWS, check_sink
from tidegate.testing.streams import STREAM_LAWS, check_stream

__all__ = [
    "POLICY_LAWS",
    "SINK_LAWS",
    "STREAM_LAWS",
    "LawBrokenError",
    "check_policy",
    "check_sink",
    "check_stream",
]
