"""JSON Lines files: reading them line by line whatever they hold, and writing them whole or not at all.

A line is a JSON object in UTF-8. Names that end in ``.gz`` are written as gzip;
gzip is read wherever a file begins like one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hermes_state._fastpath import json_text

MAX_LINE_BYTES = 256 * 1024 * 1024
"""Longest line that is read; a longer one is a bad line, and is passed over in pieces."""

_GZIP_MAGIC = b"\x1f\x8b"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)

Source = str | os.PathLike[str] | IO[str] | IO[bytes]
Target = str | os.PathLike[str] | IO[str]


class BadLine(ValueError):
    """A line, or a part of it, that cannot be taken; the text says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    Attributes:
        file: the file's name, or ``"<stream>"``.
        number: from 1.
        text: the line with its end, or None where it was passed over.
        wrong: why it was passed over.
    """

    file: str
    number: int
    text: str | bytes | None
    wrong: str = ""

    def value(self) -> Any:
        """What the JSON says.

        Raises:
            BadLine: it is not JSON, not UTF-8, or was passed over.
        """
        if self.text is None:
            raise BadLine(self.wrong)
        try:
            text = self.text.decode("utf-8") if isinstance(self.text, bytes) else self.text
            return json.loads(text.removeprefix("\ufeff"))
        except UnicodeDecodeError as error:
            raise BadLine(f"not UTF-8 at byte {error.start} of the line{self._cut()}") from error
        except (ValueError, RecursionError) as error:
            raise BadLine(f"not JSON{self._cut()}: {error}") from error

    def _cut(self) -> str:
        end = self.text[-1:] if self.text else ""
        return "" if end in ("\n", b"\n") else ", and the file ends in the middle of it"


class Reader:
    """The lines of a file, of every ``*.jsonl`` and ``*.jsonl.gz`` in a folder, or of a stream.

    Holds one line at a time. Blank lines are counted and passed over.

    Attributes:
        total: bytes of all files as they lie on the disk; 0 for a stream.
    """

    def __init__(self, source: Source) -> None:
        self._stream: IO[Any] | None = None
        self._paths: list[Path] = []
        if isinstance(source, str | os.PathLike):
            path = Path(source)
            self._paths = _in_folder(path) if path.is_dir() else [path]
        else:
            self._stream = source
        self.total = sum(path.stat().st_size for path in self._paths)
        self._before = 0
        self._raw: io.BufferedReader | None = None

    @property
    def done(self) -> int:
        """Bytes read so far, of ``total``; characters for a text stream."""
        return self._before + (0 if self._raw is None else self._raw.tell())

    def __iter__(self) -> Iterator[Line]:
        """Each line; a gzip file that is cut or damaged ends with a line that says so."""
        if self._stream is not None:
            for line in _lines(self._stream, str(getattr(self._stream, "name", "<stream>"))):
                self._before += len(line.text or b"")
                yield line
        for path in self._paths:
            with path.open("rb") as self._raw:
                packed = self._raw.peek(2)[:2] == _GZIP_MAGIC
                unpacked: Any = gzip.GzipFile(fileobj=self._raw) if packed else self._raw
                yield from _lines(unpacked, str(path))
                self._before += self._raw.tell()
                self._raw = None


def _in_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))


def _lines(stream: IO[Any], file: str) -> Iterator[Line]:
    number = 0
    while True:
        number += 1
        try:
            text = stream.readline(MAX_LINE_BYTES)
            too_long = len(text) >= MAX_LINE_BYTES and not _ended(text)
            while too_long and text and not _ended(text):
                text = stream.readline(MAX_LINE_BYTES)
        except _DAMAGED as error:
            yield Line(file, number, None, f"the gzip file is cut short or damaged here: {error}")
            return
        except UnicodeDecodeError as error:
            yield Line(file, number, None, f"the stream cannot be read on, it is not {error.encoding}")
            return
        if too_long:
            yield Line(file, number, None, f"longer than {MAX_LINE_BYTES} bytes")
        elif not text:
            return
        elif not text.isspace():
            yield Line(file, number, text)


def _ended(text: str | bytes) -> bool:
    return text[-1:] in ("\n", b"\n")


def line_of(value: Any) -> str:
    """``value`` as one line: JSON with non-ASCII characters as they are, lone surrogates escaped."""
    return json_text.dumps(value) + "\n"


@contextlib.contextmanager
def writing(target: Target) -> Iterator[IO[str]]:
    """A text stream onto ``target``.

    A path gets its new content at the end, at once and on the disk, or keeps
    what it had where the block fails. The file is readable by its owner only
    (it holds conversations). A stream is written to as it is and stays open.
    """
    if not isinstance(target, str | os.PathLike):
        yield target
        return
    path = Path(target)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with open(handle, "wb") as raw:
            # No file name and no time in the gzip header: the same store makes the same bytes.
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.suffix == ".gz" else None
            with io.TextIOWrapper(io.BufferedWriter(_Kept(packed or raw)), "utf-8", newline="\n") as text:
                yield text
            if packed is not None:
                packed.close()
            raw.flush()
            os.fsync(raw.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


class _Kept(io.RawIOBase):
    """Passes bytes on to a stream that it does not close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        return len(data)


def _sync_folder(folder: Path) -> None:
    """Bring the new name itself to the disk, where the system lets folders be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
