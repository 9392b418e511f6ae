//! Least-squares lines through measured times.

/// time = slope · bytes + intercept, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    pub(crate) intercept: f64,
}

impl Line {
    pub(crate) fn at(&self, bytes: u64) -> f64 {
        self.slope * bytes as f64 + self.intercept
    }
}

/// The line with the least squares of *relative* errors. The ratio of two curves is wanted, where an error of a tenth
/// at 8 KiB weighs as much as one at 4 MiB. Neither slope nor intercept is negative.
pub(crate) fn fit(points: &[(u64, f64)]) -> Line {
    let (mut w, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(size, time) in points {
        let (size, weight) = (size as f64, 1.0 / (time * time).max(1e-9));
        w += weight;
        x += weight * size;
        y += weight * time;
        xx += weight * size * size;
        xy += weight * size * time;
    }
    let spread = w * xx - x * x;
    let slope = if spread > 0.0 {
        (w * xy - x * y) / spread
    } else {
        0.0
    };
    let intercept = (y - slope * x) / w;
    if slope < 0.0 {
        // The slope would be negative: the mean is used instead.
        return Line {
            slope: 0.0,
            intercept: y / w,
        };
    }
    if intercept < 0.0 {
        // The intercept would be negative: the line goes through the origin.
        return Line {
            slope: xy / xx,
            intercept: 0.0,
        };
    }
    Line { slope, intercept }
}

/// Makes values of consecutive sizes non-decreasing: neighbours that decrease are replaced by their mean (isotonic
/// regression, pool adjacent violators).
pub(crate) fn monotonic(values: &mut [f64]) {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &value in values.iter() {
        let mut pool = (value, 1);
        while let Some(&(before, n)) = pools.last() {
            if before <= pool.0 {
                break;
            }
            pools.pop();
            pool.0 = (pool.0 * pool.1 as f64 + before * n as f64) / (pool.1 + n) as f64;
            pool.1 += n;
        }
        pools.push(pool);
    }
    let mut at = 0;
    for (value, n) in pools {
        values[at..at + n].fill(value);
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_found() {
        let line = fit(&[(10, 25.0), (20, 45.0), (100, 205.0)]);
        assert!((line.slope - 2.0).abs() < 1e-9 && (line.intercept - 5.0).abs() < 1e-6);
    }

    #[test]
    fn impossible_lines_are_clamped() {
        let steep = fit(&[(10, 1.0), (20, 100.0)]);
        assert!(steep.intercept == 0.0 && steep.slope > 0.0);
        let falling = fit(&[(10, 100.0), (20, 50.0)]);
        assert!(falling.slope == 0.0 && falling.intercept > 49.0 && falling.intercept < 101.0);
        assert_eq!(fit(&[(8, 3.0)]).at(8), 3.0);
    }

    proptest! {
        #[test]
        fn lines_and_curves_never_fall(points in proptest::collection::vec((1u64..1 << 22, 1.0f64..1e9), 1..20)) {
            let line = fit(&points);
            prop_assert!(line.slope >= 0.0 && line.intercept >= 0.0);
            prop_assert!(line.at(1 << 20).is_finite());
            let mut values: Vec<f64> = points.iter().map(|p| p.1).collect();
            let sum: f64 = values.iter().sum();
            monotonic(&mut values);
            prop_assert!(values.windows(2).all(|w| w[0] <= w[1]));
            prop_assert!((values.iter().sum::<f64>() / sum - 1.0).abs() < 1e-9);
        }
    }
}
