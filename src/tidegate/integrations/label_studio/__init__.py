"""Suppliers of samples that arrive later; any object with the methods of ``Supplier`` is one."""

from tidegate.integrations.label_studio.server import LabelStudioServer
from tidegate.integrations.label_studio.supplier import LabelStudioSupplier

__all__ = ["LabelStudioServer", "LabelStudioSupplier"]
