//! Finds the launcher that belongs to a program.
//!
//! Ranks started by the launcher of another MPI each see a world of one rank. So the MPI library that the program would
//! load decides. The dynamic loader is asked for it (`ldd`), or, for Python, the interpreter is asked what mpi4py
//! loads. The launcher is then the one installed beside that library. A launcher that the user names must fit it
//! (docs/decisions/0035). `srun` is told which interface the library needs.
use crate::error::{CliError, Result};
use penstock_mpiio::{Pmi, TASK_FARM};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MPI families that need different settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// MPICH and what shares its ABI or its launcher.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// A launcher of the site, such as srun.
    Other,
}

/// The MPI library of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    pub family: Family,
    pub path: PathBuf,
}

/// A launcher and the family it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    pub family: Family,
    pub path: PathBuf,
}

/// Names of MPI libraries and their families. The standard ABI's library only shows that it is MPI; its launcher tells
/// the family.
fn family_of(soname: &str) -> Option<Family> {
    let is = |name: &str| soname == name || soname.starts_with(&format!("{name}."));
    if is("libmpi.so.12") || is("libmpich.so.12") || is("libmpi_abi.so") {
        Some(Family::Mpich)
    } else if is("libmpi.so.40") {
        Some(Family::OpenMpi)
    } else {
        None
    }
}

/// Finds the program as `execvp` would.
pub fn find_program(name: &OsStr) -> Result<PathBuf> {
    let given = Path::new(name);
    if given.components().count() > 1 || given.is_absolute() {
        if given.is_file() {
            return Ok(given.to_path_buf());
        }
        return Err(CliError::new(format!(
            "there is no program {}",
            given.display()
        )));
    }
    search_path(name).ok_or_else(|| {
        let error = CliError::new(format!("no program `{}` in PATH", given.display()));
        if given.is_file() {
            error.next(format!(
                "it is in this directory: write ./{}",
                given.display()
            ))
        } else {
            error
        }
    })
}

fn search_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The MPI library that `program` loads.
pub fn library_of(program: &Path) -> Result<Library> {
    if let Some(interpreter) = interpreter_of(program)? {
        return if is_python(&interpreter) {
            python_library(&interpreter)
        } else if is_python(program) {
            // A shim, as of pyenv, that starts the Python of this directory.
            python_library(program)
        } else {
            Err(unknown(program, "it is a script"))
        };
    }
    let listed = run_quietly(Command::new("ldd").arg(program))
        .map_err(|e| unknown(program, &format!("ldd failed: {e}")))?;
    match library_in(&listed) {
        Listed::Found(library) => Ok(library),
        Listed::Missing(soname) => Err(CliError::new(format!(
            "{} needs {soname}, which the dynamic loader doesn't find",
            program.display()
        ))
        .next("set LD_LIBRARY_PATH to the directory of that MPI library")),
        Listed::None if is_python(program) => python_library(program),
        Listed::None => Err(unknown(program, "it loads no MPI library")),
    }
}

fn unknown(program: &Path, why: &str) -> CliError {
    CliError::new(format!(
        "cannot tell which MPI {} belongs to: {why}",
        program.display()
    ))
    .next("name the launcher, for example --launcher mpiexec.mpich or --launcher srun")
}

/// What the loader's list shows about MPI.
#[derive(Debug, PartialEq, Eq)]
enum Listed {
    Found(Library),
    Missing(String),
    None,
}

/// Reads lines like `libmpi.so.12 => /opt/mpi/lib/libmpi.so.12 (0x7f…)`.
fn library_in(ldd: &str) -> Listed {
    for line in ldd.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let Some(soname) = Path::new(name).file_name().and_then(OsStr::to_str) else {
            continue;
        };
        let Some(family) = family_of(soname) else {
            continue;
        };
        let path = match (words.next(), words.next()) {
            (Some("=>"), Some("not")) => return Listed::Missing(soname.into()),
            (Some("=>"), Some(path)) => path,
            _ => name,
        };
        return Listed::Found(Library {
            family,
            path: path.into(),
        });
    }
    Listed::None
}

