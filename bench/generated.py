"""FLASH-IO and S3D-IO with generated I/O beside the same programs with I/O written by hand (docs/use/generate.md).

    python bench/generated.py [--runs 9] [--ranks 4]

Each pair of runs is interleaved and begins with the other program than the pair before. A ratio is hand over generated: 1 is
as fast, below 1 the generated program is slower. Median of the pairs, with the smallest and largest; JSON a line.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
MODULES = f"-I/usr/lib/{os.uname().machine}-linux-gnu/fortran/gfortran-mod-15"
HINTS = ["romio_cb_write=disable", "romio_ds_write=enable", "romio_pvfs2_dtype_write=enable"]
HAND_HINTS = [word for hint in HINTS for word in ("--hint", hint)]
# name: level, compiler, template, by hand, arguments of both, more of the one by hand
KERNELS = {
    "flash": (
        "mpi-io",
        ["mpicc.openmpi", "-O2", f"-I{ROOT}/examples"],
        "examples/generate/flash.c",
        "examples/flash.c",
        [],
        ["--write-only", *HAND_HINTS],
    ),
    "s3d": (
        "pnetcdf",
        ["mpifort.openmpi", "-O2", MODULES],
        "examples/generate/s3d.f90",
        "examples/generate/s3d_by_hand.f90",
        ["48", "1"],
        [],
    ),
}


def seconds(command, environment):
    """Of one run: the time that the program says its writing took on the slowest rank."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r'"write_seconds":\[?([0-9.]+)', done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return float(found[1])


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, (level, compiler, template, hand, both, more) in KERNELS.items():
            made = place / ("made" + Path(template).suffix)
            subprocess.run([PENSTOCK, "generate", "--level", level, ROOT / template, "-o", made, "--force"], check=True)
            library = ["-lpnetcdf"] if level == "pnetcdf" else []
            programs = []
            for kind, source, last in (("generated", made, both), ("hand", ROOT / hand, [*both, *more])):
                program = place / f"{name}-{kind}"
                subprocess.run([*compiler, "-o", program, source, *library], check=True, cwd=place)
                programs.append((program, last))
            launchers = {
                "plain": (["mpiexec.openmpi", "--oversubscribe", "-n", str(args.ranks)], place / "out"),
                "penstock": (
                    [PENSTOCK, "run", "-n", str(args.ranks), "--mount", place / "m", "--"],
                    place / "m" / "out",
                ),
            }
            for launcher, (start, path) in launchers.items():
                times = [[], []]
                for pair in range(args.runs):
                    for which in (0, 1) if pair % 2 else (1, 0):
                        program, last = programs[which]
                        times[which].append(seconds([*start, program, path, *last], environment))
                ratios = [hand / generated for generated, hand in zip(*times, strict=True)]
                record = {
                    "kernel": name,
                    "level": level,
                    "under": launcher,
                    "ranks": args.ranks,
                    "runs": args.runs,
                    "ratio": round(statistics.median(ratios), 3),
                    "min": round(min(ratios), 3),
                    "max": round(max(ratios), 3),
                    "generated_s": round(statistics.median(times[0]), 4),
                    "hand_s": round(statistics.median(times[1]), 4),
                }
                print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
