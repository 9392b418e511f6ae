"""Sentences stay short: comments of the crates and pages below have none of more than 25 words."""

import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import words

# Only grows. What is left out has longer sentences still: scripts/words.py names them.
CLEAN = [
    "bench",
    "crates/base",
    "crates/capi",
    "crates/cli",
    "crates/client",
    "crates/collect",
    "crates/datatype",
    "crates/device",
    "crates/faults",
    "crates/fuse",
    "crates/host",
    "crates/layout",
    "crates/meta",
    "crates/mpiio",
    "crates/pyapi",
    "crates/rpc",
    "crates/sched",
    "crates/sched-capi",
    "crates/server",
    "crates/sim",
    "crates/store",
    "crates/trace",
    "crates/wire",
    "docs",
    "examples",
    "experiments",
    "fuzz",
    "interpose",
    "mpi",
    "python",
    "tests",
]
LONG = " ".join(["word"] * 26)


@pytest.mark.parametrize("name", CLEAN)
def test_sentences_are_short(name):
    assert words.sources([name]) != [], f"no files in {name}"
    found = list(words.too_long([name]))
    assert found == [], "\n".join(["split these sentences:", *found])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.rs", f"//! Short.\n//!\n//! {LONG}.\n", 3),
        ("a.rs", f"/// Short. {LONG}\nfn f() {{}}\n", 1),
        ("a.rs", f"fn f() {{}} // {LONG}\n", 1),
        ("a.rs", f'let s = r#"" // "#; let c = \'"\'; // {LONG}\n', 1),
        ("a.h", f"/* Short.\n * {LONG} */\n", 2),
        ("a.py", f'def f():\n    """Short.\n\n    {LONG}\n    """\n', 4),
        ("a.py", f"# {LONG}\n", 1),
        ("a.md", f"Short.\n\n- Short.\n- {LONG}\n", 4),
        ("a.md", f"[{LONG}](x.md)\n", 1),
        # The words of one sentence on two lines; the line is that of its beginning.
        ("a.rs", f"// Short. A\n// {LONG}\n", 1),
        ("a.md", f"A word, e.g. {LONG}\n", 1),
    ],
)
def test_long_sentences_are_found(tmp_path, name, text, line):
    path = tmp_path / name
    path.write_text(text)
    assert [found[0] for found in words.sentences(path) if found[1] > words.LIMIT] == [line]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", f'let s = "// {LONG}"; let t = r#"" // {LONG}"#;\n'),
        ("a.rs", f"//! Short:\n//!\n//! ```\n//! {LONG}\n//! ```\n"),
        ("a.rs", f"//! Short:\n//!\n//!     {LONG}\n"),
        ("a.rs", "// " + " ".join(["word"] * 20) + ".\n// " + " ".join(["word"] * 20) + ".\n"),
        ("a.rs", "// " + " ".join(["word"] * 20) + "\n\n// " + " ".join(["word"] * 20) + "\n"),
        ("a.rs", f'// It says `{LONG}` or "{LONG}".\n'),
        ("a.py", f'text = """{LONG}"""\n'),
        ("a.md", f"- Item.\n\n# Files\n\n    {LONG}\n"),
        ("a.c", f"/* Short:\n *\n *   name  {LONG}\n *   more  {LONG}\n *\n * Short. */\n"),
        ("a.md", f"# {LONG}\n\n| a |\n| --- |\n| {LONG} |\n\n```\n{LONG}\n```\n\n<!-- {LONG} -->\n"),
    ],
)
def test_what_is_no_sentence_is_skipped(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert [found for found in words.sentences(path) if found[1] > words.LIMIT] == []
