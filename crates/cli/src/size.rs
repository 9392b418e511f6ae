//! Sizes and rates as people write and read them.
use std::str::FromStr;

/// A number of bytes on the command line: `65536`, `64k`, `64KiB`, `1MiB`, `2G` (all powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(format!("`{text}` is no size; write 65536, 64KiB or 1MiB")),
        };
        let number: u64 = number
            .parse()
            .map_err(|_| format!("`{text}` is no size; write 65536, 64KiB or 1MiB"))?;
        number
            .checked_mul(1 << shift)
            .map(Size)
            .ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
    }
}

/// Bytes for people: `0 B`, `47008 B`, `64.0 KiB`, `7.5 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 64 << 10 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number with separated thousands: `983,040`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Seconds for people: `80 µs`, `12 ms`, `3.4 s`, `2 min 5 s`, `3 h 12 min`, `4 d 2 h`.
pub fn duration(seconds: f64) -> String {
    if seconds < 1e-3 {
        return format!("{:.0} µs", seconds * 1e6);
    }
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds as u64;
    match whole {
        0..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// Bytes per second for people, in units of 10^6.
pub fn rate(bytes: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".into();
    }
    format!("{:.1} MB/s", bytes as f64 / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let of = |t: &str| t.parse::<Size>().map(|s| s.0);
        assert_eq!(of("65536"), Ok(65536));
        assert_eq!(of("64k"), Ok(65536));
        assert_eq!(of("64KiB"), Ok(65536));
        assert_eq!(of("1 MiB"), Ok(1 << 20));
        for bad in ["", "k", "-1", "1.5M", "12 parsec", "99999999999T"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn figures_are_written() {
        assert_eq!(bytes(47008), "47008 B");
        assert_eq!(bytes(7_864_320), "7.5 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(7), "7");
        assert_eq!(count(983_040), "983,040");
        assert_eq!(duration(0.00008), "80 µs");
        assert_eq!(duration(0.0123), "12 ms");
        assert_eq!(duration(125.0), "2 min 5 s");
        assert_eq!(rate(3_000_000, 1.5), "2.0 MB/s");
    }
}
