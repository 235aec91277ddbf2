//! Vary target: the requests that match a stored response (RFC 9111 §4.1).

use thalweg_cache::storage::Selection;
use thalweg_http::Fields;

use crate::{fields, lines};

/// Separator between the fields of two requests.
const BETWEEN: &[u8] = b"\n--\n";

/// Matches requests to a response. `input` has the response's `Vary`, the fields of its own
/// request, and the fields of another request.
pub(crate) fn run(input: &[u8]) {
    let [vary, requests] = lines(input);
    let between = requests.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (one, other) = requests.split_at(between.unwrap_or(requests.len()));
    let (one, other) = (fields(one), fields(other));
    let response: Fields = [("Vary", vary)].into_iter().collect();

    let selection = Selection::of(&one, &response);
    assert_eq!(selection.matches(&one), !selection.is_unmatchable(), "a response must match its own request");
    if selection.is_unmatchable() {
        return assert!(!selection.matches(&other));
    }
    assert_eq!(selection.matches(&other), Selection::of(&other, &response) == selection);
    assert_eq!(selection.matches(&other), Selection::of(&other, &response).matches(&one));

    // These differences are insignificant: fields not named by `Vary`, the order of fields with
    // different names, white space around members and, in `Accept-Encoding`, the members' order and
    // case.
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
        if members.is_empty() {
            // An empty field differs from an absent field.
            same.push(name, "");
        }
        for member in members {
            same.push(name, [b" \t", &member[..], b" "].concat());
        }
    }
    same.push("X-Not-Named-By-Anybody", "1");
    assert!(is_named("x-not-named-by-anybody") || selection.matches(&same));
}
