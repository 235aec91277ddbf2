//! References in `Location` and `Content-Location` (RFC 3986 §5).

use thalweg_http::{Authority, Target, reference};

fn resolved(reference: &str) -> Option<String> {
    let authority = Authority::parse(b"Media.example").unwrap();
    let base = Target::new("/b/c/d?q").unwrap();
    reference::resolve(&authority, &base, reference).map(|target| target.as_str().to_owned())
}

#[test]
fn rfc3986_5_4_references_are_resolved_against_the_request() {
    for (reference, target) in [
        ("g", "/b/c/g"),
        ("./g/", "/b/c/g/"),
        ("/g?x#fragment", "/g?x"),
        ("?y", "/b/c/d?y"),
        ("", "/b/c/d?q"),
        (".", "/b/c/"),
        ("..", "/b/"),
        ("../g", "/b/g"),
        ("../../../g", "/g"),
        ("/./g/../h", "/h"),
        ("g?y/../x", "/b/c/g?y/../x"),
        ("./a:b", "/b/c/a:b"),
    ] {
        assert_eq!(resolved(reference).as_deref(), Some(target), "{reference:?}");
    }
}

#[test]
fn rfc9111_4_4_reference_to_another_host_resolves_to_none() {
    for same in [
        "http://media.example/g",
        "HTTPS://media.EXAMPLE/g",
        "//media.example/g",
        "http://media.example:80/g",
    ] {
        assert_eq!(resolved(same).as_deref(), Some("/g"), "{same}");
    }
    assert_eq!(resolved("http://media.example").as_deref(), Some("/"));
    assert_eq!(resolved("http://media.example?q").as_deref(), Some("/?q"));
    for other in [
        "http://other.example/g",
        "http://media.example:8080/g",
        "https://media.example:80/g",
        "http://user@media.example/g",
        "ftp://media.example/g",
        "http:g",
        "mailto:a@media.example",
        "/a b",
        "/%2e%2e/g",
    ] {
        assert_eq!(resolved(other), None, "{other}");
    }
}