/// The interpreter named in the first line of a script, found in PATH where `env` would look there.
fn interpreter_of(program: &Path) -> Result<Option<PathBuf>> {
    let mut head = [0u8; 256];
    let mut file = std::fs::File::open(program).map_err(|e| CliError::io("read", program, e))?;
    let n = file
        .read(&mut head)
        .map_err(|e| CliError::io("read", program, e))?;
    let Some(line) = head[..n].strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next().unwrap_or_default());
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else {
        return Ok(None);
    };
    if Path::new(first).file_name() == Some(OsStr::new("env")) {
        let Some(name) = words.find(|w| !w.starts_with('-') && !w.contains('=')) else {
            return Ok(None);
        };
        return find_program(OsStr::new(name)).map(Some);
    }
    Ok(Some(first.into()))
}

fn is_python(program: &Path) -> bool {
    program
        .file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with("python") || name.starts_with("pypy"))
}

/// Loads mpi4py without initialising MPI and prints the MPI library that is then mapped.
const ASK_PYTHON: &str = "
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import os
for line in open('/proc/self/maps'):
    path = line.split(None, 5)[-1].strip()
    if os.path.basename(path).startswith(('libmpi.so.', 'libmpich.so.', 'libmpi_abi.so.')):
        print(path)
        break
";

fn python_library(python: &Path) -> Result<Library> {
    let answer = run_quietly(Command::new(python).args(["-c", ASK_PYTHON]));
    let path = match answer {
        Ok(text) => PathBuf::from(text.trim()),
        Err(e) => {
            return Err(CliError::new(format!(
                "cannot tell which MPI {} uses: {e}",
                python.display()
            ))
            .next("install mpi4py for this Python, or name the launcher with --launcher"));
        }
    };
    let family = path
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(family_of)
        .ok_or_else(|| unknown(python, "mpi4py loads no MPI library that is known here"))?;
    Ok(Library { family, path })
}

