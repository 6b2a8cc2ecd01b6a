# SPDX-License-Identifier: Apache-2.0
import os
import shutil
from pathlib import Path

import pytest

from series.errors import SeriesError
from series.export import export_series
from series.files import ExportError
from series.git import Repository
from series.manifest import ManifestError, load_manifest
from series.place import place_series

from .conftest import LONG, World, commit, git, make_clone, seen_state, subjects


def export(world: World, path: Path, **options: bool):
    flags = {"own": False, "prune": False} | options
    manifest = load_manifest(world.toml, check_files=False)
    repo = Repository.find(path)
    return export_series(repo, manifest, pinned=None, say=print, **flags)


def apply(world: World, path: Path, **options: bool):
    return place_series(Repository.find(path), world.manifest, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.fixture
def applied(world: World, clone: Path) -> Path:
    """A clone with the series checked out, and an identity to commit under."""
    apply(world, clone, switch=True)
    git(clone, "config", "user.name", "Dev Eloper")
    git(clone, "config", "user.email", "dev@example.com")
    return clone


def test_apply_and_export_change_nothing(world: World, applied: Path) -> None:
    before, seen = contents(world.patches), seen_state(applied)
    done = export(world, applied)
    assert contents(world.patches) == before
    assert seen_state(applied) == seen
    assert (done.written, done.removed, done.new, done.note) == ((), (), (), "")
    assert done.tree == world.tree


def test_patches_come_back_byte_for_byte(world: World, applied: Path) -> None:
    before = contents(world.patches)
    for path in world.patches.glob("*.patch"):
        path.unlink()
    done = export(world, applied)
    assert contents(world.patches) == before
    assert len(done.written) == 3


HOSTILE = [
    ("am.keepcr", "true"),
    ("am.messageid", "true"),
    ("am.threeWay", "true"),
    ("apply.ignoreWhitespace", "change"),
    ("apply.whitespace", "error-all"),
    ("apply.whitespace", "fix"),
    ("color.diff", "always"),
    ("color.ui", "always"),
    ("commit.cleanup", "scissors"),
    ("commit.gpgSign", "true"),
    ("commit.template", "/nowhere"),
    ("core.abbrev", "5"),
    ("core.attributesFile", "ATTRIBUTES"),
    ("core.autocrlf", "input"),
    ("core.autocrlf", "true"),
    ("core.commentChar", "["),
    ("core.compression", "9"),
    ("core.deltaBaseCacheLimit", "1"),
    ("core.editor", "false"),
    ("core.eol", "crlf"),
    ("core.excludesFile", "EXCLUDES"),
    ("core.fileMode", "false"),
    ("core.fsmonitor", "HOOKS/post-checkout"),
    ("core.hooksPath", "HOOKS"),
    ("core.logAllRefUpdates", "false"),
    ("core.pager", "false"),
    ("core.preloadIndex", "false"),
    ("core.quotePath", "false"),
    ("core.safecrlf", "true"),
    ("core.splitIndex", "true"),
    ("core.untrackedCache", "true"),
    ("core.warnAmbiguousRefs", "false"),
    ("core.whitespace", "trailing-space,tab-in-indent,cr-at-eol"),
    ("diff.algorithm", "histogram"),
    ("diff.algorithm", "patience"),
    ("diff.context", "0"),
    ("diff.context", "10"),
    ("diff.colorMoved", "zebra"),
    ("diff.default.xfuncname", "^(value.*)$"),
    ("diff.dirstat", "files"),
    ("diff.dstPrefix", "new/"),
    ("diff.external", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.indentHeuristic", "false"),
    ("diff.interHunkContext", "40"),
    ("diff.mnemonicPrefix", "true"),
    ("diff.noPrefix", "true"),
    ("diff.orderFile", "ORDER"),
    ("diff.relative", "true"),
    ("diff.renames", "copies"),
    ("diff.srcPrefix", "old/"),
    ("diff.statGraphWidth", "3"),
    ("diff.submodule", "log"),
    ("diff.suppressBlankEmpty", "true"),
    ("diff.wordRegex", "."),
    ("diff.wsErrorHighlight", "all"),
    ("extensions.worktreeConfig", "true"),
    ("feature.experimental", "true"),
    ("feature.manyFiles", "true"),
    ("fetch.prune", "true"),
    ("format.attach", "boundary"),
    ("format.cc", "c@example.com"),
    ("format.coverFromDescription", "subject"),
    ("format.coverLetter", "true"),
    ("format.encodeEmailHeaders", "false"),
    ("format.filenameMaxLength", "12"),
    ("format.forceInBodyFrom", "true"),
    ("format.from", "true"),
    ("format.headers", "X-Header: 1"),
    ("format.mboxrd", "true"),
    ("format.noprefix", "true"),
    ("format.notes", "true"),
    ("format.numbered", "true"),
    ("format.outputDirectory", "/nowhere"),
    ("format.pretty", "oneline"),
    ("format.signOff", "true"),
    ("format.signature", "me"),
    ("format.signatureFile", "/nowhere"),
    ("format.subjectPrefix", "MINE"),
    ("format.suffix", ".txt"),
    ("format.thread", "deep"),
    ("format.to", "t@example.com"),
    ("format.useAutoBase", "true"),
    ("gc.auto", "1"),
    ("gpg.program", "false"),
    ("i18n.commitEncoding", "latin1"),
    ("i18n.logOutputEncoding", "latin1"),
    ("index.version", "4"),
    ("init.defaultBranch", "trunk"),
    ("init.defaultObjectFormat", "sha256"),
    ("init.templateDir", "HOOKS"),
    ("log.date", "iso"),
    ("log.follow", "true"),
    ("log.mailmap", "true"),
    ("log.showSignature", "true"),
    ("mailinfo.quotedCr", "strip"),
    ("mailinfo.scissors", "true"),
    ("merge.conflictStyle", "diff3"),
    ("notes.displayRef", "refs/notes/*"),
    ("rerere.enabled", "true"),
    ("safe.bareRepository", "explicit"),
    ("status.renames", "copies"),
    ("status.showUntrackedFiles", "all"),
    ("tag.gpgSign", "true"),
    ("transfer.fsckObjects", "true"),
    ("user.name", ""),
    ("user.signingKey", "none"),
    ("user.useConfigOnly", "true"),
]


@pytest.fixture
def helpers(tmp_path: Path) -> dict[str, str]:
    """Files that hostile settings point to."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "applypatch-msg"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    words = {"ATTRIBUTES": "* -diff text eol=crlf\n", "ORDER": "win.txt\nvllm/*\n"}
    words["EXCLUDES"] = "*.py\n"
    for name, text in words.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in words} | {"HOOKS": str(hooks)}


def meant(value: str, helpers: dict[str, str]) -> str:
    for name, path in helpers.items():
        value = value.replace(name, path)
    return value


@pytest.mark.parametrize(("key", "value"), HOSTILE)
def test_no_setting_changes_a_byte(
    world: World, clone: Path, helpers, quiet_git: Path, key: str, value: str
) -> None:
    value = meant(value, helpers)
    git(clone, "config", key, value)
    git(clone, "config", "--file", str(quiet_git / ".gitconfig"), key, value)
    before = contents(world.patches)
    for path in world.patches.glob("*.patch"):
        os.utime(path, (1, 1))
    outcome = apply(world, clone)
    assert outcome.tree == world.tree
    assert export(world, clone).written == ()
    assert contents(world.patches) == before


def all_settings(helpers: dict[str, str]) -> dict[str, str]:
    """Every hostile setting at once, as variables."""
    # Of those given twice the later one counts, and some stop every git at once.
    left_out = ("extensions.worktreeConfig",)
    rows = [(k, meant(v, helpers)) for k, v in HOSTILE if k not in left_out]
    names = {"GIT_CONFIG_COUNT": str(len(rows))}
    for number, (key, value) in enumerate(rows):
        names[f"GIT_CONFIG_KEY_{number}"] = key
        names[f"GIT_CONFIG_VALUE_{number}"] = value
    return names


def inherited(tmp_path: Path) -> dict[str, str]:
    """Variables that a hook or an alias leaves to what it starts."""
    return {
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_WORK_TREE": str(tmp_path),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tmp_path / "objects"),
        "GIT_COMMON_DIR": str(tmp_path / "common"),
        "GIT_NAMESPACE": "other",
        "GIT_PREFIX": "vllm/",
        "GIT_AUTHOR_NAME": "Somebody",
        "GIT_AUTHOR_EMAIL": "else@example.com",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_COMMITTER_NAME": "Somebody",
        "GIT_COMMITTER_EMAIL": "else@example.com",
        "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z",
        "GIT_EDITOR": "false",
        "GIT_SEQUENCE_EDITOR": "false",
        "GIT_PAGER": "false",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "-u9",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TEMPLATE_DIR": str(tmp_path),
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_GLOB_PATHSPECS": "1",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_REPLACE_REF_BASE": "refs/other",
        "GIT_SHALLOW_FILE": str(tmp_path / "shallow"),
        "GIT_GRAFT_FILE": str(tmp_path / "grafts"),
        "GIT_QUARANTINE_PATH": str(tmp_path),
        "GIT_CONFIG": str(tmp_path / "config"),
        "GIT_CONFIG_PARAMETERS": "'diff.noprefix'='true' 'core.bare'='true'",
        "GIT_ATTR_SOURCE": "HEAD",
        "GIT_TRACE": "1",
        "GIT_FLUSH": "1",
    }


def test_all_settings_and_variables_at_once(
    world: World, clone: Path, helpers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = apply(world, make_clone(world.upstream, tmp_path / "plain")).tip
    info = clone / ".git/info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("* -diff filter=nasty text eol=crlf\n")
    git(clone, "config", "filter.nasty.clean", "false")
    git(clone, "config", "filter.nasty.smudge", "false")
    git(clone, "config", "filter.nasty.required", "true")
    before, seen = contents(world.patches), seen_state(clone)
    for name, value in (all_settings(helpers) | inherited(tmp_path)).items():
        monkeypatch.setenv(name, value)
    outcome = apply(world, clone)
    assert outcome.tip == tip
    assert export(world, clone).written == ()
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    assert contents(world.patches) == before
    assert seen_state(clone) == seen


@pytest.mark.parametrize("home", ["", "/nowhere", None])
def test_no_home_and_no_identity(
    world: World, clone: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    before = contents(world.patches)
    assert apply(world, clone).tree == world.tree
    export(world, clone)
    assert contents(world.patches) == before


def test_replaced_and_grafted_history_is_not_seen(world: World, clone: Path) -> None:
    git(clone, "replace", "v0.32.0", "v0.32.0~1")
    (clone / ".git/info").mkdir(exist_ok=True)
    (clone / ".git/info/grafts").write_text(f"{world.pin}\n")
    before = contents(world.patches)
    assert apply(world, clone).tree == world.tree
    export(world, clone)
    assert contents(world.patches) == before


def test_a_new_commit_gets_a_name_and_a_table(world: World, applied: Path) -> None:
    (applied / "vllm/more.py").write_text("more = 1\n")
    git(applied, "add", "vllm/more.py")
    subject = "[ROCm][Kernel] Add more of what there is, in words that need a cut"
    git(applied, "commit", "-q", "-m", subject, "-m", "Body é")
    old = world.toml.read_text()
    done = export(world, applied)
    name = "0004-ROCm-Kernel-Add-more-of-what-there-is-in-words-that.patch"
    assert done.new == (name,)
    assert set(done.written) == {name, "series.toml"}
    new = world.toml.read_text()
    tree = git(applied, "rev-parse", "HEAD^{tree}")
    assert new.startswith(old.replace(world.tree, tree).rstrip("\n"))
    added = world.manifest.patch[-1]
    assert (added.title, added.series) == (subject, "tiny-dot")
    assert added.purpose == "Add more of what there is, in words that need a cut"
    assert added.upstream.state == "not submitted"
    assert done.tree == tree
    assert not apply(world, applied).moved
    assert export(world, applied).written == ()


def test_an_edited_commit_keeps_its_name(world: World, applied: Path) -> None:
    other = contents(world.patches)
    text = (applied / "vllm/new.py").read_text().replace("return 44", "return 45")
    (applied / "vllm/new.py").write_text(text)
    git(applied, "commit", "-q", "-a", "--amend", "--no-edit")
    done = export(world, applied)
    assert set(done.written) == {"0003-move-old.patch", "series.toml"}
    assert (
        contents(world.patches)["0001-fast-path.patch"]
        == (other["0001-fast-path.patch"])
    )
    assert not apply(world, applied).moved


def test_a_reworded_commit_keeps_its_table(world: World, applied: Path) -> None:
    git(applied, "commit", "-q", "--amend", "-m", "[Core] Rename old", "-m", "Body")
    done = export(world, applied)
    assert done.removed == ("0003-move-old.patch",)
    patch = world.manifest.patch[2]
    assert (patch.file, patch.title) == (
        "0003-Core-Rename-old.patch",
        "[Core] Rename old",
    )
    assert patch.purpose == "Moves old to new"


def test_a_dropped_commit_needs_prune(world: World, applied: Path) -> None:
    git(applied, "reset", "-q", "--hard", "HEAD~1")
    before = contents(world.patches)
    with pytest.raises(ExportError, match="no commit for 0003-move-old"):
        export(world, applied)
    assert contents(world.patches) == before
    done = export(world, applied, prune=True)
    assert done.removed == ("0003-move-old.patch",)
    text = world.toml.read_text()
    assert "move-old" not in text
    assert "# A comment that stays." in text
    assert "# a comment inside" in text
    assert "[[patch]] # the first" in text
    assert [p.file for p in world.manifest.patch] == [
        "0001-fast-path.patch",
        "0002-rework-core.patch",
    ]


def test_dropping_the_first_renumbers_the_rest(world: World, clone: Path) -> None:
    git(clone, "config", "user.name", "D")
    git(clone, "config", "user.email", "d@e")
    git(clone, "switch", "-q", "-c", "rocm-series", "v0.32.0")
    (clone / "one").write_text("1\n")
    commit(clone, "One\n")
    (clone / "two").write_text("2\n")
    commit(clone, "Two\n")
    export(world, clone, prune=True)
    assert [p.title for p in world.manifest.patch] == ["One", "Two"]
    git(clone, "rebase", "-q", "--onto", "v0.32.0", "HEAD~1")
    done = export(world, clone, prune=True)
    assert [p.file for p in world.manifest.patch] == ["0001-Two.patch"]
    assert set(done.removed) == {"0001-One.patch", "0002-Two.patch"}


def test_an_empty_branch_prunes_all(world: World, applied: Path) -> None:
    git(applied, "reset", "-q", "--hard", "v0.32.0")
    export(world, applied, prune=True)
    assert world.manifest.patch == []
    assert list(world.patches.glob("*.patch")) == []
    assert not apply(world, applied).moved


def refused(world: World, path: Path, match: str) -> None:
    before = contents(world.patches)
    with pytest.raises(SeriesError, match=match):
        export(world, path)
    assert contents(world.patches) == before


def test_what_is_not_a_series_is_refused(world: World, applied: Path) -> None:
    tip = git(applied, "rev-parse", "HEAD")
    (applied / "README.md").write_text("edited\n")
    refused(world, applied, r"uncommitted changes: README\.md")
    git(applied, "add", "README.md")
    refused(world, applied, r"uncommitted changes: README\.md")
    git(applied, "reset", "-q", "--hard")

    git(applied, "commit", "-q", "--allow-empty", "-m", "Nothing")
    refused(world, applied, "Nothing.* changes nothing")
    git(applied, "reset", "-q", "--hard", tip)

    git(applied, "merge", "-q", "--no-edit", "mine")
    refused(world, applied, "is a merge")
    git(applied, "reset", "-q", "--hard", tip)

    (applied / "twice").write_text("2\n")
    git(applied, "add", "twice")
    git(applied, "commit", "-q", "-m", LONG)
    refused(world, applied, "same subject")
    git(applied, "reset", "-q", "--hard", "main")
    refused(world, applied, "no commit for")
    git(applied, "reset", "-q", "--hard", "v0.32.0~1")
    refused(world, applied, "does not stand on the pinned")


def test_a_rebase_under_way_is_refused(world: World, applied: Path) -> None:
    editor = "sed -i s/^pick/edit/"
    git(applied, "-c", f"sequence.editor={editor}", "rebase", "-q", "-i", "HEAD~1")
    refused(world, applied, "in the middle of a rebase")


def test_edits_elsewhere_do_not_matter(world: World, applied: Path) -> None:
    git(applied, "switch", "-q", "mine")
    (applied / "README.md").write_text("edited\n")
    assert export(world, applied).written == ()


def test_commits_beside_the_branch_in_our_tree_are_named(
    world: World, applied: Path
) -> None:
    git(applied, "switch", "-q", "--detach")
    export(world, applied, own=True)
    (applied / "README.md").write_text("edited\n")
    commit(applied, "Beside\n")
    with pytest.raises(ExportError, match="not on rocm-series"):
        export(world, applied, own=True)


@pytest.mark.parametrize(
    "body",
    [
        "First\n---\nSecond",
        "diff --git a/x b/x\nIndex: no",
        "From: Somebody Else <else@example.com>\n\nText",
        "Index: what",
    ],
)
def test_a_message_that_a_mail_would_cut_is_refused(
    world: World, applied: Path, body: str
) -> None:
    (applied / "more").write_text("more\n")
    commit(applied, f"More\n\n{body}\n")
    refused(world, applied, "would lose a part|does not survive")


def amend(path: Path, author: str) -> None:
    words = ["commit", "-q", "--amend", "--no-edit", "--cleanup=verbatim"]
    git(path, *words, "--author", author)


def test_an_author_that_git_cannot_mail_is_refused(world: World, applied: Path) -> None:
    amend(applied, "Ål O. Name <a@example.com>")
    export(world, applied)
    amend(applied, 'Ål "Nick" Name <a@example.com>')
    refused(world, applied, "would lose a part of its message, author")


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("[a] [b] Brackets [c]", ""),
        ("Re: [PATCH] like a mail", "Signed-off-by: A <a@b>\nCo-authored-by: é <e@b>"),
        ("Ünï 漢字 " + "long " * 30 + "end", "漢字\n\n    code\n\ttab\n> quoted"),
        ("a", "From here on, a line\n>From there\nTo: nobody"),
        ("#hash", "# a comment\n#1"),
    ],
)
def test_messages_survive(
    world: World, applied: Path, subject: str, body: str, tmp_path: Path
) -> None:
    (applied / "more").write_text("more\n")
    text = f"{subject}\n\n{body}\n" if body else f"{subject}\n"
    commit(applied, text)
    amend(applied, 'A. "Nick" O\'Name <a.b+c@example.com>')
    export(world, applied)
    other = make_clone(world.upstream, tmp_path / "other")
    apply(world, other)
    form = "--format=%an <%ae> %ad %n%B"
    assert git(other, "log", "-1", form, "rocm-series") == git(
        applied, "log", "-1", form
    )


def test_an_export_repairs_files_that_do_not_fit(world: World, applied: Path) -> None:
    before = contents(world.patches)
    (world.patches / "0001-fast-path.patch").write_text("damaged\n")
    (world.patches / "0002-rework-core.patch").unlink()
    export(world, applied)
    assert contents(world.patches) == before


def test_a_file_that_no_table_lists_is_left_alone(world: World, applied: Path) -> None:
    (world.patches / "0009-notes.patch").write_text("mine\n")
    done = export(world, applied)
    assert (world.patches / "0009-notes.patch").read_text() == "mine\n"
    assert "no [[patch]] lists it" in done.note


def test_a_missing_symbol_is_named(world: World, applied: Path) -> None:
    text = (applied / "vllm/ops.py").read_text().replace("def fast", "def quick")
    (applied / "vllm/ops.py").write_text(text)
    git(applied, "commit", "-q", "-a", "-m", "Rename fast")
    done = export(world, applied)
    assert "'fast'" in done.note
    assert "0004-Rename-fast.patch" in done.written


def test_an_export_counts_as_a_record(world: World, applied: Path) -> None:
    (applied / "more").write_text("more\n")
    commit(applied, "More\n")
    export(world, applied)
    git(applied, "switch", "-q", "mine")
    shutil.copytree(world.patches, world.patches.parent / "kept")
    text = world.toml.read_text()
    (world.patches / "0004-More.patch").unlink()
    head = text[: text.index('[[patch]]\nfile = "0004')]
    old = git(applied, "rev-parse", "rocm-series^{tree}")
    world.toml.write_text(head.replace(old, world.tree))
    assert apply(world, applied).moved
    assert len(subjects(applied)) == 3


def test_on_another_tree_the_tree_id_is_not_made_up(
    world: World, applied: Path
) -> None:
    text = world.toml.read_text()
    pin_tree = world.manifest.pin.tree
    world.toml.write_text(text.replace(pin_tree, "b" * 40))
    assert export(world, applied).tree == world.tree
    (applied / "more").write_text("more\n")
    commit(applied, "More\n")
    done = export(world, applied)
    assert done.tree == world.manifest.series.tree == ""


def test_the_pinned_tree_gives_the_tree_id(
    world: World, applied: Path, tmp_path: Path
) -> None:
    stand_in = make_clone(world.upstream, tmp_path / "pinned")
    (applied / "more").write_text("more\n")
    commit(applied, "More\n")
    manifest = world.manifest
    fake = manifest.pin.model_copy(update={"tree": "b" * 40})
    manifest = manifest.model_copy(update={"pin": fake})
    repo, pinned = Repository.find(applied), Repository.find(stand_in)
    done = export_series(
        repo, manifest, own=False, prune=False, pinned=pinned, say=print
    )
    assert done.tree == git(applied, "rev-parse", "HEAD^{tree}")


def test_a_full_disk_leaves_patches_as_they_were(
    world: World, applied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (applied / "more").write_text("more\n")
    commit(applied, "More\n")
    before = contents(world.patches)

    write = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if world.patches in self.parents:
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ExportError, match="No space left"):
        export(world, applied)
    monkeypatch.undo()
    assert contents(world.patches) == before


def test_without_a_branch(world: World, clone: Path) -> None:
    refused(world, clone, "no branch rocm-series")


def test_a_broken_table_is_refused(world: World, applied: Path) -> None:
    world.toml.write_text(world.toml.read_text().replace("purpose", "porpoise", 1))
    with pytest.raises(ManifestError, match="porpoise"):
        export(world, applied)
