//! Durations as people write them: 90m, 24h, 30d.

/// A duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life(u64);

impl Life {
    /// The longest duration of a credential, ten years, in seconds.
    const MOST_S: u64 = 3653 * 86_400;

    /// The duration in milliseconds.
    pub fn as_ms(self) -> u64 {
        self.0 * 1000
    }
}

impl std::str::FromStr for Life {
    type Err = String;

    fn from_str(text: &str) -> Result<Life, String> {
        let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
        let seconds = units.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*seconds)
        });
        match seconds {
            Some(s) if (1..=Life::MOST_S).contains(&s) => Ok(Life(s)),
            _ => Err("write a time from 1s to 3653d, such as 90m, 24h or 30d".into()),
        }
    }
}