fn run_quietly(command: &mut Command) -> std::result::Result<String, String> {
    let done = command.output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        // ldd says "not a dynamic executable" with a nonzero status, which is an answer and no failure.
        let text = String::from_utf8_lossy(&done.stderr);
        if text.contains("not a dynamic executable") {
            return Ok(String::new());
        }
        return Err(text.lines().last().unwrap_or("no message").to_string());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Programs with a statically linked MPI library contain this name of its first communicator.
const LINKED: &[u8] = b"MPI_COMM_WORLD\0";

/// Returns an error for a program with a statically linked MPI library. Called for programs that load none.
pub fn refuse_static(program: &Path) -> Result<()> {
    let io = |e| CliError::io("read", program, e);
    let mut file = std::fs::File::open(program).map_err(io)?;
    let mut bytes = vec![0; 1 << 20];
    // The end of the buffer may be the beginning of the name, so it is searched again.
    let mut kept = 0;
    loop {
        let n = file.read(&mut bytes[kept..]).map_err(io)?;
        if n == 0 {
            return Ok(());
        }
        let end = kept + n;
        if bytes[..end].windows(LINKED.len()).any(|w| w == LINKED) {
            return Err(CliError::new(format!(
                "{} has its MPI library linked into it statically, so no other library can be preloaded in its place",
                program.display()
            ))
            .next("link it with the shared library: mpicc without -static"));
        }
        kept = end.min(LINKED.len() - 1);
        bytes.copy_within(end - kept..end, 0);
    }
}

/// The interface that `library` needs of its launcher.
fn pmi_of(library: &Library) -> Pmi {
    let listed = run_quietly(Command::new("ldd").arg(&library.path)).unwrap_or_default();
    let path = library.path.to_string_lossy();
    Pmi::of(listed.split_whitespace().chain([&*path]))
}

/// Returns an error if the launcher that the user named would start each rank of this library as a program of its own.
pub fn require_fit(program: &Path, library: &Library, launcher: &Launcher) -> Result<()> {
    if launcher.family == Family::Other {
        return Ok(());
    }
    let right = beside(library);
    let family = right.as_ref().map_or(library.family, |l| l.family);
    let pmix = || launcher.family == Family::OpenMpi && pmi_of(library) == Pmi::Pmix;
    if family == launcher.family || pmix() {
        return Ok(());
    }
    let right = right.map_or_else(|e| e.to_string(), |l| l.path.display().to_string());
    Err(CliError::new(format!(
        "{} loads {}, of another MPI than {}: each of its ranks would be a program of its own and write the same files",
        program.display(),
        library.path.display(),
        launcher.path.display()
    ))
    .next(format!(
        "leave out --launcher, or use --launcher {right}; if that is intended, set {TASK_FARM}=1"
    )))
}

/// Whether this is Slurm's launcher.
pub fn is_srun(launcher: &Launcher) -> bool {
    launcher.path.file_name() == Some(OsStr::new("srun"))
}

/// The option of `srun` with which ranks of this library find each other, besides the user's arguments.
pub fn srun_plugin(
    library: &Library,
    srun: &Path,
    arguments: &[OsString],
) -> Result<Option<String>> {
    let needed = pmi_of(library);
    let told = |what: &str| {
        CliError::new(format!(
            "{} needs the plugin {} of Slurm, {what}: each rank would be a program of its own and write the same files",
            library.path.display(),
            needed.name()
        ))
    };
    if let Some(given) = plugin_in(arguments) {
        return match needed.is_served_by(&given) {
            Some(false) => Err(told(&format!("and {given} is given")).next(format!(
                "leave out --mpi={given}; if that is intended, set {TASK_FARM}=1"
            ))),
            _ => Ok(None),
        };
    }
    // Sites set this variable for their usual MPI library. An argument overrides it.
    let usual = std::env::var("SLURM_MPI_TYPE").ok();
    let usual = usual.filter(|plugin| !plugin.is_empty());
    if usual.is_some_and(|plugin| needed.is_served_by(&plugin) != Some(false)) {
        return Ok(None);
    }
    let listed = Command::new(srun).arg("--mpi=list").output();
    let listed = listed.map_or(String::new(), |done| {
        // Older versions list them on standard error.
        let both = [done.stdout, done.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    });
    let has = |plugin: &str| listed.split_whitespace().any(|word| word == plugin);
    // Every Slurm has `none`: a text without it is no such list.
    if has("none") && !has(needed.name()) {
        return Err(told("which is not installed").next(
            "install it, or leave out --launcher: the MPI library's own launcher starts ranks in a job of Slurm, too",
        ));
    }
    Ok(Some(format!("--mpi={}", needed.name())))
}

/// The plugin that arguments of `srun` name.
fn plugin_in(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    let mut found = None;
    while let Some(word) = words.next() {
        if let Some(plugin) = word.strip_prefix("--mpi=") {
            found = Some(plugin.to_owned());
        } else if word == "--mpi" {
            found = words.next().map(Into::into);
        }
    }
    found
}

/// The launcher installed with `library`: in a `bin` beside or above its directory, then in PATH.
pub fn beside(library: &Library) -> Result<Launcher> {
    let names: &[&str] = match library.family {
        Family::OpenMpi => &["mpiexec.openmpi", "mpirun.openmpi", "mpiexec", "mpirun"],
        _ => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec", "mpirun"],
    };
    let real = library
        .path
        .canonicalize()
        .unwrap_or_else(|_| library.path.clone());
    let above = [&real, &library.path]
        .into_iter()
        .flat_map(|p| p.ancestors().skip(2).take(4).map(|a| a.join("bin")));
    let in_path = std::env::var_os("PATH")
        .map(|p| std::env::split_paths(&p).collect::<Vec<_>>())
        .unwrap_or_default();
    let mut seen = Vec::new();
    for dir in above.chain(in_path) {
        if seen.contains(&dir) {
            continue;
        }
        for name in names {
            let path = dir.join(name);
            if !is_executable(&path) {
                continue;
            }
            let family = family_of_launcher(&path);
            // The standard ABI's library may belong to any MPI: the launcher beside it is the right one.
            let any = library.path.to_string_lossy().contains("libmpi_abi");
            if family == library.family || any && family != Family::Other {
                return Ok(Launcher { family, path });
            }
        }
        seen.push(dir);
    }
    Err(
        CliError::new(format!("no launcher found for {}", library.path.display())).next(format!(
            "install it ({}), or name it with --launcher",
            match library.family {
                Family::OpenMpi => "Debian: apt-get install openmpi-bin",
                _ => "Debian: apt-get install mpich",
            }
        )),
    )
}

/// A launcher named by the user.
pub fn named(name: &OsStr) -> Result<Launcher> {
    let path = find_program(name)?;
    Ok(Launcher {
        family: family_of_launcher(&path),
        path,
    })
}

/// By its name if that is known, otherwise by the output of `--version`.
fn family_of_launcher(path: &Path) -> Family {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.ends_with(".openmpi") {
        return Family::OpenMpi;
    }
    if name.ends_with(".mpich") || name.ends_with(".hydra") {
        return Family::Mpich;
    }
    let Ok(said) = run_quietly(Command::new(path).arg("--version")) else {
        return Family::Other;
    };
    if said.contains("HYDRA") || said.contains("MPICH") || said.contains("Intel(R) MPI") {
        Family::Mpich
    } else if ["Open MPI", "OpenRTE", "PRRTE", "prterun"]
        .iter()
        .any(|s| said.contains(s))
    {
        Family::OpenMpi
    } else {
        Family::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_names_the_library() {
        let mpich =
            "\tlinux-vdso.so.1 (0x0)\n\tlibmpi.so.12 => /opt/mpich/lib/libmpi.so.12 (0x7f)\n";
        let found = Library {
            family: Family::Mpich,
            path: "/opt/mpich/lib/libmpi.so.12".into(),
        };
        assert_eq!(library_in(mpich), Listed::Found(found));
        let open = "\tlibmpi.so.40 => /lib/x/libmpi.so.40 (0x7f)\n";
        assert!(matches!(library_in(open), Listed::Found(l) if l.family == Family::OpenMpi));
        let missing = "\tlibmpi_abi.so.1 => not found\n";
        assert_eq!(
            library_in(missing),
            Listed::Missing("libmpi_abi.so.1".into())
        );
        // Open MPI 1.x's libmpi.so.1 and Fortran wrappers must not match.
        assert_eq!(
            library_in("\tlibmpi.so.1 => /x/libmpi.so.1 (0x0)\n\tlibmpifh.so.12 => /x (0x0)\n"),
            Listed::None
        );
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("a");
        std::fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        let found = interpreter_of(&script).unwrap().unwrap();
        assert!(found.ends_with("sh"), "{}", found.display());
        std::fs::write(&script, "#!/opt/bin/python3.11\n").unwrap();
        let found = interpreter_of(&script).unwrap().unwrap();
        assert!(is_python(&found));
        std::fs::write(&script, [0x7f, b'E', b'L', b'F']).unwrap();
        assert_eq!(interpreter_of(&script).unwrap(), None);
    }

    #[test]
    fn a_library_that_is_linked_in_is_found_wherever_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("a");
        for at in [0, 7, (1 << 20) - 5, (2 << 20) - 1, 3 << 20] {
            let mut bytes = vec![b'x'; at];
            bytes.extend_from_slice(LINKED);
            std::fs::write(&program, &bytes).unwrap();
            let refused = refuse_static(&program).unwrap_err().to_string();
            assert!(refused.contains("statically"), "{at}: {refused}");
            bytes.pop();
            std::fs::write(&program, &bytes).unwrap();
            refuse_static(&program).unwrap();
        }
    }

    #[test]
    fn the_last_plugin_that_is_named_counts() {
        let of = |words: &[&str]| plugin_in(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["-N2"]), None);
        assert_eq!(of(&["--mpi=pmix", "-N2"]).as_deref(), Some("pmix"));
        assert_eq!(
            of(&["--mpi=none", "--mpi", "pmi2"]).as_deref(),
            Some("pmi2")
        );
    }

    #[test]
    fn what_has_no_mpi_is_refused_with_a_next_step() {
        let error = library_of(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(
            error.contains("/bin/true") && error.contains("--launcher"),
            "{error}"
        );
        let error = find_program(OsStr::new("./no-such"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("./no-such"), "{error}");
    }
}
