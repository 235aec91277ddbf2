//! Tests of the document format, fault reports, rule lookup and places.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

mod draws;

fn rule(prefix: &str) -> Rule {
    Rule {
        tenant: String::new(),
        prefix: prefix.parse().unwrap(),
        congestion_control: "bbr".into(),
        size_bytes_min: Some(100_000),
        initcwnd: None,
        initrwnd: None,
        holdout: Share::from_number(0.1).unwrap(),
        period_s: Some(300),
        switchback_block_s: None,
        salt: String::new(),
        reason: "slow: p20 of 1.2 Mbit/s".into(),
    }
}

fn switchback(prefix: &str) -> Rule {
    let holdout = Share::from_number(0.5).unwrap();
    Rule { holdout, switchback_block_s: Some(900), ..rule(prefix) }
}

fn arm(name: &str, share: f64, congestion_control: Option<&str>) -> Arm {
    let share = Share::from_number(share).unwrap();
    Arm { name: name.into(), share, congestion_control: congestion_control.map(str::to_owned) }
}

fn sample() -> Content {
    Content {
        number: 42,
        made_unix_s: 1_795_215_600,
        reason: "round of 23:00".into(),
        hosts_left_alone: vec!["audio.example".into()],
        tenants: vec![Tenant { hosts: vec!["news.example".into(), "sport.example".into()] }],
        rules: vec![
            Rule { salt: "7f-12".into(), ..rule("203.0.113.0/24") },
            Rule { size_bytes_min: None, period_s: None, ..rule("2001:db8::/32") },
            Rule { tenant: "news.example".into(), congestion_control: "reno".into(), ..rule("203.0.0.0/16") },
            switchback("198.51.100.0/24"),
        ],
        experiments: vec![Experiment {
            name: "live-bbr".into(),
            hosts: vec!["live.example".into()],
            salt: "november".into(),
            unit: Unit::Client,
            arms: vec![arm("as-is", 0.5, None), arm("bbr", 0.5, Some("bbr"))],
        }],
    }
}

