"""Every public method of v11 is there, with its parameters, their order and their defaults."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import pytest

from hermes_state import SessionDB

SIGNATURES = [
    "close(self)",
    "create_session(self, session_id, source, **kwargs)",
    "ensure_session(self, session_id, source='unknown', model=None, **kwargs)",
    "end_session(self, session_id, end_reason)",
    "reopen_session(self, session_id)",
    "update_system_prompt(self, session_id, system_prompt)",
    "update_token_counts(self, session_id, input_tokens=0, output_tokens=0, model=None, cache_read_tokens=0,"
    " cache_write_tokens=0, reasoning_tokens=0, estimated_cost_usd=None, actual_cost_usd=None,"
    " cost_status=None, cost_source=None, pricing_version=None, billing_provider=None, billing_base_url=None,"
    " billing_mode=None, api_call_count=0, absolute=False)",
    "prune_empty_ghost_sessions(self, sessions_dir=None)",
    "finalize_orphaned_compression_sessions(self)",
    "get_session(self, session_id)",
    "resolve_session_id(self, session_id_or_prefix)",
    "sanitize_title(title)",
    "set_session_title(self, session_id, title)",
    "get_session_title(self, session_id)",
    "get_session_by_title(self, title)",
    "resolve_session_by_title(self, title)",
    "get_next_title_in_lineage(self, base_title)",
    "get_compression_tip(self, session_id)",
    "list_sessions_rich(self, source=None, exclude_sources=None, limit=20, offset=0, include_children=False,"
    " project_compression_tips=True, order_by_last_active=False)",
    "append_message(self, session_id, role, content=None, tool_name=None, tool_calls=None, tool_call_id=None,"
    " token_count=None, finish_reason=None, reasoning=None, reasoning_content=None, reasoning_details=None,"
    " codex_reasoning_items=None, codex_message_items=None)",
    "replace_messages(self, session_id, messages)",
    "get_messages(self, session_id)",
    "get_messages_around(self, session_id, around_message_id, window=5)",
    "get_anchored_view(self, session_id, around_message_id, window=5, bookend=3,"
    " keep_roles=('user', 'assistant'))",
    "resolve_resume_session_id(self, session_id)",
    "get_messages_as_conversation(self, session_id, include_ancestors=False)",
    "search_messages(self, query, source_filter=None, exclude_sources=None, role_filter=None, limit=20,"
    " offset=0, sort=None)",
    "search_sessions(self, source=None, limit=20, offset=0)",
    "session_count(self, source=None)",
    "message_count(self, session_id=None)",
    "export_session(self, session_id)",
    "export_all(self, source=None)",
    "clear_messages(self, session_id)",
    "delete_session(self, session_id, sessions_dir=None)",
    "prune_sessions(self, older_than_days=90, source=None, sessions_dir=None)",
    "get_meta(self, key)",
    "set_meta(self, key, value)",
    "vacuum(self)",
    "maybe_auto_prune_and_vacuum(self, retention_days=90, min_interval_hours=24, vacuum=True,"
    " sessions_dir=None)",
    "request_handoff(self, session_id, platform)",
    "get_handoff_state(self, session_id)",
    "list_pending_handoffs(self)",
    "claim_handoff(self, session_id)",
    "complete_handoff(self, session_id)",
    "fail_handoff(self, session_id, error)",
    "apply_telegram_topic_migration(self)",
    "enable_telegram_topic_mode(self, *, chat_id, user_id, has_topics_enabled=None,"
    " allows_users_to_create_topics=None)",
    "disable_telegram_topic_mode(self, *, chat_id, clear_bindings=True)",
    "is_telegram_topic_mode_enabled(self, *, chat_id, user_id)",
    "bind_telegram_topic(self, *, chat_id, thread_id, user_id, session_key, session_id, managed_mode='auto')",
    "get_telegram_topic_binding(self, *, chat_id, thread_id)",
    "get_telegram_topic_binding_by_session(self, *, session_id)",
    "list_telegram_topic_bindings_for_chat(self, *, chat_id)",
    "is_telegram_session_linked_to_topic(self, *, session_id)",
    "list_unlinked_telegram_sessions_for_user(self, *, chat_id, user_id, limit=10)",
    "__init__(self, db_path=None)",
    "_execute_write(self, fn)",
]


def plain(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters without their annotations."""
    return [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]


