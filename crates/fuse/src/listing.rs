//! An open directory, read page by page.
//!
//! The kernel requests entries from a position on; positions count entries from the beginning. One page is in memory,
//! and the last name of each earlier page, so that a program can return to an earlier position (`seekdir`). Entries
//! that are added or removed meanwhile may be seen or not, as POSIX allows; all others are seen once.
use penstock_client::{Client, Result};
use penstock_layout::FileId;
use penstock_wire::message::{Attributes, MetaReply, NodeReply, NodeRequest, User};

/// Entries of one page.
const PAGE: usize = 1024;
/// Pages whose last names are stored; later ones are read again from the last one stored.
const MAX_PAGES: usize = 1 << 16;

#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    user: User,
    /// The last name of each page read so far.
    ends: Vec<String>,
    /// The page in memory, and the number of entries before it.
    first: usize,
    page: Vec<(String, Attributes)>,
    loaded: bool,
    /// Whether the page in memory is the last one.
    last: bool,
}

impl Listing {
    pub fn new(directory: FileId, user: User) -> Listing {
        Listing {
            directory,
            user,
            ends: Vec::new(),
            first: 0,
            page: Vec::new(),
            loaded: false,
            last: false,
        }
    }

    /// The entries from position `at` to the end of their page; none at the end of the directory.
    pub fn from(&mut self, client: &Client, at: usize) -> Result<&[(String, Attributes)]> {
        if at == 0 {
            // Read again, as after rewinddir.
            self.loaded = false;
            self.ends.clear();
        }
        if !self.loaded || at < self.first {
            let pages = (at / PAGE).min(self.ends.len());
            self.load(client, pages)?;
        }
        while at >= self.first + self.page.len() {
            if self.last {
                return Ok(&[]);
            }
            let pages = self.first / PAGE + 1;
            self.load(client, pages)?;
        }
        Ok(&self.page[at - self.first..])
    }

    /// Loads the page after `pages` pages.
    fn load(&mut self, client: &Client, pages: usize) -> Result<()> {
        let after = match pages {
            0 => None,
            n => self.ends.get(n - 1).cloned(),
        };
        let mut page: Vec<(String, Attributes)> = Vec::new();
        let mut more = true;
        // Pages are full, however much fits into one answer, because positions count in pages.
        while more && page.len() < PAGE {
            let request = NodeRequest::Readdir {
                id: self.directory,
                after: page.last().map(|(name, _)| name.clone()).or(after.clone()),
                limit: u32::try_from(PAGE - page.len()).unwrap_or(1),
            };
            match client.node(&self.user, request)? {
                NodeReply::Entries { entries, more: m } => {
                    more = m && !entries.is_empty();
                    page.extend(entries);
                }
                other => return Err(client.unexpected("readdir", &MetaReply::Node(other))),
            }
        }
        self.first = pages * PAGE;
        self.last = !more;
        self.loaded = true;
        if let (Some((name, _)), true) =
            (page.last(), self.ends.len() == pages && pages < MAX_PAGES)
        {
            self.ends.push(name.clone());
        }
        self.page = page;
        Ok(())
    }
}
