"""The text kernel: the twins do alike, and what they give can be stored."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from builds import KERNELS
from hypothesis import given
from property.kernel_values import ODD, Mute, Strange, Text, texts, values
from property.twins import both, same


@given(texts)
def test_twins_clean_alike_and_the_result_is_utf8(text: str) -> None:
    kind, (_, cleaned) = same("text", "clean", text)
    assert kind == "value"
    assert cleaned.encode().decode() == cleaned
    assert cleaned == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@given(values)
def test_twins_fall_back_alike(value: Any) -> None:
    kind, (exact, text) = same("text", "fallback", value)
    assert (kind, exact) == ("value", str)
    text.encode()


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values(value: Any) -> None:
    same("text", "clean", value)
    same("text", "fallback", value)


@pytest.mark.parametrize("twin", both("text"))
class TestEach:
    @pytest.mark.parametrize("text", ["", "ascii", "\xff", "中文", "😀", "\x00"])
    def test_text_without_surrogates_is_the_same_object(self, twin: ModuleType, text: str) -> None:
        assert twin.clean(text) is text

    def test_pairs_are_joined_and_lone_surrogates_replaced(self, twin: ModuleType) -> None:
        assert twin.clean("a\ud83c\udf89\ud83c|\udf89") == "a🎉\ufffd|\ufffd"

    def test_a_subclass_comes_back_as_exact_str(self, twin: ModuleType) -> None:
        cleaned = twin.clean(Text("text"))
        assert type(cleaned) is str
        assert cleaned == "text"

    @pytest.mark.parametrize("value", [None, 5, b"x", Strange()], ids=range(4))
    def test_what_is_no_str_is_refused(self, twin: ModuleType, value: Any) -> None:
        with pytest.raises(TypeError, match="text must be str, not"):
            twin.clean(value)

    def test_a_value_without_text_is_its_type_name(self, twin: ModuleType) -> None:
        assert twin.fallback(Mute()) == "<Mute>"
        assert twin.fallback(Strange()) == "strange \ufffd"


@pytest.mark.parametrize("kernel", ["text", "json_text", "encode", "decode"])
@pytest.mark.parametrize("without", ["0", "1"])
def test_dispatcher_can_be_imported_alone_and_picks_its_twin(kernel: str, without: str) -> None:
    expected = "py" if without == "1" or not KERNELS else "c"
    code = (
        f"import hermes_state._fastpath.{kernel} as kernel\n"
        "import sys\n"
        "functions = [getattr(kernel, name) for name in kernel.__all__]\n"
        "assert any(map(callable, functions))\n"
        f"assert 'hermes_state._fastpath._{kernel}_{expected}' in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if k != "HERMES_STATE_REQUIRE_EXTENSIONS"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**environment, "HERMES_STATE_NO_EXTENSIONS": "1" if expected == "py" else "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
