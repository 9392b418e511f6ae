//! Seek time from three published points.
//!
//! Problem: data sheets give the seek over one track, the mean over uniformly random pairs of tracks, and the full
//! stroke. A model needs every distance. Idea: t(x) = s + α√x + βx, x = distance / full stroke: the arm accelerates
//! over short distances and coasts over long ones. Over uniform pairs E√x = 8/15 and E x = 1/3, so that α = 5·((avg −
//! s) − (full − s)/3) and β = full − s − α. A distance of zero costs nothing.

use crate::Nanos;

/// Seek time over distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekCurve {
    single: f64,
    root: f64,
    linear: f64,
}

impl SeekCurve {
    /// From the seek over one track, the mean over random pairs, and the full stroke.
    pub fn from_points(single: Nanos, average: Nanos, full: Nanos) -> SeekCurve {
        let (single, average, full) = (single as f64, average as f64, full as f64);
        let root = 5.0 * ((average - single) - (full - single) / 3.0);
        SeekCurve {
            single,
            root,
            linear: full - single - root,
        }
    }

    /// The time over `distance` of `stroke` tracks.
    pub fn time(&self, distance: u64, stroke: u64) -> Nanos {
        if distance == 0 || stroke == 0 {
            return 0;
        }
        let x = (distance as f64 / stroke as f64).min(1.0);
        // A curve through odd points may dip: the seek over one track is the lower bound.
        (self.single + self.root * x.sqrt() + self.linear * x).max(self.single.min(1e15)) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meets_its_points_and_the_published_coefficients() {
        let curve = SeekCurve::from_points(500_000, 8_000_000, 17_350_000);
        assert!((curve.root / 1e6 - 9.42).abs() < 0.005, "{}", curve.root);
        assert!((curve.linear / 1e6 - 7.43).abs() < 0.005);
        assert_eq!(curve.time(1_000_000, 1_000_000), 17_350_000);
        assert_eq!(curve.time(0, 1_000_000), 0);
        // The mean over uniform pairs: distance x has density 2(1 − x).
        let n = 100_000u64;
        let mean: f64 = (0..n)
            .map(|i| {
                let x = (i as f64 + 0.5) / n as f64;
                curve.time(i * 2 + 1, n * 2) as f64 * 2.0 * (1.0 - x) / n as f64
            })
            .sum();
        assert!((mean - 8e6).abs() < 1e4, "{mean}");
    }
}
