//! Formatting of quantities for people: about three digits, in the unit that keeps the number
//! short. Also makes untrusted text safe to print on a terminal.

use std::fmt::{self, Write as _};

/// Formats microseconds: `850us`, `1.90ms`, `12.0s`.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", three_digits(us as f64 / 1e3)),
        _ => format!("{}s", three_digits(us as f64 / 1e6)),
    }
}

/// Formats bytes in units of 1,024: `123B`, `1.14MiB`.
pub fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Formats bits per second in units of 1,000, as is usual for links: `98.8Mbit/s`.
pub fn bit_rate(bits_per_s: f64) -> String {
    scaled(bits_per_s, 1000.0, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Formats bytes per second as bits per second.
pub fn bit_rate_of_bytes(bytes_per_s: u64) -> String {
    bit_rate(bytes_per_s as f64 * 8.0)
}

/// Formats `part` as a percentage of `whole`, or as `-` if `whole` is 0.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0}%", part as f64 * 100.0 / whole as f64) }
}

/// Formats a value with `show`, or as `-` if it is `None`.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Untrusted text, displayed with its control characters escaped.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

fn scaled(value: f64, step: f64, units: [&str; 5]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let number = if unit == 0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{number}{}", units[unit])
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_about_three_digits() {
        let times = [0, 999, 1_000, 1_904, 9_994, 9_995, 99_949, 99_950, 999_000, 12_000_000, 3_600_000_000];
        assert_eq!(
            times.map(micros).join(" "),
            "0us 999us 1.00ms 1.90ms 9.99ms 10.0ms 99.9ms 100ms 999ms 12.0s 3600s"
        );
        assert_eq!(
            [0, 1023, 1024, 1_200_000, 1 << 50].map(size).join(" "),
            "0B 1023B 1.00KiB 1.14MiB 1024TiB"
        );
        assert_eq!(
            [0.0, 999.4, 98.76e6, 1e15].map(bit_rate).join(" "),
            "0bit/s 999bit/s 98.8Mbit/s 1000Tbit/s"
        );
        assert_eq!(bit_rate_of_bytes(12_345_678), "98.8Mbit/s");
        assert_eq!([share(1, 3), share(0, 0)].join(" "), "33% -");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(Escaped("a\x1b[31m é\n").to_string(), "a\\u{1b}[31m é\\n");
    }
}
