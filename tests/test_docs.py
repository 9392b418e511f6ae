"""The documents: links lead somewhere, pages stay short, and what they name is in the code."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT, penstock


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a working tree of git")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def pages():
    return [name for name in tracked() if name.endswith(".md")]


def prose(text):
    """A page without its code blocks, which may hold what looks like a link or a heading."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors that headings of a page get: lower case, spaces as hyphens, punctuation left out."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(text), re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(slug)
    return found


def test_links_lead_somewhere():
    broken = []
    for name in pages():
        page = ROOT / name
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(page.read_text())):
            if "://" in target or target.startswith("mailto:"):
                continue
            path = page.parent / target if target else page
            if not path.exists():
                broken.append(f"{name}: {target}{elsewhere(target)}")
            elif anchor and anchor not in anchors(path.read_text()):
                broken.append(f"{name}: {target}#{anchor}: no such heading")
    assert broken == []


def elsewhere(target):
    """Where a page of that name is, for whoever follows an old path."""
    there = [str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob(Path(target).name)]
    return f": it is {', '.join(there)}" if target.endswith(".md") and there else ""


def test_pages_that_the_code_names_are_there():
    """Comments, help texts, scripts and tests name pages as docs/…/NAME.md."""
    named = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md\b")
    missing, count = [], 0
    for name in tracked():
        if name.endswith((".md", ".lock", ".json", ".csv")):
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        for word in named.findall(text):
            count += 1
            if not (ROOT / word).exists():
                missing.append(f"{name}: {word}{elsewhere(word)}")
    assert count > 30, "the pattern finds what it is for"
    assert missing == []


