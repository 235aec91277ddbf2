//! Field sections (RFC 9110 §5) and the fields removed by an intermediary (§7.6.1).

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_http::{Fields, fields};

use crate::{cases, shown};

fn section(lines: &[(&str, &str)]) -> Fields {
    lines.iter().copied().collect()
}

fn check(fields: &Fields, expect: Expect) {
    expect.assert_eq(&shown(fields.text()));
}

#[test]
fn rfc9110_5_1_names_are_case_insensitive() {
    let fields = section(&[("Host", "a"), ("X", "1"), ("hOST", "b")]);
    assert_eq!(fields.get("HOST"), Some(&b"a"[..]));
    assert_eq!(fields.get_all("host").collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(fields.contains("x") && !fields.contains("xx"));
}

#[test]
fn rfc9110_5_5_values_are_trimmed_and_cannot_start_a_line() {
    let mut fields = section(&[("A", " \t b c\t ")]);
    fields.push("B", "x\r\nInjected: y\0");
    fields.push("C", "\r\n");
    fields.append("B", "\nz");
    check(&fields, expect![[r#"A: b c\r\nB: x  Injected: y, z\r\nC: \r\n"#]]);
}

#[test]
#[should_panic(expected = "field name must be a token")]
fn rfc9110_5_1_name_must_be_a_token() {
    Fields::new().push("A: b\r\nC", "d");
}

#[test]
fn remove_and_set_keep_the_other_lines() {
    let mut fields = section(&[("A", "1"), ("B", "2"), ("a", "3"), ("C", "")]);
    assert_eq!(fields.remove("A"), 2);
    check(&fields, expect![[r#"B: 2\r\nC: \r\n"#]]);
    fields.set("b", "4");
    check(&fields, expect![[r#"C: \r\nb: 4\r\n"#]]);
    assert_eq!(fields.remove("absent"), 0);
    assert_eq!(fields.iter().collect::<Vec<_>>(), [("C", &b""[..]), ("b", b"4")]);
    fields.clear();
    assert!(fields.is_empty() && fields.text_len() == 0);
}

#[test]
fn rfc9110_5_3_member_is_appended_to_the_last_line() {
    let mut fields = section(&[("Via", "1.1 a"), ("X", "1"), ("Via", "1.1 b"), ("Y", ""), ("Z", "2")]);
    fields.append("via", "1.1 c");
    fields.append("Y", "3");
    fields.append("N", "4");
    fields.append("Z", " ");
    check(&fields, expect![[r#"Via: 1.1 a\r\nX: 1\r\nVia: 1.1 b, 1.1 c\r\nY: 3\r\nZ: 2\r\nN: 4\r\n"#]]);
    assert_eq!(fields.get("z"), Some(&b"2"[..]));
}

#[test]
fn rfc9110_5_6_1_list_spans_lines() {
    let fields = section(&[("L", "a, ,b\t,"), ("X", "no"), ("l", r#""c, \",d" ;e , f="g,"#), ("L", "")]);
    let members: Vec<_> = fields.list("L").map(shown).collect();
    expect![[r#"
        a
        b
        \"c, \\\",d\" ;e
        f=\"g,"#]]
    .assert_eq(&members.join("\n"));
}

#[test]
fn rfc9110_7_6_1_hop_by_hop_fields_are_removed() {
    let mut fields = section(&[
        ("Connection", "close, X-Private"),
        ("Proxy-Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("x-private", "1"),
        ("Trailer", "Expires"),
        ("Proxy-Authorization", "x"),
        ("ETag", "\"1\""),
    ]);
    fields.remove_hop_by_hop();
    check(&fields, expect![[r#"Trailer: Expires\r\nProxy-Authorization: x\r\nETag: \"1\"\r\n"#]]);
}

#[test]
fn rfc9110_7_6_1_end_to_end_fields_cannot_be_nominated() {
    let mut fields =
        section(&[("Host", "a"), ("CDN-Loop", "b"), ("Connection", "host, cdn-loop, via"), ("Via", "1.1 c")]);
    fields.remove_hop_by_hop();
    check(&fields, expect![[r#"Host: a\r\nCDN-Loop: b\r\nVia: 1.1 c\r\n"#]]);
}

/// An operation applied both to a section and to its model, a plain list.
#[derive(Clone, Debug)]
enum Operation {
    Push(&'static str, Vec<u8>),
    Set(&'static str, Vec<u8>),
    Append(&'static str, Vec<u8>),
    Remove(&'static str),
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = prop::sample::select(vec!["A", "a", "Bb", "ccc"]);
    let value = prop::collection::vec(prop::sample::select(b"x,\" \r\n".to_vec()), 0..4);
    (0..4, name, value).prop_map(|(kind, name, value)| match kind {
        0 => Operation::Push(name, value),
        1 => Operation::Set(name, value),
        2 => Operation::Append(name, value),
        _ => Operation::Remove(name),
    })
}

fn clean(value: &[u8]) -> Vec<u8> {
    let text: String = value.iter().map(|b| if *b < b' ' { ' ' } else { char::from(*b) }).collect();
    text.trim().into()
}

fn apply(model: &mut Vec<(String, Vec<u8>)>, operation: &Operation) {
    match operation {
        Operation::Push(name, value) => model.push(((*name).into(), clean(value))),
        Operation::Set(name, value) => {
            model.retain(|(line, _)| !line.eq_ignore_ascii_case(name));
            model.push(((*name).into(), clean(value)));
        }
        Operation::Append(name, value) => {
            match model.iter_mut().rfind(|(line, _)| line.eq_ignore_ascii_case(name)) {
                None => model.push(((*name).into(), clean(value))),
                Some((_, old)) if !clean(value).is_empty() => {
                    let joint = if old.is_empty() { &b""[..] } else { b", " };
                    *old = [&old[..], joint, &clean(value)].concat();
                }
                Some(_) => {}
            }
        }
        Operation::Remove(name) => model.retain(|(line, _)| !line.eq_ignore_ascii_case(name)),
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn random_operations_agree_with_a_plain_list(operations in prop::collection::vec(operation(), 0..12)) {
        let (mut fields, mut model) = (Fields::new(), Vec::new());
        for operation in &operations {
            match operation {
                Operation::Push(name, value) => fields.push(name, value),
                Operation::Set(name, value) => fields.set(name, value),
                Operation::Append(name, value) => fields.append(name, value),
                Operation::Remove(name) => { fields.remove(name); }
            }
            apply(&mut model, operation);
        }
        let lines: Vec<_> = fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        prop_assert_eq!(&lines, &model);
        let text: Vec<u8> =
            model.iter().flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"].concat()).collect();
        prop_assert_eq!(fields.text(), &text[..]);
        let joined: Vec<_> = model.iter().filter(|(name, _)| name.eq_ignore_ascii_case("a")).map(|(_, value)| value)
            .flat_map(|value| fields::members(value).map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(fields.list("A").map(<[u8]>::to_vec).collect::<Vec<_>>(), joined);
    }
}
