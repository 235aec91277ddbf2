//! Quantities for people, in the columns of a table: three digits and a unit.

/// Microseconds: `850us`, `1.90ms`, `12.0s`.
pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", three_digits(us as f64 / 1e3)),
        _ => format!("{}s", three_digits(us as f64 / 1e6)),
    }
}

/// Bytes in units of 1,024: `123B`, `1.14MiB`.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Bytes per second as bits per second in units of 1,000, as links are named: `98.8Mbit/s`.
pub(super) fn bit_rate(bytes_per_s: u64) -> String {
    scaled(bytes_per_s as f64 * 8.0, 1000.0, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// `part` of `whole` in percent; `-` of nothing.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0}%", part as f64 * 100.0 / whole as f64) }
}

/// What the kernel told, or `-`.
pub(super) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
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
