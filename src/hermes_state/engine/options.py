"""What a store was opened with."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from hermes_state.engine import opening


@dataclass(frozen=True)
class Options:
    """What a store was opened with.

    Attributes:
        indexing: ``"background"`` or ``"inline"``.
        durability: ``"full"`` (an acknowledged row survives power loss) or ``"normal"``
            (it survives the end of the process; the last moments may go with the power).
        trigram: ``"all"``, ``"unspaced"`` or None for what the file says.
        patience: seconds to wait for the write lock, or None for the defaults.
        explicit: the names of the modes that the caller chose.
    """

    indexing: str = "background"
    durability: str = "full"
    trigram: str | None = None
    patience: float | None = None
    explicit: frozenset[str] = frozenset()

    @classmethod
    def given(
        cls, indexing: str | None, trigram: str | None, durability: str | None, seconds: float | None
    ) -> Options:
        """Options from arguments of which None means the default, or what an open engine has."""
        named = {"indexing": indexing, "durability": durability}
        chosen = {name: value for name, value in named.items() if value is not None}
        return cls(**chosen, trigram=trigram, patience=seconds, explicit=frozenset(chosen))

    def check_against(self, other: Options, path: Path) -> None:
        """Raise ValueError where these options ask for another mode than the open engine's ``other``."""
        for name in sorted(self.explicit):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"{path} is open in this process with {name}={getattr(other, name)!r},"
                    f" not {getattr(self, name)!r}"
                )

    def __post_init__(self) -> None:
        _one_of("indexing", self.indexing, ("background", "inline"))
        _one_of("durability", self.durability, tuple(opening.SYNCHRONOUS))
        if self.trigram is not None:
            _one_of("trigram", self.trigram, ("all", "unspaced"))
        if self.patience is not None:
            _number("patience", self.patience)
            if not self.patience >= 0:
                raise ValueError(f"patience must be seconds, 0 or more, not {self.patience!r}")


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _number(name: str, value: Any) -> None:
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r}")
