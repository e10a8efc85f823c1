"""Script tests of 10 KB texts: compiled against pure.

Run: ``python -m benchmarks.bench_kernel_scripts``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import random
import sys

from hermes_state._fastpath import _scripts_c as compiled
from hermes_state._fastpath import _scripts_py as pure

from benchmarks.kernel_ratio import Case, report

_chance = random.Random(3)


def _text(letters: str, size: int = 10_000) -> str:
    return "".join(_chance.choices(letters, k=size))


CYRILLIC = [_text("абвгдежзийклм ") for _ in range(20)]
QUOTED = [_text("abcdefghij ’“—") for _ in range(20)]
EMOJI = [_text("abcdefghij 🎉") for _ in range(20)]
CJK = [_text("广西桂林漓江，。") for _ in range(20)]
BOTH = [_text("广西桂林 abc，") for _ in range(20)]


def main() -> int:
    return report(
        [
            Case("has_unspaced, Cyrillic", compiled.has_unspaced, pure.has_unspaced, CYRILLIC, 0.03),
            Case("has_unspaced, curly quotes", compiled.has_unspaced, pure.has_unspaced, QUOTED, 0.03),
            Case("has_unspaced, emoji", compiled.has_unspaced, pure.has_unspaced, EMOJI, 0.03),
            Case("has_mixed, Chinese", compiled.has_mixed, pure.has_mixed, CJK, 0.1),
            Case("count_cjk, both", compiled.count_cjk, pure.count_cjk, BOTH, 0.1),
            Case("runs, both", compiled.runs, pure.runs, BOTH, 0.5),
            Case("split_mixed, both", compiled.split_mixed, pure.split_mixed, BOTH, 0.2),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