#[test]
fn document_has_the_documented_form() {
    let bundle = Bundle::new(sample()).unwrap();
    // The expected checksum was computed in Python: hashlib.sha256 of json.dumps(…, sort_keys=True,
    // separators=(",", ":")).
    expect![[r#"
        {"checksum":"sha256:bf7a92b92d45ef81f8d613caa738ff83a3fb0bacf816b65d2a5a94cdd5a0034a","experiments":[{"arms":[{"name":"as-is","share":0.5},{"congestion_control":"bbr","name":"bbr","share":0.5}],"hosts":["live.example"],"name":"live-bbr","salt":"november","unit":"client"}],"format":4,"hosts_left_alone":["audio.example"],"made_at":"2026-11-20T23:00:00Z","number":42,"reason":"round of 23:00","rules":[{"congestion_control":"bbr","holdout":0.1,"period_s":300,"prefix":"203.0.113.0/24","reason":"slow: p20 of 1.2 Mbit/s","salt":"7f-12","size_bytes_min":100000},{"congestion_control":"bbr","holdout":0.1,"prefix":"2001:db8::/32","reason":"slow: p20 of 1.2 Mbit/s"},{"congestion_control":"reno","holdout":0.1,"period_s":300,"prefix":"203.0.0.0/16","reason":"slow: p20 of 1.2 Mbit/s","size_bytes_min":100000,"tenant":"news.example"},{"congestion_control":"bbr","holdout":0.5,"period_s":300,"prefix":"198.51.100.0/24","reason":"slow: p20 of 1.2 Mbit/s","size_bytes_min":100000,"switchback_block_s":900}],"tenants":[{"hosts":["news.example","sport.example"]}]}
    "#]]
    .assert_eq(&bundle.encode());
    assert_eq!(Bundle::decode(bundle.encode().as_bytes()).unwrap(), bundle);
}

#[test]
fn canonical_form_sorts_members_by_name() {
    let document = Bundle::new(sample()).unwrap().encode();
    let value: serde_json::Value = serde_json::from_str(&document).unwrap();
    // `Value` serializes its members in name order.
    assert_eq!(value.to_string(), document.trim_end());
}

#[test]
fn no_rule_applies_to_a_host_left_alone() {
    let bundle = Bundle::new(sample()).unwrap();
    let rule = |host| bundle.rule("203.0.113.7".parse().unwrap(), host);
    assert!(rule("live.example").is_some());
    assert_eq!([rule("audio.example"), rule("Audio.Example")], [None; 2]);
}

#[test]
fn tenant_uses_only_its_own_rules() {
    let bundle = Bundle::new(sample()).unwrap();
    let control = |client: &str, host| {
        bundle.rule(client.parse().unwrap(), host).map(|rule| rule.congestion_control.as_str())
    };
    let (both, own, other) = ("203.0.113.7", "203.0.7.7", "2001:db8::7");
    for host in ["news.example", "Sport.EXAMPLE"] {
        assert_eq!(
            [both, own, other].map(|client| control(client, host)),
            [Some("reno"), Some("reno"), None]
        );
    }
    assert_eq!(
        [both, own, other].map(|client| control(client, "live.example")),
        [Some("bbr"), None, Some("bbr")]
    );
}

#[test]
fn created_bundle_can_be_decoded() {
    let reason = "r".repeat(REASON_BYTES_MAX);
    let rule = |at: u32| Rule {
        prefix: format!("10.{}.{}.0/24", at / 256, at % 256).parse().unwrap(),
        reason: reason.clone(),
        ..rule("10.0.0.0/24")
    };
    let of = |rules| Bundle::new(Content { rules: (0..rules).map(rule).collect(), ..sample() });
    let faults = of(RULES_MAX as u32).unwrap_err().to_string();
    assert_eq!(faults, format!("longer than {BYTES_MAX} bytes"));
    let bundle = of(7_000).unwrap();
    assert_eq!(Bundle::decode(bundle.encode().as_bytes()).unwrap(), bundle);
}

#[test]
fn documentation_example_is_a_valid_bundle() {
    let page = include_str!("../../../docs/reference/bundle.md");
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let bundle = Bundle::decode(example.as_bytes()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(bundle.rule("203.0.113.7".parse().unwrap(), "any.example").unwrap().congestion_control, "bbr");
}

/// Asserts the fault report of a document.
fn check(document: &str, expected: Expect) {
    let text = match Bundle::decode(document.as_bytes()) {
        Ok(_) => "valid".to_owned(),
        Err(faults) => faults.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn every_fault_is_reported_with_its_location() {
    check(
        r#"{"format":4,"number":0,"made_at":"2026-11-20T23:00:00.5Z","reason":"a\nb","checksum":"sha256:00",
        "rules":[
          {"prefix":"203.0.113.0/24","congestion_control":"bbr","holdout":0.1,"period_s":0,"reason":"","initcwnd":0,"initrwnd":1001},
          {"prefix":"203.0.113.128/25","congestion_control":"b b","holdout":1.1,"period_s":300,"reason":"","switchback_block_s":400},
          {"prefix":"203.0.113.1/24","congestion_control":"","holdout":0.1234567,"reason":"","size_bytes_min":9999999999},
          {"prefix":"203.0.113.0","congestion_control":"bbr","holdout":-0.1,"reason":""},
          {"prefix":"::ffff:1.2.3.4/128","congestion_control":"bbr","holdout":0,"reason":""},
          {"prefix":"::/129","congestion_control":"bbr","holdout":1,"reason":""},
          {"prefix":"0.0.0.0/0","congestion_control":"bbr","holdout":1,"reason":""}
        ],
        "experiments":[
          {"name":"a","salt":"s","unit":"client","hosts":[],"arms":[]},
          {"name":"a","salt":"","unit":"connection","hosts":["a.example","A.example","b.example:80"],
           "arms":[{"name":"x","share":0.5},{"name":"x","share":0.4,"congestion_control":"cubic "}]},
          {"name":"c d","salt":"s","unit":"client","hosts":["a.example","a.example"],"arms":[{"name":"x","share":2}]},
          {"name":"e","salt":"s","unit":"client","arms":[{"name":"x","share":1}]}
        ]}"#,
        expect![[r#"
            /number: must be at least 1
            /made_at: must be a UTC time to the second, such as 2026-11-20T23:00:00Z (RFC 3339)
            /reason: must be one line of at most 1024 bytes
            /checksum: does not match the content, expected sha256:4773c36d5ca27a763dd43d7cb4c1db718414e6379548ab51755b188917ad3ed5
            /rules/0/initcwnd: must be from 1 to 1000 TCP segments
            /rules/0/initrwnd: must be from 1 to 1000 TCP segments
            /rules/0/period_s: must be from 1 to 31622400
            /rules/1/congestion_control: must be a congestion control name such as bbr
            /rules/1/holdout: must be from 0 to 1 with at most six decimals
            /rules/1/switchback_block_s: must be a multiple of period_s, from 1 to 31622400
            /rules/1/holdout: must be 0.5 in a switchback, which holds out one block in two
            /rules/2/prefix: bits after the prefix are set: write 203.0.113.0/24
            /rules/2/congestion_control: must be a congestion control name such as bbr
            /rules/2/size_bytes_min: must be at most 1073741824
            /rules/2/holdout: must be from 0 to 1 with at most six decimals
            /rules/3/prefix: must be an address prefix such as 203.0.113.0/24
            /rules/3/holdout: must be from 0 to 1 with at most six decimals
            /rules/4/prefix: IPv4-mapped IPv6 address: write it as IPv4
            /rules/5/prefix: prefix length must be at most 128
            /rules/0/prefix: 203.0.113.0/24 overlaps 0.0.0.0/0 of /rules/6
            /rules/1/prefix: 203.0.113.128/25 overlaps 0.0.0.0/0 of /rules/6
            /experiments/0/hosts: must not be empty; omit it to match any host
            /experiments/0/arms: shares must sum to 1, got 0
            /experiments/1/salt: must be 1 to 64 letters, digits, ".", "_" or "-"
            /experiments/1/hosts/1: must be a lower-case host name without port or trailing dot
            /experiments/1/hosts/2: must be a lower-case host name without port or trailing dot
            /experiments/1/arms/1/congestion_control: must be a congestion control name such as bbr
            /experiments/1/arms/1/name: duplicate of /experiments/1/arms/0/name
            /experiments/1/arms: shares must sum to 1, got 0.9
            /experiments/2/name: must be 1 to 64 letters, digits, ".", "_" or "-"
            /experiments/2/arms/0/share: must be from 0 to 1 with at most six decimals
            /experiments/1/name: duplicate of /experiments/0/name
            /experiments/3: applies to any host, so it must be the only experiment
            /experiments/2/hosts/0: duplicate of /experiments/1/hosts/0
            /experiments/2/hosts/1: duplicate of /experiments/1/hosts/0"#]],
    );
}

#[test]
fn tenant_faults_are_reported() {
    let rule = |tenant: &str, prefix: &str| {
        format!(
            r#"{{"congestion_control":"bbr","holdout":0,"prefix":"{prefix}","reason":"","tenant":"{tenant}"}}"#
        )
    };
    let tenants = r#"[{"hosts":["a.example","b.example"]},{"hosts":[]},{"hosts":["b.example","c.example","A","d.example."]}]"#;
    let rules = [
        rule("a.example", "10.0.0.0/8"),
        rule("b.example", "10.0.0.0/24"),
        rule("b.example", "10.0.0.0/24"),
        rule("a.example", "10.1.0.0/16"),
        rule("", "10.1.0.0/16"),
    ]
    .join(",");
    let document = format!(
        r#"{{"experiments":[],"format":4,"hosts_left_alone":["c.example"],"made_at":"2026-11-20T23:00:00Z","number":1,"reason":"","rules":[{rules}],"tenants":{tenants}}}"#
    );
    check(
        &document,
        expect![[r#"
            /checksum: missing, expected sha256:96b40d8fb585946841924db96d04dfef86e1ab8a1b3a08451f074029421fe98f
            /tenants/1/hosts: must have at least one host
            /tenants/2/hosts/2: must be a lower-case host name without port or trailing dot
            /tenants/2/hosts/3: must be a lower-case host name without port or trailing dot
            /tenants/2/hosts/0: duplicate of /tenants/0/hosts/1
            /tenants/2/hosts/1: duplicate of /hosts_left_alone/0
            /rules/4/tenant: must be the first host of a tenant in /tenants
            /rules/3/prefix: 10.1.0.0/16 overlaps 10.0.0.0/8 of /rules/0
            /rules/2/prefix: 10.0.0.0/24 overlaps 10.0.0.0/24 of /rules/1"#]],
    );
}

#[test]
fn unreadable_document_is_refused() {
    check("", expect!["1:0: EOF while parsing a value"]);
    check("{\"format\":5,\n \"number\": 1.5}", expect!["/format: unsupported format 5, expected 4"]);
    check(
        r#"{"format":4,"colour":"red"}"#,
        expect![
            "1:20: unknown field `colour`, expected one of `checksum`, `experiments`, `format`, `hosts_left_alone`, `made_at`, `number`, `reason`, `rules`, `tenants`"
        ],
    );
    let document = Bundle::new(sample()).unwrap().encode();
    check(
        &document.replace("\"reason\"", "\"raeson\""),
        expect![
            "1:374: unknown field `raeson`, expected one of `checksum`, `experiments`, `format`, `hosts_left_alone`, `made_at`, `number`, `reason`, `rules`, `tenants`"
        ],
    );
    check(
        &document.replace("\"client\"", "\"viewer\""),
        expect!["1:270: unknown variant `viewer`, expected `client` or `connection`"],
    );
    check(
        &document.replacen("\"number\":42", "\"number\":42,\"number\":42", 1),
        expect!["1:374: duplicate field `number`"],
    );
    check(
        &document.replacen("\"checksum\":", "\"checksum\":null,\"checksum\":", 1),
        expect!["1:27: duplicate field `checksum`"],
    );
    check(
        &document.replace("\"format\":4", "\"format\":3"),
        expect!["/format: unsupported format 3, expected 4"],
    );
    check(
        &document.replace("203.0.113", "203.0.114"),
        expect![
            "/checksum: does not match the content, expected sha256:4d0fd942ef4c1c84273ec170fc5e2135b5d68b6c1535fbf5b217b7be31d694d9"
        ],
    );
    check(&" ".repeat(BYTES_MAX + 1), expect!["longer than 8388608 bytes"]);
}

#[test]
fn initial_windows_are_in_the_document_only_if_set() {
    let plain = Bundle::new(sample()).unwrap();
    let mut content = sample();
    (content.rules[1].initcwnd, content.rules[1].initrwnd) = (Some(32), Some(1000));
    let bundle = Bundle::new(content).unwrap();
    let windows = r#""holdout":0.1,"initcwnd":32,"initrwnd":1000,"prefix":"2001:db8::/32""#;
    assert!(bundle.encode().contains(windows) && !plain.encode().contains("initcwnd"));
    assert_ne!(bundle.checksum(), plain.checksum());
    assert_eq!(Bundle::decode(bundle.encode().as_bytes()).unwrap(), bundle);
}

#[test]
fn declared_checksum_is_read_even_from_a_faulty_document() {
    let bundle = Bundle::new(sample()).unwrap();
    let checksum = Some(bundle.checksum().to_owned());
    let document = bundle.encode();
    assert_eq!(declared_checksum(document.as_bytes()), checksum);
    for wrong in
        [document.replace("\"format\":4", "\"format\":3"), document.replace("\"number\":", "\"count\":")]
    {
        assert!(Bundle::decode(wrong.as_bytes()).is_err());
        assert_eq!(declared_checksum(wrong.as_bytes()), checksum);
    }
    let sum = bundle.checksum();
    for none in [
        document[..document.len() / 2].to_owned(),
        document.replace(sum, &sum.to_uppercase()),
        document.replace(sum, &sum[..sum.len() - 1]),
        document.replace(sum, &format!("{sum}0")),
        document.replace(sum, &format!("{} ", &sum[..sum.len() - 1])),
        document + &" ".repeat(BYTES_MAX),
        "{}".into(),
        "[]".into(),
        r#"{"checksum": 1}"#.into(),
    ] {
        assert_eq!(declared_checksum(none.as_bytes()), None);
    }
}

#[test]
fn excess_entries_are_reported_and_the_report_is_bounded() {
    let rules = (0..=RULES_MAX as u32).map(|at| rule(&format!("{}/32", Ipv4Addr::from_bits(at)))).collect();
    let experiments = (0..EXPERIMENTS_MAX + FAULTS_MAX).map(|_| sample().experiments.remove(0)).collect();
    let faults = Bundle::new(Content { rules, experiments, ..sample() }).unwrap_err();
    assert_eq!(faults.all().len(), FAULTS_MAX);
    assert!(faults.more() > 0);
    let text = faults.to_string();
    assert!(text.contains("/rules: must have at most 10000 entries, got 10001"), "{text}");
    assert!(text.contains("/experiments: must have at most 64 entries, got 164"), "{text}");
}

#[test]
fn places_agree_with_the_reference_implementation() {
    // Expected values computed with python-xxhash: `xxh3_64_intdigest(key,
    // xxh3_64_intdigest(salt))`, scaled to a million.
    let connection = |text: &str| place::of("203.0.113.0/24", &place::connection(text.parse().unwrap()));
    let client = |text: &str| place::of("november", &place::client(text.parse().unwrap()));
    let places = [
        connection("203.0.113.7:50000"),
        connection("203.0.113.7:50001"),
        connection("[2001:db8::7]:50000"),
        client("203.0.113.7"),
        client("::ffff:203.0.113.7"),
        client("2001:db8:0:12::7"),
        client("2001:db8:0:1200::"),
        client("2001:db8:0:ff::8"),
    ];
    expect!["[161595, 944350, 954178, 38252, 38252, 185496, 409889, 185496]"]
        .assert_eq(&format!("{places:?}"));
}

#[test]
fn experiment_applies_to_its_hosts() {
    let bundle = Bundle::new(sample()).unwrap();
    assert!(bundle.experiment("LIVE.example").is_some());
    assert!(bundle.experiment("vod.example").is_none());
    let mut content = sample();
    content.experiments[0].hosts.clear();
    assert!(Bundle::new(content).unwrap().experiment("vod.example").is_some());
}

#[test]
fn unit_decides_whether_connections_share_an_arm() {
    let mut experiment = sample().experiments.remove(0);
    let arms = |experiment: &Experiment| {
        let arm = |port| experiment.arm((Ipv4Addr::LOCALHOST, port).into()).name.clone();
        (1..100).map(arm).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(arms(&experiment), 1);
    experiment.unit = Unit::Connection;
    assert_eq!(arms(&experiment), 2);
}

/// Asserts that `count` of `of` is within six standard deviations of `share`. Fails by chance in
/// one of 5·10^8 runs.
fn assert_binomial(count: u32, of: u32, share: f64) {
    let (n, expected) = (f64::from(of), f64::from(of) * share);
    let deviation = (n * share * (1.0 - share)).sqrt();
    let off = (f64::from(count) - expected).abs();
    assert!(off <= 6.0 * deviation, "{count} of {of}, expected a share of {share}");
}

prop_compose! {
    /// Generates addresses whose bits are zero after a random prefix of up to 32 bits, so that
    /// prefixes often overlap.
    fn addresses()(at in any::<u32>(), bits in 0_u32..=32, is_v6 in any::<bool>()) -> IpAddr {
        let at = at & !(u32::MAX.checked_shr(bits).unwrap_or(0));
        match is_v6 {
            false => Ipv4Addr::from_bits(at).into(),
            true => Ipv6Addr::from_bits(u128::from(at) << 96).into(),
        }
    }
}

prop_compose! {
    fn prefixes()(address in addresses(), bits in 0_u8..=40) -> Prefix {
        let bits = if address.is_ipv4() { bits.min(32) } else { bits };
        Prefix::cut(address, bits)
    }
}

prop_compose! {
    fn contents()(
        number in 1_u64..,
        made_unix_s in 0_u64..=crate::MADE_UNIX_S_MAX,
        reason in "[ -~é]{0,40}",
        rules in proptest::collection::vec((prefixes(), 0_u32..=100, any::<Option<u16>>(), "[a-z0-9_]{1,15}", any::<bool>()), 0..20),
        shares in proptest::collection::vec(0_u32..=50, 0..8),
        unit in proptest::sample::select(vec![Unit::Client, Unit::Connection]),
    ) -> Content {
        let mut kept: Vec<Rule> = Vec::new();
        for (prefix, holdout, size, congestion_control, is_tenants) in rules {
            let tenant = if is_tenants { "news.example".to_owned() } else { String::new() };
            let meets = |rule: &Rule| rule.prefix.contains(prefix.first()) || prefix.contains(rule.prefix.first());
            if !kept.iter().any(|rule| rule.tenant == tenant && meets(rule)) {
                let holdout = Share::from_millionths(holdout * 10_000).unwrap();
                let size_bytes_min = size.map(u64::from);
                let salt = if prefix.bits() % 2 == 0 { String::new() } else { format!("s{}", prefix.bits()) };
                let (holdout, period_s, switchback_block_s) = if holdout == Share::from_number(0.5).unwrap() {
                    (holdout, Some(300), Some(900))
                } else {
                    (holdout, size_bytes_min.map(|size| size as u32 % 600 + 1), None)
                };
                let initcwnd = size_bytes_min.map(|size| size as u16 % crate::INITIAL_WINDOW_MAX + 1);
                let initrwnd = initcwnd.filter(|window| window % 2 == 0);
                kept.push(Rule { tenant, prefix, holdout, period_s, switchback_block_s, salt, size_bytes_min, initcwnd, initrwnd, congestion_control, reason: reason.clone() });
            }
        }
        let mut left = Share::ALL.millionths();
        let mut arms = Vec::new();
        for (at, share) in shares.into_iter().enumerate() {
            let share = (share * 10_000).min(left);
            left -= share;
            arms.push(arm(&format!("a{at}"), f64::from(share) / 1e6, None));
        }
        arms.push(arm("rest", f64::from(left) / 1e6, Some("reno")));
        let experiment = Experiment { arms, unit, ..sample().experiments.remove(0) };
        let hosts_left_alone = if number % 2 == 0 { Vec::new() } else { sample().hosts_left_alone };
        let tenants = sample().tenants;
        Content { number, made_unix_s, reason, hosts_left_alone, tenants, rules: kept, experiments: vec![experiment] }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn look_up_agrees_with_a_linear_scan(content in contents(), addresses in proptest::collection::vec(addresses(), 50)) {
        let bundle = Bundle::new(content).unwrap();
        let rules = &bundle.content().rules;
        let ends = rules.iter().flat_map(|rule| [rule.prefix.first(), rule.prefix.last()]);
        for address in addresses.into_iter().chain(ends) {
            for (host, tenant) in [("", ""), ("SPORT.example", "news.example")] {
                let scanned = rules.iter().find(|rule| rule.tenant == tenant && rule.prefix.contains(address));
                prop_assert_eq!(bundle.rule(address, host), scanned, "{} {}", address, host);
            }
        }
    }

    #[test]
    fn overlaps_are_reported(prefixes in proptest::collection::vec(prefixes(), 0..12)) {
        let overlap = prefixes.iter().enumerate().any(|(at, one)| {
            prefixes[..at].iter().any(|other| one.contains(other.first()) || other.contains(one.first()))
        });
        let rules = prefixes.iter().map(|prefix| rule(&prefix.to_string())).collect();
        prop_assert_eq!(Bundle::new(Content { rules, ..sample() }).is_err(), overlap);
    }

    #[test]
    fn encoded_bundle_decodes_to_itself(content in contents()) {
        let bundle = Bundle::new(content.clone()).unwrap();
        let read = Bundle::decode(bundle.encode().as_bytes()).unwrap();
        prop_assert_eq!(&read, &bundle);
        prop_assert_eq!(read.content(), &content);
    }

    #[test]
    fn any_changed_byte_is_detected(content in contents(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut document = Bundle::new(content).unwrap().encode().into_bytes();
        document.pop();
        let at = at.index(document.len());
        prop_assume!(document[at] != byte);
        document[at] = byte;
        prop_assert!(Bundle::decode(&document).is_err(), "byte {} is {:?}", at, char::from(byte));
    }

    #[test]
    fn decoding_never_panics(document in ".*") {
        let _ = Bundle::decode(document.as_bytes());
    }
}
