//! The time by which capabilities expire.
//!
//! Problem: wall clocks are wrong, and people and programs set them. A data server an hour behind accepts capabilities
//! that expired an hour ago; one that is ahead refuses all. Idea: there is one time, the metadata server's
//! ([`IssueTime`]). It begins with its wall clock and then follows its steady clock (`since_boot`), even over restarts
//! within one boot. It never goes back, and no step of the wall clock changes it. Each genuine capability tells a data
//! server that this time has reached its issue. In between, a data server follows its own steady clock
//! ([`ServerTime`]). It asks the metadata server after a start, each minute, and before it refuses a capability as
//! expired, unless it has just asked. So its wall clock matters only until the first answer. Clients measure the life
//! of a capability from its arrival, by their steady clocks.
//!
//! Both servers keep a [`Kept`] on stable storage: a time, and the steady clock's reading at that time. Within the same
//! boot it gives the time exactly. After another boot it is a bound: the metadata server has issued no later time than
//! [`RESERVED_MS`] after it.
//!
//! Plain state machines: `steady` is the time since the machine's boot, all others are milliseconds.
use std::time::Duration;

/// The metadata server issues no time later than this after the recorded one, milliseconds.
pub const RESERVED_MS: u64 = 60_000;
/// How often a data server asks for the time and records it.
pub const TICK: Duration = Duration::from_secs(60);
/// Least time between two questions while they are answered.
pub const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Least time between two questions while the server does not know the time and gets no answer.
pub const ASK_UNANSWERED: Duration = Duration::from_millis(100);
/// A capability newer than a server's time by this much shows that the server does not know the time, milliseconds.
const CONTRADICTION_MS: i64 = 5_000;
/// A wall clock that differs from the metadata server's by this much is wrong, milliseconds.
pub const WRONG_MS: u64 = 30_000;

const MAGIC: &str = "penstock clock";

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time with the steady clock's reading at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The boot of the steady clock; 0: unknown.
    pub boot: u128,
    /// The steady clock, milliseconds.
    pub steady_ms: u64,
    /// The time.
    pub time_ms: u64,
}

impl Kept {
    /// A few lines of text of constant length, with a checksum.
    pub fn encode(&self) -> String {
        let body = format!(
            "{MAGIC}\nboot {:032x}\nsteady {:020}\ntime {:020}\n",
            self.boot, self.steady_ms, self.time_ms
        );
        let sum = blake3::hash(body.as_bytes()).to_hex();
        format!("{body}sum {}\n", &sum.as_str()[..16])
    }

    /// Accepts what `encode` produces and nothing else.
    pub fn decode(text: &str) -> Option<Kept> {
        let mut lines = text.lines().skip(1);
        let mut field = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let kept = Kept {
            boot: u128::from_str_radix(field("boot")?, 16).ok()?,
            steady_ms: field("steady")?.parse().ok()?,
            time_ms: field("time")?.parse().ok()?,
        };
        (kept.encode() == text).then_some(kept)
    }

    /// The current time, if the boot is still the same.
    fn now(&self, boot: u128, steady: Duration) -> Option<u64> {
        let passed = ms(steady).checked_sub(self.steady_ms)?;
        (boot != 0 && boot == self.boot).then(|| self.time_ms.saturating_add(passed))
    }
}

/// Difference between a time that follows the steady clock and that clock, milliseconds.
#[derive(Debug, Clone, Copy)]
struct Ahead(i64);

impl Ahead {
    fn at(time_ms: u64, steady: Duration) -> Ahead {
        Ahead(time_ms.wrapping_sub(ms(steady)).cast_signed())
    }

    fn time_ms(self, steady: Duration) -> u64 {
        ms(steady).saturating_add_signed(self.0)
    }
}

/// The metadata server's time.
#[derive(Debug)]
pub struct IssueTime {
    boot: u128,
    ahead: Ahead,
    /// No later time may be issued before another one is recorded.
    reserved_ms: u64,
}

impl IssueTime {
    /// At the start of the metadata server: continues from the recorded time, or from the wall clock if that is later.
    /// A time must be recorded before the first one is issued.
    pub fn begin(
        kept: Option<Kept>,
        boot: Option<u128>,
        wall_ms: u64,
        steady: Duration,
    ) -> IssueTime {
        let boot = boot.unwrap_or(0);
        let time_ms = match kept {
            None => wall_ms,
            Some(kept) => kept
                .now(boot, steady)
                .unwrap_or_else(|| wall_ms.max(kept.time_ms.saturating_add(RESERVED_MS))),
        };
        IssueTime {
            boot,
            ahead: Ahead::at(time_ms, steady),
            reserved_ms: 0,
        }
    }

