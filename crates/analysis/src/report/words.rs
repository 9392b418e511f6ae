//! Figures with their units, in sentences.

/// `12 %`, of 0 to 1.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `64 KiB`.
pub(super) fn bytes(n: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", units[unit])
}

/// `1.5 ms`, of nanoseconds.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_with_units() {
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(bytes(100), "100 bytes");
        assert_eq!(time(1_500), "1.5 µs");
        assert_eq!(time(2_000_000_000), "2.0 s");
        assert_eq!(percent(0.157), "16 %");
    }
}
