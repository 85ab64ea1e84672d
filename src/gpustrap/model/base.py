"""The base of every pydantic model at an edge: frozen, and strict about unknown names."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Frozen, ``extra="forbid"``: a misspelt key is an error, never silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FromNode(BaseModel):
    """What a node sends. Hostile input: typed and frozen; keys of a newer probe are dropped, not trusted."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=4096)
