"""Suppliers of samples that arrive later; any object with the methods of ``Supplier`` is one."""

from tidegate.client.suppliers.label_studio import LabelStudioSupplier
from tidegate.client.suppliers.label_studio_server import LabelStudioServer

__all__ = ["LabelStudioServer", "LabelStudioSupplier"]
