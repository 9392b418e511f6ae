//! `penstock manual`: manual pages and completions from the command line's own help, for those who install.
use crate::error::{CliError, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Write manual pages and completions below DIR, where they belong below a prefix (for packages, not for people).
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The directory; made if it is missing.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Where each shell looks for completions, below a prefix.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/penstock"),
    (Shell::Zsh, "share/zsh/site-functions/_penstock"),
    (Shell::Fish, "share/fish/vendor_completions.d/penstock.fish"),
];
/// Where `man` looks for pages about commands, below a prefix.
const PAGES: &str = "share/man/man1";

/// Writes the pages and completions of `command`, the whole command line.
pub fn manual(args: &ManualArgs, command: &Command) -> Result<()> {
    let make = |dir: &Path| {
        std::fs::create_dir_all(dir).map_err(|e| CliError::io("make the directory", dir, e))
    };
    let pages = args.dir.join(PAGES);
    make(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)
        .map_err(|e| CliError::io("write manual pages to", &pages, e))?;
    for (shell, place) in COMPLETIONS {
        let file = args.dir.join(place);
        make(file.parent().unwrap_or(&args.dir))?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "penstock", &mut text);
        std::fs::write(&file, text).map_err(|e| CliError::io("write", &file, e))?;
    }
    Ok(())
}
