#!/usr/bin/env python3
"""Writes docs/promises/*.md from docs/promises/promises.toml; --check only tells whether they are as they would be written."""

import argparse
import sys
import tomllib
from pathlib import Path

PAGES = Path(__file__).resolve().parent.parent / "docs" / "promises"
SOURCE = PAGES / "promises.toml"


def row(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(about):
    lines = [f"# {about['title']}: promises and tests", ""]
    lines += ["<!-- written by scripts/promises.py from promises.toml -->", ""]
    lines += [
        "Each row is a promise, and the test that fails or the command that tells when it is broken. `make test` runs the"
    ]
    lines += ["tests, `make test-all` the long ones too. Speed is judged by no test; `make bench` measures it."]
    if "intro" in about:
        lines += ["", about["intro"]]
    for section in about["section"]:
        if len(about["section"]) > 1:
            lines += ["", f"## {section['title']}"]
        lines += ["", row(section["columns"]), row(["---"] * len(section["columns"]))]
        for cells in section["rows"]:
            if len(cells) != len(section["columns"]):
                sys.exit(f"{SOURCE}: a row of {section['title']} has {len(cells)} cells: {cells}")
            lines.append(row(cells))
    return "\n".join(lines) + "\n"


def index(pages):
    lines = ["# Promises and the tests that show them", ""]
    lines += ["<!-- written by scripts/promises.py from promises.toml -->", ""]
    lines += [
        "To add a promise, add a row to [promises.toml](promises.toml) and run `scripts/promises.py`. tests/test_docs.py checks"
    ]
    lines += ["that each file and test in the last column exists.", ""]
    lines += [row(["page", "promises"]), row(["---", "---:"])]
    for about in pages:
        count = sum(len(section["rows"]) for section in about["section"])
        lines.append(row([f"[{about['title']}]({about['file']}.md)", str(count)]))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    pages = tomllib.loads(SOURCE.read_text())["page"]
    texts = {"README": index(pages)} | {about["file"]: page(about) for about in pages}
    stale = []
    for name, text in texts.items():
        path = PAGES / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            stale.append(str(path))
            if not args.check:
                path.write_text(text)
    if args.check and stale:
        sys.exit(f"run scripts/promises.py; not as written: {', '.join(stale)}")


if __name__ == "__main__":
    main()
