//! Commands whose work is done in Python: `penstock NAME ARGUMENTS` becomes `python3 -m penstock.NAME ARGUMENTS`.
//!
//! The Python modules lie beside this command (lib/penstock/python), or in the tree that the command was built in.
//! `generate` uses the standard library alone. `layout` needs NumPy, and pycparser for nests in C; it reports if they
//! are missing. What they need of the command itself, such as the events of a trace, they get by running the program
//! that `PENSTOCK_COMMAND` names.
use crate::error::{CliError, Result};
use clap::Args;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Arguments that are passed on.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PythonArgs {
    /// See `--help`.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    pub arguments: Vec<OsString>,
}

/// The environment variable with the interpreter; default: the `python3` of PATH.
const INTERPRETER_VARIABLE: &str = "PENSTOCK_PYTHON";
/// The environment variable with the path of this program, for the Python modules.
const COMMAND_VARIABLE: &str = "PENSTOCK_COMMAND";
/// Relative to the directory of this program: as installed, and as built.
const PLACES: [&str; 2] = ["../lib/penstock/python", "../../python"];

/// Replaces this process by the Python module `penstock.NAME`; returns only if that fails.
pub fn hand_over(name: &str, args: &PythonArgs) -> Result<Infallible> {
    let (mut command, interpreter) = command(name, &args.arguments)?;
    let failed = command.exec();
    Err(not_run(name, &interpreter, &failed))
}

/// Runs the Python module `penstock.NAME` and waits for it.
pub fn run(name: &str, arguments: &[OsString]) -> Result<ExitStatus> {
    let (mut command, interpreter) = command(name, arguments)?;
    command
        .status()
        .map_err(|e| not_run(name, &interpreter, &e))
}

fn not_run(name: &str, interpreter: &OsStr, failed: &std::io::Error) -> CliError {
    CliError::new(format!(
        "cannot run {}: {failed}",
        Path::new(interpreter).display()
    ))
    .next(format!(
        "`penstock {name}` needs Python 3.11 or later; {INTERPRETER_VARIABLE} names one that is not in PATH"
    ))
}

fn command(name: &str, arguments: &[OsString]) -> Result<(Command, OsString)> {
    let me =
        std::env::current_exe().map_err(|e| CliError::new(format!("cannot find myself: {e}")))?;
    let place = place(&me, name).ok_or_else(|| {
        CliError::new(format!(
            "the Python of `penstock {name}` is not where {} expects it: {}",
            me.display(),
            PLACES.join(" or ")
        ))
        .next("install the whole tree (docs/use/install.md), not the command alone")
    })?;
    let interpreter =
        std::env::var_os(INTERPRETER_VARIABLE).unwrap_or_else(|| OsString::from("python3"));
    let mut command = Command::new(&interpreter);
    command
        // Nothing from the working directory, which may hold files named as modules; nothing written where it is installed.
        .args(["-P", "-B"])
        .arg("-m")
        .arg(format!("penstock.{name}"))
        .args(arguments)
        .env("PYTHONPATH", path(&place, std::env::var_os("PYTHONPATH")))
        .env(COMMAND_VARIABLE, &me);
    Ok((command, interpreter))
}

/// The directory with the package that has the module `penstock.NAME`.
fn place(me: &Path, name: &str) -> Option<PathBuf> {
    PLACES.iter().find_map(|place| {
        let place = me.parent()?.join(place).canonicalize().ok()?;
        let package = place.join("penstock").join(name);
        (package.is_dir() || package.with_extension("py").is_file()).then_some(place)
    })
}

/// The value of PYTHONPATH with `place` in front.
fn path(place: &Path, others: Option<OsString>) -> OsString {
    let mut all = place.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_as_installed_and_as_built() {
        let root = tempfile::tempdir().unwrap();
        for (program, package) in [
            ("bin/penstock", "lib/penstock/python"),
            ("target/release/penstock", "python"),
        ] {
            let me = root.path().join(program);
            std::fs::create_dir_all(me.parent().unwrap()).unwrap();
            assert_eq!(place(&me, "tool"), None);
            let package = root.path().join(package);
            std::fs::create_dir_all(package.join("penstock/tool")).unwrap();
            assert_eq!(
                place(&me, "tool"),
                Some(package.canonicalize().unwrap()),
                "{program}"
            );
            assert_eq!(place(&me, "other"), None);
        }
    }

    #[test]
    fn modules_of_the_user_come_last() {
        let place = Path::new("/p");
        assert_eq!(path(place, None), "/p");
        assert_eq!(path(place, Some("/a:/b".into())), "/p:/a:/b");
    }
}
