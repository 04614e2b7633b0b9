"""The paper's mathematics as pure functions; read them beside ``docs/theory.md``."""
