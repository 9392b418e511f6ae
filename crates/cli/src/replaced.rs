//! Options of `up`, `run` and `serve` about stores that were replaced.
use clap::Args;
use serde::{Deserialize, Serialize};

/// What an administrator says about stores that were replaced.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct ReplacedArgs {
    /// The store of data server N is lost: make a new one in its place. Or accept what is there (an older copy, another
    /// disk) as new. Accesses to bytes that may be lost fail until the file is rewritten, cut to nothing, removed, or
    /// accepted (`penstock check --accept-lost`). `meta`: the names are lost.
    #[arg(long, value_name = "N|meta", value_parser = which_store)]
    pub new_store: Vec<WhichStore>,
    /// The store of data server N is right, and the metadata are an older copy or new. Run `penstock check` afterwards.
    #[arg(long, value_name = "N")]
    pub adopt_store: Vec<u32>,
}

/// The store of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichStore {
    /// The metadata server's.
    Meta,
    /// A data server's.
    Data(u32),
}

fn which_store(text: &str) -> Result<WhichStore, String> {
    match text {
        "meta" => Ok(WhichStore::Meta),
        number => number
            .parse()
            .map(WhichStore::Data)
            .map_err(|_| "write the number of a data server, or `meta`".into()),
    }
}
