//! Units of durations and sizes, used in policy source and in the arguments of `std.duration` and
//! `std.bytes`.

/// Duration units, in seconds.
pub(crate) const DURATIONS: [(&str, f64); 7] = [
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
    ("y", 31_536_000.0),
];

/// Size units, in bytes.
const SIZES: [(&str, i64); 6] =
    [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30), ("tb", 1 << 40), ("pb", 1 << 50)];

/// Returns the length of a duration unit, in seconds.
pub(crate) fn duration_unit(unit: &str) -> Option<f64> {
    DURATIONS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds)
}

/// Returns the value of a size unit, in bytes. Letter case is ignored. Every unit but `b` may be
/// abbreviated to its first letter. In policy source, a bare `m` means minutes unless the checker
/// expects a size.
pub(crate) fn size_unit(unit: &str) -> Option<i64> {
    let is = |name: &str| {
        let is_short = name.len() > 1 && unit.len() == 1;
        unit.eq_ignore_ascii_case(if is_short { &name[..1] } else { name })
    };
    SIZES.iter().find(|(name, _)| is(name)).map(|(_, bytes)| *bytes)
}