    /// The time, and whether it may be issued.
    pub fn now(&self, steady: Duration) -> (u64, bool) {
        let now = self.ahead.time_ms(steady);
        (now, now <= self.reserved_ms)
    }

    /// What is to be recorded by now, if anything; early enough that nobody waits for it.
    pub fn due(&self, steady: Duration) -> Option<Kept> {
        let now = self.ahead.time_ms(steady);
        let kept = Kept {
            boot: self.boot,
            steady_ms: ms(steady),
            time_ms: now,
        };
        (now.saturating_add(RESERVED_MS / 2) > self.reserved_ms).then_some(kept)
    }

    /// It is on stable storage.
    pub fn kept(&mut self, kept: &Kept) {
        self.reserved_ms = kept.time_ms.saturating_add(RESERVED_MS);
    }
}

/// A data server's time.
#[derive(Debug)]
pub struct ServerTime {
    boot: u128,
    ahead: Ahead,
    /// Whether it is the metadata server's to within a few seconds.
    sure: bool,
    heard: Option<Duration>,
    asked: Option<Duration>,
    /// Difference between the metadata server's wall clock and this machine's steady clock.
    wall: Option<Ahead>,
}

impl ServerTime {
    /// At the start of a data server: continues from the recorded time. After another boot it uses the wall clock, but
    /// not before the recorded time.
    pub fn begin(
        kept: Option<Kept>,
        boot: Option<u128>,
        wall_ms: u64,
        steady: Duration,
    ) -> ServerTime {
        let boot = boot.unwrap_or(0);
        let exact = kept.and_then(|kept| kept.now(boot, steady));
        let bound = kept.map_or(0, |kept| kept.time_ms);
        ServerTime {
            boot,
            ahead: Ahead::at(exact.unwrap_or(wall_ms.max(bound)), steady),
            sure: exact.is_some(),
            heard: None,
            asked: None,
            wall: None,
        }
    }

    /// The time.
    pub fn now_ms(&self, steady: Duration) -> u64 {
        self.ahead.time_ms(steady)
    }

