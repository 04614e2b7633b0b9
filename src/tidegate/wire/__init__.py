"""Everything of ours that crosses the network: orders, receipts, and who is speaking to whom."""

from tidegate.wire.messages import (
    LARGEST_CAPACITY,
    MOST_CANDIDATES,
    MOST_IN_A_ROW,
    NO_LIMIT,
    Address,
    Introduction,
    Order,
    Receipt,
    Retention,
    cursor_digest,
)
from tidegate.wire.record import (
    LARGEST_AMOUNT,
    LARGEST_INTEGER,
    LONGEST_NAME,
    MOST_AMOUNTS,
    WIRE_VERSION,
    Plain,
    Record,
)

__all__ = [
    "LARGEST_AMOUNT",
    "LARGEST_CAPACITY",
    "LARGEST_INTEGER",
    "LONGEST_NAME",
    "MOST_AMOUNTS",
    "MOST_CANDIDATES",
    "MOST_IN_A_ROW",
    "NO_LIMIT",
    "WIRE_VERSION",
    "Address",
    "Introduction",
    "Order",
    "Plain",
    "Receipt",
    "Record",
    "Retention",
    "cursor_digest",
]