def declared(text: str) -> tuple[str, list[inspect.Parameter]]:
    name, _, rest = text.partition("(")
    scope: dict[str, Any] = {}
    exec(f"def method({rest}: pass", scope)
    return name, plain(inspect.signature(scope["method"]))


@pytest.mark.parametrize("text", SIGNATURES, ids=lambda text: text.partition("(")[0])
def test_a_method_takes_what_v11_takes_and_more_by_keyword_alone(text: str) -> None:
    name, wanted = declared(text)
    found = plain(inspect.signature(getattr(SessionDB, name)))
    names = {parameter.name for parameter in wanted}
    assert [parameter for parameter in found if parameter.name in names] == wanted
    for extra in (parameter for parameter in found if parameter.name not in names):
        assert extra.kind is inspect.Parameter.KEYWORD_ONLY, extra
        assert extra.default is not inspect.Parameter.empty, extra


def test_every_public_method_has_a_docstring() -> None:
    public = [name for name in dir(SessionDB) if not name.startswith("_")]
    assert [
        name for name in public if callable(getattr(SessionDB, name)) and not getattr(SessionDB, name).__doc__
    ] == []


def test_constants_have_the_values_that_programs_read() -> None:
    assert SessionDB.MAX_TITLE_LENGTH == 100
    assert SessionDB._WRITE_MAX_RETRIES == 15
    assert SessionDB._WRITE_RETRY_MIN_S == 0.020
    assert SessionDB._WRITE_RETRY_MAX_S == 0.150
    assert SessionDB._CHECKPOINT_EVERY_N_WRITES == 50


def test_static_and_class_methods_are_such() -> None:
    for name in ("sanitize_title", "_sanitize_fts5_query", "_contains_cjk", "_parse_schema_columns"):
        assert isinstance(inspect.getattr_static(SessionDB, name), staticmethod), name
    for name in ("_encode_content", "_decode_content"):
        assert isinstance(inspect.getattr_static(SessionDB, name), classmethod), name


def test_the_class_is_an_ordinary_one_that_can_be_patched_and_subclassed(db: Any, tmp_path: Any) -> None:
    with mock.patch.object(SessionDB, "append_message", return_value=7) as patched:
        assert db.append_message("s", "user", "x") == 7
    patched.assert_called_once_with("s", "user", "x")
    with (
        mock.patch.object(SessionDB, "get_session", autospec=True, side_effect=KeyError("gone")),
        pytest.raises(KeyError),
    ):
        db.get_session("s")
    db.get_session = lambda _id: {"id": "mine"}
    assert db.get_session("s") == {"id": "mine"}
    del db.get_session
    db.anything_at_all = 5
    assert db.anything_at_all == 5

    class Mine(SessionDB):
        def append_message(self, *args: Any, **kwargs: Any) -> int:
            return super().append_message(*args, **kwargs) * 100

    with Mine(tmp_path / "mine.db") as mine:
        mine.create_session("s", "cli")
        assert mine.append_message("s", "user", "x") == 100
    assert mock.create_autospec(SessionDB).get_messages.return_value is not None


def test_a_bare_instance_can_be_made_for_tests_of_single_methods() -> None:
    bare = SessionDB.__new__(SessionDB)
    assert bare.sanitize_title("  a  ") == "a"
    assert bare._encode_content([1]) == "\x00json:[1]"
    assert bare._decode_content("\x00json:[1]") == [1]


def test_an_unknown_keyword_of_create_session_is_a_type_error_and_makes_nothing(db: Any) -> None:
    with pytest.raises(TypeError):
        db.create_session("s", "cli", modle="m")
    with pytest.raises(TypeError):
        db.ensure_session("s", "cli", nonsense=1)
    assert db.session_count() == 0
