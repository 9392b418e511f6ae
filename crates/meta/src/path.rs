//! Paths of the name space: absolute, "/"-separated, normalised by the client.
use crate::error::{Result, error, shown};
use penstock_wire::message::{ErrorKind, MAX_TARGET};

/// Most bytes of a path.
pub const MAX_PATH: usize = 4096;
/// Most bytes of a name.
pub const MAX_NAME: usize = 255;

/// The names of a path from the root down; empty for "/". The error says what is wrong with the path.
pub fn parse(path: &str) -> Result<Vec<&str>> {
    let bad = |why: &str| {
        Err(error(
            ErrorKind::InvalidArgument,
            format!("path \"{}\" {why}", shown(path)),
        ))
    };
    if path.len() > MAX_PATH {
        return Err(error(
            ErrorKind::NameTooLong,
            format!(
                "path \"{}\" has {} bytes; at most {MAX_PATH} are allowed, use a shorter one",
                shown(path),
                path.len()
            ),
        ));
    }
    let Some(rest) = path.strip_prefix('/') else {
        return bad("is not absolute; begin it with \"/\"");
    };
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = Vec::with_capacity(8);
    for name in rest.split('/') {
        match name {
            "" => return bad("has an empty name in it; write single slashes and none at the end"),
            "." | ".." => return bad("has \".\" or \"..\" in it; normalise it first"),
            _ if name.len() > MAX_NAME => {
                return Err(error(
                    ErrorKind::NameTooLong,
                    format!(
                        "a name has {} bytes; at most {MAX_NAME} are allowed, use a shorter one than \"{}\"",
                        name.len(),
                        shown(name)
                    ),
                ));
            }
            _ if name.contains('\0') => return bad("has a zero byte in it; leave it out"),
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// Checks a name for a new entry.
pub fn check_name(name: &str) -> Result<()> {
    match name {
        "" | "." | ".." => Err(error(
            ErrorKind::InvalidArgument,
            format!("\"{name}\" is no name for something in a directory; choose another"),
        )),
        _ if name.contains(['/', '\0']) => Err(error(
            ErrorKind::InvalidArgument,
            format!(
                "name \"{}\" has a slash or a zero byte in it; leave it out",
                shown(name)
            ),
        )),
        _ if name.len() > MAX_NAME => Err(error(
            ErrorKind::NameTooLong,
            format!(
                "a name has {} bytes; at most {MAX_NAME} are allowed, use a shorter one than \"{}\"",
                name.len(),
                shown(name)
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks the target of a symbolic link.
pub fn check_target(target: &str) -> Result<()> {
    if target.is_empty() {
        return Err(error(
            ErrorKind::NotFound,
            "a symbolic link to nothing; name a path",
        ));
    }
    if target.len() > MAX_TARGET {
        return Err(error(
            ErrorKind::NameTooLong,
            format!(
                "a symbolic link of {} bytes; at most {MAX_TARGET} are allowed",
                target.len()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(path: &str) -> ErrorKind {
        parse(path).unwrap_err().kind
    }

    #[test]
    fn normal_paths_split() {
        assert_eq!(parse("/").unwrap(), Vec::<&str>::new());
        assert_eq!(parse("/a").unwrap(), ["a"]);
        assert_eq!(parse("/a/b c/…").unwrap(), ["a", "b c", "…"]);
    }

    #[test]
    fn bad_paths_are_refused() {
        for path in [
            "", "a", "a/b", "//", "/a//b", "/a/", "/./a", "/a/..", "/a\0b",
        ] {
            assert_eq!(kind(path), ErrorKind::InvalidArgument, "{path:?}");
        }
    }

    #[test]
    fn limits_are_exact() {
        let name = "n".repeat(MAX_NAME);
        assert_eq!(parse(&format!("/{name}")).unwrap().len(), 1);
        assert_eq!(kind(&format!("/{name}x")), ErrorKind::NameTooLong);
        let path = "/abcdefg".repeat(MAX_PATH / 8);
        assert_eq!(parse(&path).unwrap().len(), MAX_PATH / 8);
        assert_eq!(kind(&format!("{path}h")), ErrorKind::NameTooLong);
    }
}
