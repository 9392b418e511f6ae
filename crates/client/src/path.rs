//! Normal form of paths.
use crate::error::{Error, Result};

/// An absolute path without empty, `.` and `..` names. A path that does not begin with `/` is taken
/// from the root.
pub(crate) fn normalise(path: &str) -> Result<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    if path.is_empty() {
        return Err(Error::Invalid(
            "an empty path; write `/` for the root".into(),
        ));
    }
    Ok(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised() {
        for (path, normal) in [
            ("/", "/"),
            ("a", "/a"),
            ("//a/./b/", "/a/b"),
            ("/a/../b", "/b"),
            ("/../..", "/"),
        ] {
            assert_eq!(normalise(path).unwrap(), normal);
        }
        assert!(normalise("").is_err());
    }
}
