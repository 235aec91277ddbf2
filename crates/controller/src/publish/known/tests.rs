//! What is due, and what is known of the topic, while partitions come and go.

use thalweg_bundle::Content;

use super::*;

// Their partitions, of twelve, are 0 and 6.
const NEAR: &str = "fra1";
const FAR: &str = "lhr2";

/// Twelve partitions, of which these are not read.
fn partitions(unread: &[i32]) -> Partitions {
    let mut partitions = Partitions::default();
    partitions.found(12, None);
    (0..12).filter(|partition| !unread.contains(partition)).for_each(|partition| {
        assert!(partitions.ended(partition));
    });
    partitions
}

fn bundle(number: u64) -> Bundle {
    Bundle::new(Content { number, ..Content::default() }).unwrap()
}

fn whom(pop: &str, edge: Option<&str>) -> Whom {
    (pop.to_owned(), edge.map(str::to_owned))
}

/// What an edge says in its PoP's partition.
fn say(known: &mut Known, partitions: &Partitions, (pop, edge): (&str, &str), now: Instant) {
    let key = Key::Acknowledged(pop.into(), edge.into()).to_string();
    let said = Acknowledged { number: Some(7), ..Acknowledged::default() }.encode();
    let of = (partitions, partitions.of(pop).unwrap());
    known.take(of, &key, Some(said.as_bytes()), now);
}

/// What there is in a partition.
fn find(known: &mut Known, of: (&Partitions, i32), key: &str, document: &str) {
    known.take(of, key, Some(document.as_bytes()), Instant::now());
}

#[test]
fn a_partition_that_is_away_holds_no_pop_of_another_up() {
    let (mut known, mut partitions, now) = (Known::default(), partitions(&[6]), Instant::now());
    known.are_due([NEAR, FAR].map(str::to_owned), now);
    say(&mut known, &partitions, (NEAR, "a"), now);
    say(&mut known, &partitions, (FAR, "b"), now);
    assert_eq!(known.in_turn(&partitions), [whom(NEAR, None), whom(NEAR, Some("a"))]);
    assert!(known.said(&whom(NEAR, Some("a"))).is_some());
    // What was there before it was read is old: it is said again.
    assert!(partitions.ended(6));
    known.done(&whom(NEAR, None));
    known.done(&whom(NEAR, Some("a")));
    assert_eq!(known.in_turn(&partitions), [whom(FAR, None)]);
    say(&mut known, &partitions, (FAR, "b"), now);
    assert_eq!(known.in_turn(&partitions), [whom(FAR, None), whom(FAR, Some("b"))]);
}

#[test]
fn what_an_edge_says_is_heard_once_and_holds_for_a_while() {
    let (mut known, partitions, now) = (Known::default(), partitions(&[]), Instant::now());
    let edge = whom(NEAR, Some("a"));
    say(&mut known, &partitions, (NEAR, "a"), now);
    assert_eq!(known.said(&edge).unwrap().number, Some(7));
    known.heard(&edge);
    known.done(&edge);
    assert_eq!(known.said(&edge), None);
    // It is asked for it nevertheless, as long as it is there.
    for (later, is_there) in [(HEARD_FOR - Duration::from_secs(1), true), (HEARD_FOR, false)] {
        known.are_due([NEAR.to_owned()], now + later);
        assert_eq!(known.in_turn(&partitions).contains(&edge), is_there);
        known.done(&edge);
    }
    known.are_due(["no name".to_owned()], now);
    assert_eq!(known.in_turn(&partitions), [whom(NEAR, None)]);
}

#[test]
fn after_a_partition_that_fails_come_the_others() {
    let (mut known, partitions, now) = (Known::default(), partitions(&[]), Instant::now());
    say(&mut known, &partitions, (NEAR, "a"), now);
    known.are_due([NEAR, FAR].map(str::to_owned), now);
    let [near, of_near, far] = [whom(NEAR, None), whom(NEAR, Some("a")), whom(FAR, None)];
    assert_eq!(known.in_turn(&partitions), [near.clone(), of_near.clone(), far.clone()]);
    known.failed(&near, &partitions);
    assert_eq!(known.in_turn(&partitions), [far.clone(), near.clone(), of_near.clone()]);
    known.failed(&far, &partitions);
    assert_eq!(known.in_turn(&partitions), [near.clone(), of_near.clone(), far.clone()]);
    // An edge has a copy of its own only of what not all of its PoP have: that has to be there first.
    assert!(known.waits(&of_near) && !known.waits(&near));
    known.done(&near);
    assert!(!known.waits(&of_near));
}

