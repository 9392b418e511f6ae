//! Which calls a question is about: the four keys of IOTRACE (IT 1) as a path with wildcards, `process/MPI call/file system
//! call/server`.
//!
//! A process is a rank, or `PROGRAM.RANK` where several programs were traced; a call is its number in that process's
//! stream, as `penstock trace list` prints it. `*`, or nothing behind the last key given, stands for all.
use std::fmt;
use std::str::FromStr;

/// `3/17/*/*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Key {
    /// The program, if one is named.
    pub program: Option<u64>,
    /// The process.
    pub rank: Option<u32>,
    /// The call of the program: of MPI-IO, or of whatever library stands on top.
    pub call: Option<u64>,
    /// The file system call below it.
    pub below: Option<u64>,
    /// The server.
    pub server: Option<u32>,
}

impl Key {
    /// Whether it is about one call of one process.
    pub fn is_one_call(&self) -> bool {
        self.rank.is_some() && (self.call.is_some() || self.below.is_some())
    }

    /// Whether it names a call at all.
    pub fn names_a_call(&self) -> bool {
        self.call.is_some() || self.below.is_some()
    }

    /// Whether this process is meant.
    pub fn has_process(&self, program: u64, rank: u32) -> bool {
        self.program.is_none_or(|p| p == program) && self.rank.is_none_or(|r| r == rank)
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` is no key: {why}; write PROCESS/MPI-CALL/FILE-SYSTEM-CALL/SERVER, such as 3/17/*/*"
            )
        };
        fn part<T: FromStr>(word: Option<&str>) -> Result<Option<T>, ()> {
            match word {
                None | Some("*" | "") => Ok(None),
                Some(number) => number.parse().map(Some).map_err(|_| ()),
            }
        }
        let words: Vec<&str> = text.split('/').collect();
        if words.len() > 4 {
            return Err(wrong("it has more than four parts"));
        }
        let (program, rank) = match words[0].split_once('.') {
            Some((program, rank)) => (Some(program), Some(rank)),
            None => (None, Some(words[0])),
        };
        let number = |_| wrong("a part is neither a number nor *");
        Ok(Key {
            program: part(program).map_err(number)?,
            rank: part(rank).map_err(number)?,
            call: part(words.get(1).copied()).map_err(number)?,
            below: part(words.get(2).copied()).map_err(number)?,
            server: part(words.get(3).copied()).map_err(number)?,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = |n: Option<u64>| n.map_or("*".to_string(), |n| n.to_string());
        if let Some(program) = self.program {
            write!(f, "{program}.")?;
        }
        let (rank, server) = (
            star(self.rank.map(u64::from)),
            star(self.server.map(u64::from)),
        );
        write!(
            f,
            "{rank}/{}/{}/{server}",
            star(self.call),
            star(self.below)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_written() {
        for (text, shown) in [
            ("3/17/*/*", "3/17/*/*"),
            ("3", "3/*/*/*"),
            ("", "*/*/*/*"),
            ("*/*/*/2", "*/*/*/2"),
            ("77.3/1/2/0", "77.3/1/2/0"),
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), shown);
        }
        for bad in ["x", "1/2/3/4/5", "1/-2", "1//3/99999999999", "1.2.3"] {
            let said = bad.parse::<Key>().unwrap_err();
            assert!(said.contains("3/17/*/*"), "{said}");
        }
        assert!("3/17".parse::<Key>().unwrap().is_one_call());
        assert!(!"*/17".parse::<Key>().unwrap().is_one_call());
    }
}
