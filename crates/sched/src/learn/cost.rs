//! TTP: how long a device takes for a request of some size, by operation.
use crate::Error;
use penstock_base::{Nanos, Op};

/// Two curves of (bytes, nanoseconds), as `penstock profile` measures them. Between points they are linear; beyond the
/// last point the last segment continues.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    read: Vec<(f64, f64)>,
    write: Vec<(f64, f64)>,
}

impl Cost {
    /// A fixed time per request and a rate.
    pub fn linear(setup: Nanos, bytes_per_second: u64) -> Cost {
        let size = 1u64 << 20;
        let transfer = size as f64 * 1e9 / bytes_per_second.max(1) as f64;
        let curve = vec![(0.0, setup as f64), (size as f64, setup as f64 + transfer)];
        Cost {
            read: curve.clone(),
            write: curve,
        }
    }

    /// From measured points, sizes ascending.
    pub fn from_points(read: &[(u64, Nanos)], write: &[(u64, Nanos)]) -> Result<Cost, Error> {
        let curve = |points: &[(u64, Nanos)]| -> Result<Vec<(f64, f64)>, Error> {
            let ascending = points
                .windows(2)
                .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
            if points.len() < 2 || !ascending {
                return Err(Error::Invalid(
                    "a curve of times needs two points, with sizes and times that ascend".into(),
                ));
            }
            Ok(points.iter().map(|&(s, t)| (s as f64, t as f64)).collect())
        };
        Ok(Cost {
            read: curve(read)?,
            write: curve(write)?,
        })
    }

    /// Time to process a request.
    pub fn time(&self, op: Op, bytes: u64) -> Nanos {
        let curve = match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
        };
        let x = bytes as f64;
        let above = curve.partition_point(|p| p.0 < x).clamp(1, curve.len() - 1);
        let ((x0, y0), (x1, y1)) = (curve[above - 1], curve[above]);
        (y0 + (x - x0) * (y1 - y0) / (x1 - x0)).max(0.0) as Nanos
    }
}

impl Cost {
    /// How they are written: curves of reads and of writes.
    pub const FORM: &'static str = "BYTES/NANOSECONDS,...:BYTES/NANOSECONDS,... of reads and writes, at least two of each, \
                                    ascending; or FILE.json of `penstock profile --json`; or off";
    /// Most points of a curve.
    const MOST: usize = 64;
}

impl std::str::FromStr for Cost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cost, Error> {
        let wrong = || Error::Invalid(format!("times to process are {}", Cost::FORM));
        let curve = |text: &str| -> Option<Vec<(u64, Nanos)>> {
            let point = |word: &str| {
                let (bytes, time) = word.split_once('/')?;
                Some((bytes.parse().ok()?, time.parse().ok()?))
            };
            let points: Option<Vec<_>> = text.split(',').take(Cost::MOST + 1).map(point).collect();
            points.filter(|points| points.len() <= Cost::MOST)
        };
        let (read, write) = text.split_once(':').ok_or_else(wrong)?;
        let curves = curve(read).zip(curve(write));
        let (read, write) = curves.ok_or_else(wrong)?;
        Cost::from_points(&read, &write)
    }
}

impl Default for Cost {
    /// A 7200 rpm disk as a data server sees it: 4 ms and 120 MB/s.
    fn default() -> Cost {
        Cost::linear(4_000_000, 120_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_the_curves() {
        let cost =
            Cost::from_points(&[(100, 10), (200, 30)], &[(0, 5), (10, 5), (20, 15)]).unwrap();
        let read = |b| cost.time(Op::Read, b);
        assert_eq!(
            (read(100), read(150), read(200), read(300)),
            (10, 20, 30, 50)
        );
        assert_eq!(read(0), 0);
        assert_eq!((cost.time(Op::Write, 7), cost.time(Op::Write, 15)), (5, 10));
        assert!(Cost::from_points(&[(1, 1)], &[(1, 1), (2, 2)]).is_err());
        assert!(Cost::from_points(&[(2, 1), (1, 2)], &[(1, 1), (2, 2)]).is_err());
    }
}
