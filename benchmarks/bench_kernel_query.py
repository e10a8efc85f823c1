"""Query text: compiled against pure, on the kinds of queries that people type.

Run: ``python -m benchmarks.bench_kernel_query``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys

from hermes_state._fastpath import _query_text_c as compiled
from hermes_state._fastpath import _query_text_py as pure

from benchmarks.kernel_ratio import Case, report

QUERIES = [
    "docker deployment",
    '"exact phrase"',
    "docker OR kubernetes",
    "python NOT java",
    "deploy*",
    "my-app.config.ts",
    "fix #123 in src/main.py, 50% of $5",
    "错题本 OR 错题 OR wrong-book OR mistakes",
    "修改youer服务端的计划",
    "桂",
    "PPT 大别山项目 考勤",
    "why does the upload of large files fail with a timeout",
    "NEAR(docker kubernetes)",
]
LONG = [" ".join(f"word{i} OR" for i in range(1500)), "docker " * 4000, "a.b:c " * 2000, "广西桂林 " * 2000]


def main() -> int:
    return report(
        [
            Case("sanitize: compiled / pure", compiled.sanitize, pure.sanitize, QUERIES * 50, 0.12),
            Case("groups: compiled / pure", compiled.groups, pure.groups, QUERIES * 50, 0.12),
            Case("tokenize: compiled / pure", compiled.tokenize, pure.tokenize, QUERIES * 50, 0.2),
            Case("long queries: compiled / pure", compiled.sanitize, pure.sanitize, LONG, 0.12),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
