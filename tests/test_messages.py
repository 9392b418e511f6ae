"""Files, make targets, commands and options that messages and help texts name exist."""

import re
import subprocess

import pytest
from conftest import ROOT, penstock

STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
COMMAND = re.compile(r"`penstock ((?:trace )?[a-z][\w-]*)([^`]*)`")


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a working tree of git")
    return listed.stdout.splitlines()


def messages(files):
    """(file, text) of what programs may say: strings of the crates and of the library, help texts, Python's strings."""
    for name in files:
        if not name.endswith((".rs", ".c", ".py")) or not name.startswith(("crates/", "mpi/", "python/penstock/")):
            continue
        if "/tests" in name or "_tests" in name or "/examples/" in name:
            continue
        text = (ROOT / name).read_text().split("#[cfg(test)]\nmod ")[0]
        if name.startswith("crates/cli/"):
            # Doc comments of options are their help.
            yield from ((name, line) for line in re.findall(r"^\s*/// (.*)$", text, re.MULTILINE))
        text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        yield from ((name, string) for string in STRING.findall(text))


def test_what_messages_name_is_there():
    files = tracked()
    tops = sorted({name.split("/")[0] for name in files if "/" in name})
    path = re.compile(rf"(?<![\w/.-])((?:{'|'.join(map(re.escape, tops))})/[\w./-]*\w|[a-z]\w*\.md)\b")
    target = re.compile(r"`make ([a-z][\w-]*)`")
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named, missing, commands = 0, [], {}
    for name, text in messages(files):
        for word in path.findall(text):
            named += 1
            if not (ROOT / word).exists():
                missing.append(f"{name}: {word}")
        for word in target.findall(text):
            named += 1
            if word not in targets:
                missing.append(f"{name}: make {word}")
        for command, rest in COMMAND.findall(text):
            options = commands.setdefault(command, set())
            options |= {(name, option) for option in re.findall(r"(?<!\S)--[a-z][\w-]*", rest)}
    assert named > 5 and len(commands) > 10, "the patterns find what they are for"
    for command, options in sorted(commands.items()):
        told = penstock(*command.split(), "--help", check=False)
        if told.code != 0:
            missing.append(f"penstock {command}")
        missing += [f"{name}: penstock {command} {option}" for name, option in options if option not in told.out]
    assert missing == []


def test_troubleshooting_has_the_words_of_messages():
    """Each message of the page is a part of one that programs say."""
    page = (ROOT / "docs" / "use" / "troubleshooting.md").read_text()
    told = re.findall(r"^\| `([^`]*)` \|", page, re.MULTILINE)
    said = [re.sub(r"\\\n\s*", "", text) for _, text in messages(tracked())]
    assert len(told) > 20
    strange = [words for words in told if not any(words in re.sub(r"\{\w+\}", "{}", text) for text in said)]
    assert strange == []
