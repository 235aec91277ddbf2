//! Which request a stored response answers (RFC 9111 §4.1).

use thalweg_cache::storage::Selection;
use thalweg_http::Fields;

use crate::{fields, lines};

/// What stands between the fields of two requests.
const BETWEEN: &[u8] = b"\n--\n";

/// A response's `Vary`, the fields of the request that it answered, and those of another.
pub(crate) fn run(input: &[u8]) {
    let [vary, requests] = lines(input);
    let between = requests.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (one, other) = requests.split_at(between.unwrap_or(requests.len()));
    let (one, other) = (fields(one), fields(other));
    let response: Fields = [("Vary", vary)].into_iter().collect();

    let selection = Selection::of(&one, &response);
    assert!(selection.matches(&one), "a response answers its own request");
    assert_eq!(selection.matches(&other), Selection::of(&other, &response) == selection);
    assert_eq!(selection.matches(&other), Selection::of(&other, &response).matches(&one));

    // What means nothing: fields that are not named, the order of fields with other names, space around members, and
    // among preferences their order and case.
    let is_named =
        |name: &str| response.list("vary").any(|named| named.eq_ignore_ascii_case(name.as_bytes()));
    let mut same = Fields::new();
    let mut names: Vec<String> = one.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names.iter().rev().filter(|name| is_named(name)) {
        let mut members: Vec<Vec<u8>> = one.list(name).map(<[u8]>::to_vec).collect();
        if name == "accept-encoding" {
            members.reverse();
            members.iter_mut().for_each(|member| member.make_ascii_uppercase());
        }
        for member in members {
            same.push(name, [b" \t", &member[..], b" "].concat());
        }
    }
    same.push("X-Not-Named-By-Anybody", "1");
    assert!(is_named("x-not-named-by-anybody") || selection.matches(&same));
}
