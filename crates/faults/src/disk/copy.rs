//! Copies of disks, and disks that are removed from their machine and put back.
use super::*;

/// A file or directory in a copy of a disk: its path below the root, and content, attributes and mode of a file.
pub(crate) type Item = (PathBuf, Option<Content>);

/// The contents of a disk that was removed from its machine.
pub(crate) struct Aside {
    path: PathBuf,
    files: BTreeMap<Inode, File>,
    names: BTreeMap<PathBuf, Entry>,
    naming: BTreeMap<PathBuf, Vec<Naming>>,
}

impl Disk {
    /// A copy of what programs see.
    pub fn copy(&self) -> std::io::Result<Vec<Item>> {
        const ATTRIBUTE: &str = "user.penstock";
        let mut items = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<_, _>>()?;
            paths.sort();
            for path in paths {
                let Ok(name) = path.strip_prefix(&self.root).map(Path::to_owned) else {
                    continue;
                };
                if path.is_dir() {
                    items.push((name, None));
                    directories.push(path);
                    continue;
                }
                let mut content = Content {
                    data: std::fs::read(&path)?,
                    mode: Some(Mode::from_raw_mode(path.metadata()?.permissions().mode())),
                    ..Content::default()
                };
                let mut value = [0; 64];
                if let Ok(n) = rustix::fs::getxattr(&path, ATTRIBUTE, &mut value[..]) {
                    content
                        .attributes
                        .insert(ATTRIBUTE.to_owned(), value[..n].to_vec());
                }
                items.push((name, Some(content)));
            }
        }
        Ok(items)
    }

    /// Empties the disk.
    pub fn clear(&mut self) -> std::io::Result<()> {
        self.files.clear();
        self.names.clear();
        self.naming.clear();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the contents; the disk is empty then.
    pub fn set_aside(&mut self, path: PathBuf) -> std::io::Result<Aside> {
        std::fs::create_dir(&path)?;
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            std::fs::rename(entry.path(), path.join(entry.file_name()))?;
        }
        Ok(Aside {
            path,
            files: std::mem::take(&mut self.files),
            names: std::mem::take(&mut self.names),
            naming: std::mem::take(&mut self.naming),
        })
    }

    /// Puts removed contents back in place of the present ones.
    pub fn put_back(&mut self, aside: Aside) -> std::io::Result<()> {
        self.clear()?;
        for entry in std::fs::read_dir(&aside.path)? {
            let entry = entry?;
            std::fs::rename(entry.path(), self.root.join(entry.file_name()))?;
        }
        std::fs::remove_dir(&aside.path)?;
        self.files = aside.files;
        self.names = aside.names;
        self.naming = aside.naming;
        Ok(())
    }

    /// Writes a copy to the empty disk, durably.
    pub fn put(&mut self, items: &[Item]) -> std::io::Result<()> {
        for (name, content) in items {
            // The lock's holder has ended.
            if name == Path::new("lock") {
                continue;
            }
            let path = self.root.join(name);
            match content {
                None => {
                    std::fs::create_dir(&path)?;
                    self.names.insert(path, Entry::Directory);
                }
                Some(content) => self.put_file(path, content.clone())?,
            }
        }
        Ok(())
    }

    /// Makes a durable file.
    pub(super) fn put_file(&mut self, path: PathBuf, content: Content) -> std::io::Result<()> {
        std::fs::write(&path, &content.data)?;
        let file = std::fs::OpenOptions::new().write(true).open(&path)?;
        let mode = content.mode.map_or(0o600, |mode| mode.bits());
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        for (name, value) in &content.attributes {
            rustix::fs::fsetxattr(file.as_fd(), &**name, value, XattrFlags::empty())?;
        }
        let new = inode(file.as_fd());
        self.names.insert(path, Entry::File(new));
        let durable = File {
            durable: content,
            since: Vec::new(),
        };
        self.files.insert(new, durable);
        Ok(())
    }
}
