#!/usr/bin/env python3
"""Writes the crates that the packages hold, with their licences and the texts of those: packaging/licences.py [--all] [--debian] > FILE

Asks `cargo metadata` what is linked into what packaging/files.txt names; with --all, for every crate of Cargo.lock. Fails for
a crate that names no licence. With --debian the Apache License 2.0 is named where Debian has it, as its policy asks.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What is built for packages, the Python wheel included.
SHIPPED = ("penstock-cli", "penstock-capi", "penstock-sched-capi", "penstock-pyapi")
# The Apache License 2.0, without its appendix, which authors fill in.
APACHE = re.compile(r"Apache License\s+Version 2\.0, January 2004.*?END OF TERMS AND CONDITIONS", re.DOTALL)
DEBIAN_APACHE = "Apache License 2.0: /usr/share/common-licenses/Apache-2.0"
# Files that hold a licence begin so, in any case.
TEXTS = ("license", "licence", "copying", "notice", "unlicense")


def metadata():
    """What `cargo metadata` says. Where only this system's crates were fetched, it fetches those of other systems, too."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for more in (["--offline"], []):
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout)
    sys.exit(
        f"packaging/licences.py: `{' '.join(command)}` failed; on a host with a network `cargo fetch` brings what it needs\n"
        f"{done.stderr}"
    )


def linked(found):
    """Identifiers of the packages that are linked into what is shipped."""
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    todo = [p["id"] for p in found["packages"] if p["name"] in SHIPPED and p["source"] is None]
    seen = set()
    while todo:
        package = todo.pop()
        if package not in seen:
            seen.add(package)
            for dep in nodes[package]["deps"]:
                if any(kind["kind"] is None and not other_system(kind["target"]) for kind in dep["dep_kinds"]):
                    todo.append(dep["pkg"])
    return seen


def other_system(target):
    """Whether a dependency's condition leaves Linux out."""
    return target is not None and "windows" in target and "not(" not in target


def main():
    found = metadata()
    chosen = {p["id"] for p in found["packages"]} if "--all" in sys.argv[1:] else linked(found)
    crates = sorted(
        (p for p in found["packages"] if p["id"] in chosen and p["source"]), key=lambda p: (p["name"], p["version"])
    )
    nameless = [p["name"] for p in crates if not (p["license"] or p["license_file"])]
    if nameless:
        sys.exit(
            f"packaging/licences.py: no licence in Cargo.toml of {', '.join(nameless)}: leave these crates out, or ask their authors"
        )
    print(
        "Penstock is under the Apache License 2.0. It holds Rust's standard library (MIT OR Apache-2.0), in "
        "tarballs LLVM's libunwind (Apache-2.0 WITH LLVM-exception),\nand these crates, each under the licence beside it.\n"
    )
    for p in crates:
        print(f"{p['name']} {p['version']}: {p['license'] or 'see its text'}")
    texts = {}
    for p in crates:
        for file in sorted(Path(p["manifest_path"]).parent.iterdir()):
            if file.is_file() and file.name.lower().startswith(TEXTS):
                text = file.read_text(errors="replace").strip()
                if "--debian" in sys.argv[1:]:
                    text = APACHE.sub(DEBIAN_APACHE, text)
                digest = hashlib.sha256(" ".join(text.split()).encode()).digest()
                texts.setdefault(digest, (text, []))[1].append(f"{p['name']} {p['version']}")
    for text, names in texts.values():
        print(f"\n{'=' * 100}\nOf {', '.join(names)}:\n\n{text}")


main()
