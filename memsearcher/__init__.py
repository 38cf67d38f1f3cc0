"""memsearcher: a workbench for search agents that manage their memory."""

__version__ = "0.1.0"
