#!/usr/bin/env python3
"""Names sentences over a number of words, as FILE:LINE: WORDS words: SENTENCE.

Reads the comments of Rust and C, the docstrings and comments of Python, and the prose of Markdown. Code blocks, indented
blocks, tables, headings and the targets of links are skipped. A code span, a name in link brackets and a quotation count
as one word each.
Without arguments it reads every such file that git tracks. Exit status: 1 when a sentence is too long, else 0.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

LIMIT = 25
ROOT = Path(__file__).resolve().parent.parent
# Comments of Rust and C, and what may hold "//" without being one: strings, raw strings and characters.
LEXEME = re.compile(
    r"""(?P<line>//[^\n]*) | (?P<block>/\*.*?\*/)
    | (?<!\w)[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)
    | "(?:\\.|[^"\\])*"
    | '(?:\\.[^'\n]*|[^\\'\n])'""",
    re.DOTALL | re.VERBOSE,
)
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
# What counts as one word: a code span, an image or link by its text, an address, a quotation.
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?")
QUOTATION = re.compile(r"(?<!\w)[\"“][^\"“”]+[\"”]")
ADDRESS = re.compile(r"<?\w+://[^\s>)]+>?")
# A full stop after these ends no sentence.
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|et al|cf|vs|etc|[Ff]igs?|[Ss]ec|[Ss]ect|[Nn]o|pp?|[Vv]ol|Proc|Conf|eds?))\.$"
)
END = re.compile(r"(?<!\.)[.!?][\"”')\]*_]*(?=\s|$)")


def comments(text):
    """The comments of Rust or C: lists of (line, text) without their markers, one list per run of lines."""
    runs, previous = [], None
    for found in LEXEME.finditer(text):
        kind = found.lastgroup if found.lastgroup in ("line", "block") else None
        if kind is None:
            continue
        line = text.count("\n", 0, found.start()) + 1
        if kind == "block":
            body = found.group()[2:-2].split("\n")
            runs.append([(line + at, re.sub(r"^\s*[*!]+ ?", "", row).rstrip()) for at, row in enumerate(body)])
            previous = None
            continue
        marker, body = re.match(r"(//[/!]?)(.*)", found.group()).groups()
        start = text.rfind("\n", 0, found.start()) + 1
        key = (text[start : found.start()], marker)
        row = (line, body.removeprefix(" "))
        if previous == (key, line - 1) and not key[0].strip():
            runs[-1].append(row)
        else:
            runs.append([row])
        previous = (key, line)
    return runs


def python(text):
    """The docstrings and comments of Python, in the same form."""
    runs = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            at, rows = node.body[0].lineno, node.body[0].value.value.split("\n")
            indent = min((len(row) - len(row.lstrip()) for row in rows[1:] if row.strip()), default=0)
            runs.append([(at, rows[0]), *((at + 1 + n, row[indent:]) for n, row in enumerate(rows[1:]))])
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            row = (token.start[0], token.string.lstrip("#").removeprefix(" "))
            if previous == (token.start[0] - 1, token.start[1]):
                runs[-1].append(row)
            else:
                runs.append([row])
            previous = token.start
    return runs


def markdown(text):
    """A page as one run."""
    return [list(enumerate(re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL).split("\n"), 1))]


def blank(found):
    return "\n" * found.group().count("\n")


def paragraphs(run):
    """The prose of a run: lists of (line, text), one list per paragraph or item of a list."""
    found, fenced, after_blank, listed = [], False, True, False
    open_ = False
    for line, row in run:
        if FENCE.match(row):
            fenced, open_ = not fenced, False
            continue
        if fenced:
            continue
        if not row.strip():
            after_blank, open_ = True, False
            continue
        item = ITEM.match(row)
        indented = row.startswith("  ") and not item and after_blank and not listed
        if indented or re.match(r"\s*(\||#+ |=+$|-+$|\[[^\]]+\]: )", row):
            open_, listed = False, listed and row.startswith(" ")
            continue
        if item:
            found.append([(line, row[item.end() :])])
            listed = True
        elif open_:
            found[-1].append((line, row.strip()))
        else:
            found.append([(line, row.strip())])
            listed = listed and row.startswith(" ")
        after_blank, open_ = False, True
    return found


def one_word(found):
    """A word as long as what it stands for, so that places in the text stay."""
    return "X" + "x" * (len(found.group()) - 1)


def plain(text):
    text = CODE.sub(one_word, text)
    text = ADDRESS.sub(one_word, text)
    text = LINK.sub(lambda found: found.group(1).ljust(len(found.group())), text)
    return QUOTATION.sub(one_word, text)


def spans(text):
    """Where sentences begin and end in a paragraph's text."""
    masked, start = plain(text), 0
    for end in END.finditer(masked):
        if ABBREVIATION.search(masked[start : end.start() + 1]):
            continue
        yield start, end.end()
        start = end.end()
    if masked[start:].strip():
        yield start, len(text)


def words(sentence):
    return sum(1 for word in plain(sentence).split() if re.search(r"\w", word))


def sentences(path):
    """(line, words, text) of each sentence of a file."""
    text = path.read_text()
    read = {".md": markdown, ".py": python}.get(path.suffix, comments)
    for run in read(text):
        for paragraph in paragraphs(run):
            joined = " ".join(row for _, row in paragraph)
            for start, end in spans(joined):
                start += len(joined[start:end]) - len(joined[start:end].lstrip())
                passed = 0
                for line, row in paragraph:
                    passed += len(row) + 1
                    if start < passed:
                        break
                yield line, words(joined[start:end]), joined[start:end]


def sources(names):
    """Files among names and in directories among them, as git knows them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in (".rs", ".c", ".h", ".py", ".md") and path.is_file()]


def too_long(names, limit=LIMIT):
    """FILE:LINE: WORDS words: SENTENCE for each sentence over the limit."""
    for path in sources(names):
        for line, count, text in sentences(path):
            if count > limit:
                yield f"{path.relative_to(ROOT)}:{line}: {count} words: {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["."], help="files and directories of the tree (default: all)")
    parser.add_argument(
        "--words", type=int, default=LIMIT, metavar="N", help=f"the longest a sentence may be (default: {LIMIT})"
    )
    args = parser.parse_args()
    found = list(too_long([str(Path(path).resolve()) for path in args.paths], args.words))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
