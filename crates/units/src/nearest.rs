//! "Did you mean …?" suggestions: finds the known name most likely meant by an unknown one.

/// Minimum Jaro-Winkler similarity of a suggestion.
const SIMILARITY_MIN: f64 = 0.8;

/// Returns the known name most similar to `name`, ignoring case, or `None` if no known name is
/// similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let scored = known.into_iter().filter_map(|known| Some((similarity(&name, known)?, known)));
    scored.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}

/// Returns the similarity of a lower-case name to a known one, or `None` if the name is not a
/// plausible misspelling of it.
fn similarity(name: &str, known: &str) -> Option<f64> {
    let known = known.to_ascii_lowercase();
    // In a short name, Jaro-Winkler counts two swapped letters as two errors.
    let is_swapped = name.len() >= 3 && strsim::osa_distance(name, &known) == 1;
    let similarity = strsim::jaro_winkler(name, &known).max(if is_swapped { SIMILARITY_MIN } else { 0.0 });
    // A shared scope (`req.`, `vcl_`) does not count. Without it, the name must be a prefix of the
    // known name, or at least half of its characters must match.
    let same = name.bytes().zip(known.bytes()).take_while(|(a, b)| a == b).count();
    let is_end = |byte: &u8| matches!(byte, b'.' | b'_');
    let scope = name.as_bytes()[..same].iter().rposition(is_end).map_or(0, |end| end + 1);
    let (own, other) = (&name[scope..], &known[scope..]);
    let is_plausible = (own.len() >= 3 && other.starts_with(own))
        || strsim::osa_distance(own, other) <= own.chars().count().div_ceil(2);
    (similarity >= SIMILARITY_MIN && is_plausible).then_some(similarity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_similar_name_is_suggested_if_plausible() {
        let known =
            ["listen", "req.url", "req.http.*", "vcl_recv", "vcl_hash", "established", "sport", "dport"];
        for (name, expected) in [
            ("listn", Some("listen")),
            ("Listen", Some("listen")),
            ("lisetn", Some("listen")),
            ("est", Some("established")),
            ("sprt", Some("sport")),
            ("req.ulr", Some("req.url")),
            ("vcl_recieve", Some("vcl_recv")),
            // Only the scope is shared.
            ("req.xyzzy", None),
            ("vcl_done", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
