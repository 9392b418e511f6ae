//! The number of files of each user against the names.
use super::{CheckFinding, Checker, FindingKind, Inventory};
use crate::error::Result;

impl<I: Inventory> Checker<'_, I> {
    pub(super) fn compare_counts(&mut self) -> Result<()> {
        let repair = self.options.repair;
        let wrong = match self.inventory.count_files(repair) {
            Ok(wrong) => wrong,
            Err(e) => return self.damaged(e, None),
        };
        for user in wrong {
            let mended = if repair {
                ""
            } else {
                "; `penstock check --repair` corrects that"
            };
            self.find(CheckFinding {
                kind: FindingKind::WrongCount,
                server: None,
                file: None,
                path: None,
                bytes: None,
                mended: repair,
                message: format!(
                    "user {} has {} files, directories and links, and {} were noted{mended}",
                    user.uid, user.counted, user.noted
                ),
            });
        }
        (self.progress)(&self.report);
        Ok(())
    }
}
