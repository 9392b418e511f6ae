"""The documents: links lead somewhere, pages stay short, and what they name is in the code."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT


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
