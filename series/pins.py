# SPDX-License-Identifier: Apache-2.0
"""What every git command runs under: settings, identity, and no inherited location."""

import os
from collections.abc import Mapping

IDENTITY_NAME = "vLLM ROCm series"
IDENTITY_EMAIL = "series@localhost"

# Settings on the command line win over a repository's own, which cannot be dropped.
_SAFE = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "true",
    "core.splitIndex": "false",
    "core.commentChar": "#",
    "core.logAllRefUpdates": "true",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "submodule.recurse": "false",
    "fetch.prune": "false",
    "fetch.pruneTags": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    "advice.detachedHead": "false",
    "color.ui": "false",
    "safe.bareRepository": "all",
}
# What may change bytes; a user's own work tree keeps its line ends and filters.
_BYTES = {
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.safecrlf": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "apply.whitespace": "nowarn",
    "apply.ignoreWhitespace": "no",
    "feature.manyFiles": "false",
    "feature.experimental": "false",
}
_NEUTRAL = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
}
_ALWAYS = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_AUTHOR_NAME": IDENTITY_NAME,
    "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
    "GIT_COMMITTER_NAME": IDENTITY_NAME,
    "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
}
# What a user's own fetch may need: credentials, transport, settings by variable.
_USERS_PREFIXES = (
    "GIT_ASKPASS",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_KEY_",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_VALUE_",
    "GIT_CURL_",
    "GIT_HTTP_",
    "GIT_PROXY_",
    "GIT_SSH",
    "GIT_SSL_",
    "GIT_TERMINAL_PROMPT",
)


def settings(*, user: bool) -> list[str]:
    """The `-c` words of a command; with user, their line ends and filters count."""
    pins = _SAFE if user else _SAFE | _BYTES
    return [word for item in pins.items() for word in ("-c", "=".join(item))]


def variables(
    extra: Mapping[str, str], *, user: bool
) -> tuple[list[str], dict[str, str]]:
    """The inherited names to drop, and the variables to set, for one git command.

    Args:
        extra: Variables of this command alone.
        user: Whether the user's own transport and settings are wanted.
    """
    ours = {**_ALWAYS, **({} if user else _NEUTRAL), **extra}
    keep = ("GIT_EXEC_PATH", *(_USERS_PREFIXES if user else ()))
    drop = [
        name
        for name in os.environ
        if name.startswith("GIT_") and name not in ours and not name.startswith(keep)
    ]
    return drop, ours
