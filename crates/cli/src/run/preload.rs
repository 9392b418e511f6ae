//! Finds the library that ranks preload, and sets the dynamic loader's variables.
use crate::error::{CliError, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Its name.
const LIBRARY: &str = "libpenstock.so";
/// The environment variable with another path.
const VARIABLE: &str = "PENSTOCK_LIBRARY";

/// Its path: beside this program (as built), in `../lib/penstock` (as installed), or as the environment says. The
/// program's own path is used with links followed, so that a whole tree may be moved.
pub fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .map_err(|e| CliError::io("find", &path, e).next(format!("mend {VARIABLE}")));
    }
    let me = std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
    let dir = me.parent().unwrap_or(Path::new("/"));
    let private = dir.parent().unwrap_or(dir).join("lib/penstock");
    [dir, &private]
        .into_iter()
        .map(|dir| dir.join(LIBRARY))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            CliError::new(format!(
                "{LIBRARY} is neither in {} nor in {}",
                dir.display(),
                private.display()
            ))
            .next(format!(
                "build it with `make build`, install the whole tree, or name it with {VARIABLE}"
            ))
        })
}

/// The variables that make the dynamic loader preload `library` after `others`: `LD_PRELOAD`, and `LD_LIBRARY_PATH` if
/// it must differ from `searched`.
///
/// In `LD_PRELOAD` a space ends a name. A library in a directory with spaces is named without its directory, which goes
/// to `LD_LIBRARY_PATH`: its entries end at `:` and `;` only.
pub fn environment(
    library: &Path,
    others: Option<&OsStr>,
    searched: Option<&OsStr>,
) -> Result<Vec<(OsString, OsString)>> {
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
    let joined = |words: [Option<&OsStr>; 2]| {
        let words: Vec<_> = words
            .into_iter()
            .flatten()
            .filter(|w| !w.is_empty())
            .collect();
        words.join(OsStr::new(":"))
    };
    Ok(match library.parent().zip(library.file_name()) {
        Some((dir, name)) if has(b' ') => vec![
            ("LD_PRELOAD".into(), joined([others, Some(name)])),
            (
                "LD_LIBRARY_PATH".into(),
                joined([Some(dir.as_os_str()), searched]),
            ),
        ],
        _ => vec![("LD_PRELOAD".into(), joined([others, Some(path)]))],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(library: &str, others: Option<&str>, searched: Option<&str>) -> Option<Vec<String>> {
        let variables = environment(
            Path::new(library),
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
