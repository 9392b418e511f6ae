//! What ties a store and its fast tier together: a few lines in both directories.
//!
//! Problem: bytes may be in the tier and nowhere else. So a store must not be used without its tier, with another one or
//! with an older copy of it. Idea: both name the tier, and how often it was started. The tier's side is written first.
//!
//! ```text
//! penstock fast tier
//! version 1
//! deployment 0123...
//! server 0
//! tier 5d4b...          16 random bytes
//! generation 7          raised at each start
//! holds 1               0: a clean stop found nothing in the log
//! suspect 0             1: a sync of the fast device failed, and the log is not to be used again
//! place /nvme/data-0
//! crc 0a1b2c3d
//! ```
use crate::StoreError;
use penstock_tier::TierId;

/// The name of the tier's side in its directory.
pub(crate) const NAME: &str = "tier";
const MAGIC: &str = "penstock fast tier";

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tie {
    pub(crate) deployment: String,
    pub(crate) server: u32,
    pub(crate) tier: TierId,
    pub(crate) generation: u64,
    pub(crate) holds: bool,
    pub(crate) suspect: bool,
    pub(crate) place: String,
}

impl Tie {
    pub(crate) fn encode(&self) -> String {
        let body = format!(
            "{MAGIC}\nversion 1\ndeployment {}\nserver {}\ntier {:032x}\ngeneration {:020}\nholds {}\nsuspect {}\nplace {}\n",
            self.deployment,
            self.server,
            u128::from_be_bytes(self.tier),
            self.generation,
            u8::from(self.holds),
            u8::from(self.suspect),
            self.place,
        );
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc {crc:08x}\n")
    }

    /// Accepts what [`Tie::encode`] produces and nothing else.
    pub(crate) fn decode(text: &str) -> Option<Tie> {
        let mut lines = text.lines();
        (lines.next() == Some(MAGIC)).then_some(())?;
        let mut field = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        (field("version")? == "1").then_some(())?;
        let tie = Tie {
            deployment: field("deployment")?.to_owned(),
            server: field("server")?.parse().ok()?,
            tier: u128::from_str_radix(field("tier")?, 16).ok()?.to_be_bytes(),
            generation: field("generation")?.parse().ok()?,
            holds: field("holds")? == "1",
            suspect: field("suspect")? == "1",
            place: field("place")?.to_owned(),
        };
        (tie.encode() == text).then_some(tie)
    }

    /// Refuses a store that is opened without its tier.
    pub(crate) fn refuse_alone(noted: Option<&str>, store: &str) -> Result<(), StoreError> {
        let why = match noted.map(Tie::decode) {
            None => return Ok(()),
            Some(Some(tie)) if !tie.holds => return Ok(()),
            Some(Some(tie)) => format!(
                "bytes of it may be in its fast tier {} and nowhere else: start it with that tier (`penstock up DIR --fast`), or bring them home with `penstock drain` and `penstock down` first",
                tie.place
            ),
            Some(None) => {
                "its file `fast` is damaged, which names its fast tier: restore that file from a backup".to_owned()
            }
        };
        Err(StoreError::Fast {
            path: store.to_owned(),
            why,
        })
    }

    /// Refuses a tier that does not belong to the store. `tier`: what its directory says; `noted`: what the store says.
    pub(crate) fn compare(
        tier: Option<&Tie>,
        noted: Option<&Tie>,
        place: &str,
        store: &str,
    ) -> Result<(), StoreError> {
        let wrong = |why: String| {
            Err(StoreError::Fast {
                path: place.to_owned(),
                why,
            })
        };
        match (tier, noted) {
            (None, Some(noted)) if noted.holds => wrong(format!(
                "there is no fast tier, but bytes of {store} may be in one that was at {}: mount it or name its directory; if it is lost for good, remove {store}/fast, and the bytes that only it had are lost with it",
                noted.place
            )),
            (None, _) => Ok(()),
            (Some(tier), Some(noted)) if tier.tier != noted.tier && noted.holds => wrong(format!(
                "this is not the fast tier of {store}, which was at {}: name its directory",
                noted.place
            )),
            (Some(tier), Some(noted))
                if tier.tier == noted.tier
                    && !(noted.generation..=noted.generation + 1).contains(&tier.generation) =>
            {
                wrong(format!(
                    "an older copy of the fast tier of {store} (generation {}, expected {}): put back the newest",
                    tier.generation, noted.generation
                ))
            }
            (Some(tier), noted)
                if tier.holds && noted.is_none_or(|noted| noted.tier != tier.tier) =>
            {
                wrong(format!(
                    "this fast tier may hold bytes of another store than {store}: name an empty directory, or empty this one if they are not needed"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tie() -> Tie {
        Tie {
            deployment: "a1b2".to_owned(),
            server: 3,
            tier: [9; 16],
            generation: 12,
            holds: true,
            suspect: false,
            place: "/nvme/a b".to_owned(),
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let text = tie().encode();
        assert_eq!(Tie::decode(&text), Some(tie()));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert_eq!(Tie::decode(&changed), None, "byte {at}");
            }
            assert_eq!(Tie::decode(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn only_the_newest_of_the_own_tier_is_taken() {
        let noted = tie();
        let ok = |tier: Option<&Tie>, noted: Option<&Tie>| {
            Tie::compare(tier, noted, "/nvme", "/slow").is_ok()
        };
        let with = |generation, holds, tier| Tie {
            generation,
            holds,
            tier: [tier; 16],
            ..tie()
        };
        assert!(ok(Some(&with(12, true, 9)), Some(&noted)));
        // A crash between the two sides.
        assert!(ok(Some(&with(13, true, 9)), Some(&noted)));
        assert!(!ok(Some(&with(11, true, 9)), Some(&noted)), "older");
        assert!(!ok(Some(&with(12, true, 8)), Some(&noted)), "another's");
        assert!(
            !ok(Some(&with(12, true, 8)), None),
            "of a store that is gone"
        );
        assert!(!ok(None, Some(&noted)), "missing");
        assert!(ok(None, None));
        assert!(ok(None, Some(&with(12, false, 9))), "nothing was there");
        assert!(Tie::refuse_alone(Some(&noted.encode()), "/slow").is_err());
        assert!(Tie::refuse_alone(Some("torn"), "/slow").is_err());
        assert!(Tie::refuse_alone(Some(&with(1, false, 9).encode()), "/slow").is_ok());
        assert!(Tie::refuse_alone(None, "/slow").is_ok());
    }
}