#[test]
fn an_edge_has_its_own_only_where_it_is_another() {
    let mut known = Known::default();
    let [old, new] = [1, 2].map(|number| Document::new(&bundle(number)));
    let (all, edge) = (whom(NEAR, None), whom(NEAR, Some("a")));
    let write = |known: &mut Known, whom: &Whom, document: &Document| {
        let (key, is_wanted) = known.to_write(whom, document)?;
        known.writes(&key);
        known.written(key.clone(), is_wanted.then(|| document.checksum()));
        Some((key.to_string(), is_wanted))
    };
    assert_eq!(write(&mut known, &all, &old), Some(("bundle/fra1".into(), true)));
    assert_eq!(write(&mut known, &edge, &old), None);
    assert_eq!(write(&mut known, &edge, &new), Some(("bundle/fra1/a".into(), true)));
    assert_eq!(write(&mut known, &edge, &new), None);
    // It is none any more.
    assert_eq!(write(&mut known, &edge, &old), Some(("bundle/fra1/a".into(), false)));
    assert_eq!(write(&mut known, &edge, &old), None);
    // All is written again, and nothing that is not there removed.
    known.forget();
    assert_eq!(write(&mut known, &edge, &new), Some(("bundle/fra1/a".into(), true)));
    assert_eq!(write(&mut known, &all, &old), Some(("bundle/fra1".into(), true)));
    assert_eq!(write(&mut known, &all, &old), None);
}

#[test]
fn what_may_be_there_is_removed() {
    let (all, edge) = (whom(NEAR, None), whom(NEAR, Some("a")));
    let document = Document::new(&bundle(1));
    let own = Key::Bundle(NEAR.into(), Some("a".into()));
    let with_all = || {
        let mut known = Known::default();
        known.written(Key::Bundle(NEAR.into(), None), Some(document.checksum()));
        known
    };
    // Nobody knows whether it was written.
    let mut known = with_all();
    known.writes(&own);
    assert_eq!(known.to_write(&edge, &document), Some((own.clone(), false)));
    // Nor after all is written again.
    let mut known = with_all();
    known.written(own.clone(), Some("another"));
    known.forget();
    known.written(Key::Bundle(NEAR.into(), None), Some(document.checksum()));
    assert_eq!(known.to_write(&edge, &document), Some((own.clone(), false)));
    // It is no bundle.
    let (mut known, unread) = (with_all(), partitions(&[0]));
    find(&mut known, (&unread, 0), &own.to_string(), "{}");
    assert_eq!(known.to_write(&edge, &document), Some((own.clone(), false)));
    assert_eq!(known.to_write(&all, &document), None);
    // It was removed by somebody.
    known.take((&unread, 0), &own.to_string(), None, Instant::now());
    assert_eq!(known.to_write(&edge, &document), None);
}

#[test]
fn only_what_is_in_a_pops_own_partition_counts() {
    let (mut known, unread, all) = (Known::default(), partitions(&[0, 1]), whom(NEAR, None));
    let document = Document::new(&bundle(1));
    let key = Key::Bundle(NEAR.into(), None);
    find(&mut known, (&unread, 1), "bundle/fra1", &document.text);
    assert_eq!(known.to_write(&all, &document), Some((key.clone(), true)));
    find(&mut known, (&unread, 0), "bundle/fra1", &document.text);
    assert_eq!(known.to_write(&all, &document), None);
    // Once it is read, what is there is what was written here.
    let read = partitions(&[]);
    known.take((&read, 0), "bundle/fra1", None, Instant::now());
    assert_eq!(known.to_write(&all, &document), None);
    // Nothing holds of a topic that is another one.
    known.begin();
    assert_eq!(known.to_write(&all, &document), Some((key, true)));
}