    /// Difference from the steady clock, milliseconds; it changes seldom.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead.0
    }

    /// Whether it is the metadata server's to within a few seconds; otherwise ask before judging a capability.
    pub fn is_sure(&self) -> bool {
        self.sure
    }

    /// A genuine capability was issued at this time: it is at least that late.
    pub fn saw(&mut self, issued_ms: u64, steady: Duration) {
        let seen = Ahead::at(issued_ms, steady).0;
        let more = seen.saturating_sub(self.ahead.0);
        if more > 0 {
            self.ahead = Ahead(seen);
            self.sure &= more < CONTRADICTION_MS;
        }
    }

    /// Whether the metadata server must be asked before a capability is accepted, or refused as expired.
    pub fn doubts(&self, refuses: bool, steady: Duration) -> bool {
        let new = |heard: Duration| steady.saturating_sub(heard) < ASK_AGAIN;
        !self.sure || (refuses && !self.heard.is_some_and(new))
    }

    /// Whether it may be asked now; if so, records that it is.
    pub fn ask(&mut self, steady: Duration) -> bool {
        let pause = if self.asked <= self.heard {
            ASK_AGAIN
        } else {
            ASK_UNANSWERED
        };
        let asks = match self.asked {
            None => true,
            Some(asked) => steady.saturating_sub(asked) >= pause,
        };
        if asks {
            self.asked = Some(steady);
        }
        asks
    }

    /// Its answer has arrived: its time and its wall clock.
    pub fn told(&mut self, issue_ms: u64, wall_ms: u64, steady: Duration) {
        self.ahead = Ahead::at(issue_ms, steady);
        self.sure = true;
        self.heard = Some(steady);
        self.wall = Some(Ahead::at(wall_ms, steady));
    }

    /// What is to be recorded, if it has changed enough.
    pub fn keep(&self, steady: Duration) -> Option<Kept> {
        self.sure.then(|| Kept {
            boot: self.boot,
            steady_ms: ms(steady),
            time_ms: self.now_ms(steady),
        })
    }

    /// Difference between the wall clock `wall_ms` and the metadata server's, milliseconds; `None`: no answer yet.
    pub fn wall_ahead_ms(&self, wall_ms: u64, steady: Duration) -> Option<i64> {
        let metas = self.wall?.time_ms(steady);
        Some(wall_ms.wrapping_sub(metas).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const NOW: u64 = 1_700_000_000_000;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_kept_is_whole_or_nothing() {
        let kept = Kept {
            boot: 7 << 80,
            steady_ms: 99,
            time_ms: NOW,
        };
        let text = kept.encode();
        assert_eq!(Kept::decode(&text), Some(kept));
        for byte in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[byte] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert_eq!(Kept::decode(&changed), None, "byte {byte}");
            }
            assert_eq!(Kept::decode(&text[..byte]), None, "cut at {byte}");
        }
    }

    #[test]
    fn the_issue_time_never_goes_back() {
        let mut time = IssueTime::begin(None, Some(1), NOW, at(100));
        assert!(!time.now(at(100)).1, "nothing is kept yet");
        let kept = time.due(at(100)).unwrap();
        time.kept(&kept);
        assert_eq!(time.now(at(129)), (NOW + 29_000, true));
        assert_eq!(time.due(at(129)), None);
        assert!(time.due(at(131)).is_some());
        let (last, given) = time.now(at(160));
        assert!(given && !time.now(at(161)).1);
        // Within the same boot it continues exactly, whatever the wall clock shows.
        for wall in [NOW - HOUR, NOW + HOUR] {
            let next = IssueTime::begin(Some(kept), Some(1), wall, at(170));
            assert_eq!(next.now(at(170)).0, NOW + 70_000);
        }
        // After another one: from the wall clock, but not before what may have been issued.
        let start = |boot, wall| IssueTime::begin(Some(kept), boot, wall, at(5)).now(at(5)).0;
        assert_eq!(start(Some(2), NOW + HOUR), NOW + HOUR);
        assert_eq!(start(Some(2), NOW - HOUR), last);
        assert_eq!(start(None, NOW - HOUR), last, "no boot is known");
        assert_eq!(start(Some(1), NOW - HOUR), last, "another steady clock");
    }

    #[test]
    fn a_data_server_follows_capabilities_and_answers_not_its_wall_clock() {
        for wall in [NOW - HOUR, NOW + HOUR] {
            let mut time = ServerTime::begin(None, Some(1), wall, at(10));
            assert!(time.doubts(false, at(10)) && time.keep(at(10)).is_none());
            assert!(time.ask(at(10)) && !time.ask(at(10)) && time.ask(at(12)));
            time.told(NOW, NOW + 5, at(12));
            assert_eq!(time.now_ms(at(20)), NOW + 8_000);
            assert!(!time.doubts(false, at(20)) && !time.doubts(true, at(20)));
            assert!(time.doubts(true, at(22)) && !time.doubts(false, at(22)));
            assert!(!time.ask(at(21)) && time.ask(at(22)));
            let wrong = time.wall_ahead_ms(wall + 8_005, at(20)).unwrap();
            assert_eq!(wrong.unsigned_abs(), HOUR);
            assert_eq!(wrong > 0, wall > NOW);
        }
    }

    #[test]
    fn the_greatest_issue_time_counts() {
        let mut time = ServerTime::begin(None, Some(1), NOW - HOUR, at(10));
        time.told(NOW, NOW, at(10));
        time.saw(NOW - 500_000, at(11));
        assert_eq!(time.now_ms(at(11)), NOW + 1_000);
        time.saw(NOW + 2_000, at(11));
        assert_eq!(time.now_ms(at(12)), NOW + 3_000);
        assert!(!time.doubts(false, at(12)));
        // So much later that something is wrong: the server must ask.
        time.saw(NOW + HOUR, at(12));
        assert_eq!(time.now_ms(at(12)), NOW + HOUR);
        assert!(time.doubts(false, at(12)));
        // The metadata server's answer corrects it in both directions.
        time.told(NOW + 3_000, NOW, at(13));
        assert_eq!(time.now_ms(at(13)), NOW + 3_000);
    }

    #[test]
    fn a_restart_in_the_same_boot_knows_the_time() {
        let mut time = ServerTime::begin(None, Some(1), NOW, at(10));
        time.told(NOW, NOW, at(10));
        let kept = time.keep(at(70));
        let same = ServerTime::begin(kept, Some(1), NOW + HOUR, at(100));
        assert!(same.is_sure());
        assert_eq!(same.now_ms(at(100)), NOW + 90_000);
        let behind = ServerTime::begin(kept, Some(2), NOW - HOUR, at(5));
        assert!(!behind.is_sure());
        assert_eq!(
            behind.now_ms(at(5)),
            NOW + 60_000,
            "not before what was kept"
        );
        let ahead = ServerTime::begin(kept, Some(2), NOW + HOUR, at(5));
        assert_eq!(ahead.now_ms(at(5)), NOW + HOUR);
    }
}
