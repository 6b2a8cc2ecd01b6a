# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from series.pins import IDENTITY_EMAIL, settings, variables


def test_settings_of_bytes_are_left_to_a_users_work_tree() -> None:
    ours, users = settings(user=False), settings(user=True)
    assert "core.autocrlf=false" in ours
    assert not any(word.startswith("core.autocrlf") for word in users)
    for words in (ours, users):
        assert f"core.hooksPath={os.devnull}" in words
        assert words[::2] == ["-c"] * (len(words) // 2)


@pytest.mark.parametrize(
    ("name", "neutral", "user"),
    [
        ("GIT_DIR", False, False),
        ("GIT_INDEX_FILE", False, False),
        ("GIT_CONFIG_PARAMETERS", False, False),
        ("GIT_EDITOR", False, False),
        ("GIT_COMMITTER_DATE", False, False),
        ("GIT_SSH_COMMAND", False, True),
        ("GIT_ASKPASS", False, True),
        ("GIT_CONFIG_COUNT", False, True),
        ("GIT_CONFIG_KEY_0", False, True),
        ("GIT_SSL_CAINFO", False, True),
        ("GIT_EXEC_PATH", True, True),
        ("HOME", True, True),
        ("HTTPS_PROXY", True, True),
    ],
)
def test_what_is_inherited(
    monkeypatch: pytest.MonkeyPatch, name: str, neutral: bool, user: bool
) -> None:
    monkeypatch.setenv(name, "value")
    assert (name not in variables({}, user=False)[0]) == neutral
    assert (name not in variables({}, user=True)[0]) == user


def test_identity_and_own_variables_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "else@example.com")
    drop, ours = variables({"GIT_AUTHOR_DATE": "2026-01-01"}, user=False)
    assert "GIT_AUTHOR_DATE" not in drop
    assert ours["GIT_AUTHOR_DATE"] == "2026-01-01"
    assert ours["GIT_COMMITTER_EMAIL"] == IDENTITY_EMAIL
    assert ours["GIT_CONFIG_GLOBAL"] == os.devnull
    assert "GIT_CONFIG_GLOBAL" not in variables({}, user=True)[1]
