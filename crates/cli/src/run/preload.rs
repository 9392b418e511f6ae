//! Finds the library that ranks preload, and sets the dynamic loader's variables.
use crate::error::{CliError, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Its name.
const LIBRARY: &str = "libpenstock.so";
/// The environment variable with another path.
const VARIABLE: &str = "PENSTOCK_LIBRARY";

/// The library that traced programs preload, beside the other one.
const TRACE_LIBRARY: &str = "libpenstock_trace.so";

/// Where it lies: beside this program (as built), in `../lib/penstock` (as installed), or where the environment says.
/// The program's own path counts, with links followed: a whole tree may be moved.
pub fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .map_err(|e| CliError::io("find", &path, e).next(format!("mend {VARIABLE}")));
    }
    belonging(
        LIBRARY,
        &format!("build it with `make build`, install the whole tree, or name it with {VARIABLE}"),
    )
}

/// Where the library of traced programs lies.
pub fn trace_library() -> Result<PathBuf> {
    belonging(
        TRACE_LIBRARY,
        "build it with `make build`, or install the whole tree",
    )
}

fn belonging(name: &str, next: &str) -> Result<PathBuf> {
    let me = std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
    let dir = me.parent().unwrap_or(Path::new("/"));
    let private = dir.parent().unwrap_or(dir).join("lib/penstock");
    [dir, &private]
        .into_iter()
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            CliError::new(format!(
                "{name} is neither in {} nor in {}",
                dir.display(),
                private.display()
            ))
            .next(next)
        })
}

/// The variables that make the dynamic loader preload `libraries` after `others`: `LD_PRELOAD`, and `LD_LIBRARY_PATH` if
/// that has to change from `searched`.
///
/// In `LD_PRELOAD` a space ends a name. A library in a directory with spaces is named without its directory, which goes
/// to `LD_LIBRARY_PATH`: its entries end at `:` and `;` only.
pub fn environment(
    libraries: &[&Path],
    others: Option<&OsStr>,
    searched: Option<&OsStr>,
) -> Result<Vec<(OsString, OsString)>> {
    let mut names = Vec::from_iter(others);
    let mut directories: Vec<&OsStr> = Vec::new();
    for library in libraries {
        let path = library.as_os_str();
        let has = |byte| path.as_bytes().contains(&byte);
        if has(b':') || (has(b' ') && has(b';')) {
            return Err(CliError::new(format!(
                "the dynamic loader cannot preload {}: its path has a colon, or a space and a semicolon",
                library.display()
            ))
            .next(format!(
                "install Penstock in another directory, or name a copy of the library with {VARIABLE}"
            )));
        }
        match library.parent().zip(library.file_name()) {
            Some((dir, name)) if has(b' ') => {
                names.push(name);
                if !directories.contains(&dir.as_os_str()) {
                    directories.push(dir.as_os_str());
                }
            }
            _ => names.push(path),
        }
    }
    let joined = |words: Vec<&OsStr>| {
        let words: Vec<_> = words.into_iter().filter(|w| !w.is_empty()).collect();
        words.join(OsStr::new(":"))
    };
    let mut variables = vec![("LD_PRELOAD".into(), joined(names))];
    if !directories.is_empty() {
        directories.extend(searched);
        variables.push(("LD_LIBRARY_PATH".into(), joined(directories)));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(library: &str, others: Option<&str>, searched: Option<&str>) -> Option<Vec<String>> {
        let variables = environment(
            &[Path::new(library)],
            others.map(OsStr::new),
            searched.map(OsStr::new),
        );
        let line =
            |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        variables
            .ok()
            .map(|all| all.into_iter().map(line).collect())
    }

    #[test]
    fn names_end_where_the_loader_ends_them() {
        for (library, others, searched, expected) in [
            (
                "/a/lib.so",
                None,
                Some("/x"),
                Some(vec!["LD_PRELOAD=/a/lib.so"]),
            ),
            (
                "/a;b/lib.so",
                Some("o.so"),
                None,
                Some(vec!["LD_PRELOAD=o.so:/a;b/lib.so"]),
            ),
            (
                "/a b/lib.so",
                Some("o.so"),
                Some("/x:/y"),
                Some(vec!["LD_PRELOAD=o.so:lib.so", "LD_LIBRARY_PATH=/a b:/x:/y"]),
            ),
            (
                "/a b/lib.so",
                Some(""),
                Some(""),
                Some(vec!["LD_PRELOAD=lib.so", "LD_LIBRARY_PATH=/a b"]),
            ),
            ("/a:b/lib.so", None, None, None),
            ("/a b;c/lib.so", None, None, None),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(told(library, others, searched), expected, "{library}");
        }
    }
}
