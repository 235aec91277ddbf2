//! Shard director tests: the same choices as varnishd 7.1.1, ring stability, health, rampup and
//! warmup.

use super::*;
use proptest::prelude::*;

const WELL: Health = Health { is_healthy: true, changed_s: 0.0 };
const SICK: Health = Health { is_healthy: false, changed_s: 0.0 };
const NOW_S: f64 = 1000.0;

fn shard(names: &[&'static str]) -> Shard<&'static str> {
    let mut shard = Shard::default();
    for name in names {
        assert_eq!(shard.add(*name, Instance::new(*name)), Ok(true));
    }
    shard.reconfigure(REPLICAS_DEFAULT).unwrap();
    shard
}

/// Returns the first `count` members in the key's order, ignoring health.
fn order(shard: &Shard<&'static str>, key: u32, count: usize) -> String {
    let alternative =
        |alternative| Selection { alternative, healthy: Healthy::Ignore, ..Selection::default() };
    let mut pick = |index| shard.pick(key, alternative(index), NOW_S, |_| SICK, || unreachable!()).copied();
    (0..count).filter_map(&mut pick).collect()
}

fn key_of_index(index: usize) -> u32 {
    key_of(format!("k{index}").as_bytes())
}

#[test]
fn keys_match_varnishd() {
    assert_eq!(key_of(b"k0"), 1_481_596_396);
    assert_eq!(key_of(b"k1"), 3_496_845_576);
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&[1, 2, 3, 4]);
    for (by, key) in [
        (By::Url(b"k0"), Ok(1_481_596_396)),
        (By::Digest(&digest), Ok(0x0102_0304)),
        (By::Key(7), Ok(7)),
        (By::Key(-1), Err(Error::Key(-1))),
        (By::Key(1 << 32), Err(Error::Key(1 << 32))),
        (By::Blob(&[1, 2]), Ok(0x0102)),
        (By::Blob(&[1, 2, 3, 4, 5]), Ok(0x0102_0304)),
        (By::Blob(&[]), Ok(0)),
    ] {
        assert_eq!(by.key(), key, "{by:?}");
    }
}

/// Choices for the keys of `k0` to `k39` must match varnishd's. The second director has five
/// replicas, a weight of 2 for a, and a different ident for b.
#[test]
fn shard_choices_match_varnishd() {
    let three = shard(&["a", "b", "c"]);
    let orders: Vec<String> = (0..40).map(|index| order(&three, key_of_index(index), 3)).collect();
    assert_eq!(
        orders.join(" "),
        "bca bca abc cba bac cab cba bca abc bca acb abc acb acb cab bac cba abc cab cba cab bca acb abc acb bac cab acb \
         cab cab cab bac cab cab cab cab abc cab bca acb"
    );
    let mut weighted = Shard::default();
    weighted.add("a", Instance { weight: 2.0, ..Instance::new("a") }).unwrap();
    weighted.add("b", Instance::new("foo")).unwrap();
    weighted.reconfigure(5).unwrap();
    let firsts: String = (0..40).map(|index| order(&weighted, key_of_index(index), 1)).collect();
    assert_eq!(firsts, "abaaaaabbbaaabbaabbaababbaabaaaabbababab");
}

#[test]
fn few_keys_move_when_a_member_is_added() {
    const KEYS: usize = 10_000;
    let mut shard = shard(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    let first = |shard: &Shard<_>, key| order(shard, key, 1);
    let before: Vec<String> = (0..KEYS).map(|key| first(&shard, key_of_index(key))).collect();
    shard.add("j", Instance::new("j")).unwrap();
    assert_eq!(
        first(&shard, key_of_index(0)),
        before[0],
        "the ring must not change before it is reconfigured"
    );
    shard.reconfigure(REPLICAS_DEFAULT).unwrap();
    let after: Vec<String> = (0..KEYS).map(|key| first(&shard, key_of_index(key))).collect();
    let moved: Vec<&String> =
        before.iter().zip(&after).filter(|(before, after)| before != after).map(|(_, after)| after).collect();
    assert!(moved.iter().all(|member| *member == "j"), "keys may move only to the new member");
    assert!(
        (KEYS / 15..KEYS / 7).contains(&moved.len()),
        "{} of {KEYS} keys moved, expected a tenth",
        moved.len()
    );
    shard.remove(&"j");
    shard.reconfigure(REPLICAS_DEFAULT).unwrap();
    assert!((0..KEYS).all(|key| first(&shard, key_of_index(key)) == before[key]));
}

#[test]
fn healthy_parameter_controls_the_choice() {
    let shard = shard(&["a", "b", "c"]);
    let key = key_of(b"k0"); // Order of members: b, c, a.
    for (sick, healthy, alternative, expected) in [
        ("", Healthy::Chosen, 0, Some("b")),
        ("b", Healthy::Chosen, 0, Some("c")),
        ("abc", Healthy::Chosen, 0, None),
        ("abc", Healthy::Ignore, 0, Some("b")),
        ("abc", Healthy::Ignore, 2, Some("a")),
        ("b", Healthy::Chosen, 1, Some("c")),
        ("b", Healthy::All, 1, Some("a")),
        ("c", Healthy::Chosen, 1, Some("a")),
        ("c", Healthy::All, 1, Some("a")),
        ("ac", Healthy::Chosen, 1, Some("b")),
        ("ac", Healthy::All, 2, Some("b")),
        ("bc", Healthy::All, 2, Some("a")),
        ("abc", Healthy::All, 1, None),
        ("", Healthy::Chosen, 99, Some("a")),
    ] {
        let selection = Selection { healthy, alternative, ..Selection::default() };
        let health = |member: &&str| if sick.contains(*member) { SICK } else { WELL };
        assert_eq!(
            shard.pick(key, selection, NOW_S, health, || 0.0).copied(),
            expected,
            "{sick} {selection:?}"
        );
    }
}

#[test]
fn newly_healthy_member_ramps_up() {
    let mut shard = shard(&["a", "b", "c"]);
    shard.set_rampup(100.0).unwrap();
    let key = key_of(b"k0"); // Order of members: b, c, a.
    let since = |member: &str, chosen_s: f64, next_s: f64| {
        let age_s = if member == "b" { chosen_s } else { next_s };
        Health { is_healthy: true, changed_s: NOW_S - age_s }
    };
    for (chosen_s, next_s, rampup, warmup, random, expected) in [
        (25.0, 500.0, true, 0.0, 0.74, "c"),
        (25.0, 500.0, true, 0.0, 0.76, "b"),
        (25.0, 50.0, true, 0.0, 0.0, "b"),
        (25.0, 500.0, false, 0.5, 0.0, "b"),
        (500.0, 500.0, true, 0.0, 0.0, "b"),
        (500.0, 500.0, true, 0.5, 0.49, "c"),
        (500.0, 500.0, false, 0.5, 0.51, "b"),
        (500.0, 50.0, true, 0.5, 0.0, "b"),
    ] {
        let selection = Selection { rampup, warmup: Some(warmup), ..Selection::default() };
        let picked = shard.pick(key, selection, NOW_S, |member| since(member, chosen_s, next_s), || random);
        assert_eq!(picked, Some(&expected), "{chosen_s} {next_s} {selection:?} {random}");
    }
    shard.set_warmup(1.0).unwrap();
    let long_well = |_: &&str| WELL;
    assert_eq!(shard.pick(key, Selection::default(), NOW_S, long_well, || 0.9), Some(&"c"));
    let alternative = Selection { alternative: 1, ..Selection::default() };
    assert_eq!(shard.pick(key, alternative, NOW_S, long_well, || 0.9), Some(&"c"));
    let only_b = |member: &&str| if *member == "b" { WELL } else { SICK };
    assert_eq!(shard.pick(key, Selection::default(), NOW_S, only_b, || 0.0), Some(&"b"));
}

#[test]
fn members_are_added_and_removed_by_name_and_ident() {
    let mut shard = Shard::default();
    assert_eq!(shard.pick(0, Selection::default(), NOW_S, |_| WELL, || 0.0), None);
    assert_eq!(shard.add("a", Instance::new("a")), Ok(true));
    assert_eq!(shard.add("a", Instance::new("a")), Ok(false));
    assert_eq!(shard.add("a", Instance::new("again")), Ok(true));
    assert_eq!(shard.add("b", Instance::new("b")), Ok(true));
    assert!(shard.is_changed());
    shard.reconfigure(1).unwrap();
    assert_eq!(shard.members().collect::<Vec<_>>(), [&"a", &"a", &"b"]);
    assert!(shard.remove_ident("again") && !shard.remove_ident("again"));
    assert!(shard.remove(&"a") && !shard.remove(&"a"));
    assert_eq!(shard.reconfigure(0), Err(Error::Replicas(0)));
    shard.reconfigure(1).unwrap();
    assert_eq!(shard.members().collect::<Vec<_>>(), [&"b"]);
    shard.clear();
    assert_eq!(shard.reconfigure(1), Err(Error::Empty));
    assert_eq!(shard.pick(0, Selection::default(), NOW_S, |_| WELL, || 0.0), None);
}

#[test]
fn invalid_arguments_are_rejected() {
    let mut shard = Shard::default();
    assert_eq!(shard.set_warmup(1.5), Err(Error::Warmup(1.5)));
    assert_eq!(shard.set_rampup(-1.0), Err(Error::Rampup(-1.0)));
    let heavy = |weight| Instance { weight, ..Instance::new("a") };
    assert_eq!(shard.add("a", heavy(f64::INFINITY)), Err(Error::Weight(f64::INFINITY)));
    let slow = Instance { rampup_s: Some(-1.0), ..Instance::new("a") };
    assert_eq!(shard.add("a", slow), Err(Error::Rampup(-1.0)));
    shard.add("a", heavy(1e300)).unwrap();
    assert_eq!(shard.reconfigure(1), Err(Error::Replicas(1)));
    assert_eq!(shard.reconfigure(i64::MAX), Err(Error::Replicas(i64::MAX)));
    assert!(shard.is_changed());
}

proptest! {
    #[test]
    fn healthy_member_is_found(
        count in 1usize..8, sick: u8, key: u32, alternative in 0usize..10, random in 0.0f64..1.0, all: bool
    ) {
        let mut shard = Shard::default();
        for index in 0..count {
            shard.add(index, Instance::new(format!("backend{index}"))).unwrap();
        }
        shard.reconfigure(3).unwrap();
        shard.set_warmup(0.5).unwrap();
        let is_healthy = |index: &usize| sick >> index & 1 == 0;
        let health = |index: &usize| if is_healthy(index) { WELL } else { SICK };
        let healthy = if all { Healthy::All } else { Healthy::Chosen };
        let picked = shard.pick(key, Selection { alternative, healthy, ..Selection::default() }, NOW_S, health, || random);
        prop_assert_eq!(picked.is_some(), (0..count).any(|index| is_healthy(&index)));
        prop_assert!(picked.is_none_or(is_healthy));
    }
}