def test_pages_of_promises_are_as_written():
    done = subprocess.run(
        [ROOT / "scripts" / "promises.py", "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


FUNCTION = re.compile(
    r"^\s*(?:pub(?:\(crate\))? )?(?:fn|def)\s+(\w+)|^(?:static )?(?:void|int) (\w+)\(|^\s*subroutine (\w+)",
    re.MULTILINE,
)


def rows_of_promises():
    for page in tomllib.loads((ROOT / "docs" / "promises" / "promises.toml").read_text())["page"]:
        for section in page["section"]:
            yield from ((page["file"], row[-1]) for row in section["rows"])


def test_tests_of_promises_exist():
    """In the last column files are named from the root of the tree, and tests in backticks after their file."""
    word = re.compile(r"`([a-z][a-z0-9_]*)`|((?<![\w/.-])(?:\.?[\w-]+/)+[\w.-]*\w|(?<![\w/.-])[\w-]+\.(?:rs|py|c)\b)")
    wrong, files, names = [], 0, 0
    for page, shown in rows_of_promises():
        functions, program = set(), False
        for name, path in word.findall(re.sub(r"\]\([^)]*\)", "]", shown)):
            if path and ("." in Path(path).name or path.startswith(("crates/", "mpi/", "tests/", "python/"))):
                files += 1
                there, program = ROOT / path, path.endswith(".c")  # whose functions may have names of one word
                if not there.exists():
                    wrong.append(f"{page}: {path}: no such file")
                elif there.is_file():
                    functions = {next(filter(None, found)) for found in FUNCTION.findall(there.read_text())}
            elif "_" in name or (name and functions and program):
                names += 1
                if name not in functions:
                    wrong.append(f"{page}: {name} is no function of the file before it, in: {shown}")
    assert files > 200 and names > 150, "the pattern finds what it is for"
    assert wrong == [], "\n".join(wrong)


def test_names_of_the_glossary_are_in_the_code():
    wrong, count = [], 0
    for row in re.findall(r"^\| (.*) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE):
        cells = row.split(" | ")
        if len(cells) != 3:
            continue  # of the words that lead to pages
        word, _, code = cells
        text = ""
        for name, path in re.findall(r"`(\w+)`|([\w.-]+(?:/[\w.-]+)+)", code):
            count += 1
            if path and not (ROOT / path).is_file():
                wrong.append(f"{word}: {path}: no such file")
            elif path:
                text = (ROOT / path).read_text()
            elif not re.search(rf"\b{name}\b", text):
                wrong.append(f"{word}: {name} is not in the file before it")
    assert count > 80, "the pattern finds what it is for"
    assert wrong == [], "\n".join(wrong)


# The field's words, and ours, that `--help` uses and that are not plain English.
WORDS = """access pattern, administrator, aggregation, aggregator, audit log, authority, capability, case, client key, cohort,
credential, damaged object, data server, deployment, embedded deployment, fault injection, garbage collection, generation, hard limit,
grace period, hint, host credential, launcher, layout, manifest, metadata server, method, modelled device, object, passthrough,
planted bug, prediction, profile, program, quantum, quota, range lock, ratio, revocation, scenario, scheduling algorithm, seed,
shortcut, slice, soft limit, staging, staleness, starvation bound, store, stripe unit, trace, two-phase, virtual request"""


def test_words_of_the_commands_are_in_the_glossary():
    page = (ROOT / "docs" / "glossary.md").read_text()
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", page, re.MULTILINE)]
    known = {word.strip() for row in rows if len(row) == 3 for word in row[0].split(",")}
    known |= {word for row in rows if len(row) == 3 for word in re.findall(r"\*([\w -]+)\*", row[1])}
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", penstock("--help").out.split("Commands:")[1], re.MULTILINE)
    told = "".join(penstock(c, "--help", check=False).out for c in commands if c not in ("help", "layout", "generate"))
    text = " ".join((told + "".join((ROOT / name).read_text() for name in pages())).lower().split())
    words = [" ".join(word.split()) for word in WORDS.split(",")]
    assert len(commands) > 20 and len(words) > 40
    assert [word for word in words if word not in known] == [], "they need a row of the glossary"
    assert [word for word in words if word not in text] == [], "nobody uses these"


# Of the tests and the build, not of users.
INTERNAL = re.compile(r"PENSTOCK_(?:TEST_\w+|UPDATE_DOCS|PROFILE|VENV|EXPECTED|ABI|STANDARD_ABI)")


def test_variables_that_pages_name_are_read():
    """Each PENSTOCK_* variable of a page is in the code, and each that the code reads is in the table of variables."""
    variable = re.compile(r"\bPENSTOCK_[A-Z]+(?:_[A-Z]+)*\b")
    code, named = set(), []
    for name in tracked():
        if name.startswith(("crates/", "interpose/src/", "mpi/src/", "python/penstock/")) and name.endswith(
            (".rs", ".c", ".py")
        ):
            code |= set(re.findall(r'"(PENSTOCK_[A-Z]+(?:_[A-Z]+)*)"', (ROOT / name).read_text()))
        if name.endswith(".md"):
            named += [(name, word) for word in variable.findall((ROOT / name).read_text())]
    assert len(named) > 20 and len(code) > 10
    assert [(name, word) for name, word in named if word not in code and not INTERNAL.fullmatch(word)] == []
    table = set(re.findall(r"^\| `(PENSTOCK_\w+)` \|", (ROOT / "docs/use/launchers.md").read_text(), re.MULTILINE))
    assert {word for word in code if not INTERNAL.fullmatch(word)} - table == set()


def test_hints_that_pages_name_are_known():
    source = "".join(p.read_text() for p in (ROOT / "crates" / "mpiio" / "src").rglob("*.rs"))
    known = set(re.findall(r'"((?:penstock|romio|cb|ind|striping)_\w+)"', source))
    # Figures for Prometheus have such names, too; test_top compares them with the page.
    metrics = re.findall(r'"(penstock_\w+)"', (ROOT / "crates/cli/src/metrics/mod.rs").read_text())
    known |= {name + end for name in metrics for end in ("", "_total")}
    hint = re.compile(r"`((?:penstock|romio|cb|ind|striping)_\w+)(?:=\w+)?`")
    named = [(name, word) for name in pages() for word in hint.findall((ROOT / name).read_text())]
    assert len(named) > 20 and len(known) > 20
    crates = {p.name.replace("-", "_") for p in (ROOT / "crates").iterdir()}
    unknown = [(name, word) for name, word in named if word not in known]
    assert [(n, w) for n, w in unknown if w.removeprefix("penstock_") not in crates] == []


def test_pages_are_short():
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in pages()}
    assert {name: n for name, n in lengths.items() if n > 250} == {}, "split them"


def test_files_that_pages_name_are_there():
    """Paths from the root of the tree; in the README of a crate also from the crate. Decisions may tell of what was."""
    path = re.compile(
        r"(?<![\w./-])((?:crates|tests|python|scripts|examples|experiments|bench|mpi|contrib|packaging|fuzz|src)/[\w./-]*\w)(?![\w/.-]*[*{…])"
    )
    missing, count = [], 0
    for name in pages():
        if name.startswith("docs/decisions/"):
            continue
        for word in path.findall((ROOT / name).read_text()):
            count += 1
            if word.startswith("src/") and not name.startswith("crates/"):
                continue  # of another project
            if not any((base / word).exists() for base in (ROOT, (ROOT / name).parent)):
                missing.append(f"{name}: {word}")
    assert count > 300, "the pattern finds what it is for"
    assert missing == [], "\n".join(missing)


def test_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [
        (name, word)
        for name in pages()
        for word in re.findall(r"(?:`|^    )make ([a-z][\w-]*)", (ROOT / name).read_text())
    ]
    assert len(named) > 20
    assert [(name, word) for name, word in named if word not in targets] == []


def test_commands_and_options_that_pages_name_exist():
    """`penstock COMMAND … --option` in backticks or at the begin of an indented line, up to `--`."""
    shown = re.compile(r"(?:`|^    )penstock ([a-z][a-z-]*)((?: (?!-- )[^\s`|;]+)*)", re.MULTILINE)
    parents = {"device", "trace", "quota", "credential"}  # some of their words are commands of their own
    named = {}
    for name in pages():
        if name.startswith("docs/decisions/"):
            continue
        for command, rest in shown.findall((ROOT / name).read_text()):
            named.setdefault(command, set()).update(
                (name, option) for option in re.findall(r"(?<= )--[a-z][\w-]*", rest)
            )
    assert len(named) > 15 and sum(map(len, named.values())) > 40, "the pattern finds what it is for"
    wrong = []
    for command, options in sorted(named.items()):
        told = penstock(command, "--help", check=False)
        if told.code != 0:
            wrong.append(f"penstock {command}: no such command")
            continue
        text = told.out
        if command in parents:
            words = re.findall(r"^  ([a-z][a-z-]*)  ", text.split("Commands:")[-1], re.MULTILINE)
            text += "".join(penstock(command, word, "--help", check=False).out for word in words if word != "help")
        wrong += [f"{name}: penstock {command} {option}" for name, option in sorted(options) if option not in text]
    assert wrong == [], "\n".join(wrong)
