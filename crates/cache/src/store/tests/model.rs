//! Model test of the index: random sequences of events.

use super::*;

/// Creates the head that the model fetches under a key; see [`purges()`].
fn head_for(key: usize, max_age: u32, length: Option<u64>) -> Head {
    let surrogate =
        [("Surrogate-Key", if key.is_multiple_of(2) { "even" } else { "odd" })].into_iter().collect();
    Head { status: if key.is_multiple_of(2) { 200 } else { 404 }, surrogate, ..head(max_age, length) }
}

#[derive(Debug, Clone)]
enum Step {
    LookUp { key: usize, now_s: u64 },
    Begin { fill: usize, max_age: u32, length: u64, private: bool },
    Append(usize),
    Complete(usize),
    Fail(usize),
    Drop(usize),
    Validated { fill: usize, private: bool },
    Shrink(u64),
    Purge { which: usize, soft: bool },
    Sweep,
}

/// Whether a purge applies to responses fetched under a key.
type IsAbout = fn(usize) -> bool;

/// Returns the model's purges, and whether each applies to responses fetched under a key. Even keys
/// have the purged tag, odd keys the banned status.
fn purges() -> [(PurgeScope, IsAbout); 4] {
    [
        (purges::url("0"), |key| key == 0),
        (purges::url("1"), |key| key == 1),
        (purges::tag("even"), |key| key.is_multiple_of(2)),
        (purges::ban("obj.status == 404"), |key| !key.is_multiple_of(2)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..4usize, 0..4u64).prop_map(|(key, now_s)| Step::LookUp { key, now_s }),
        4 => (any::<usize>(), 0..4u32, 0..2 * SLAB, prop::bool::weighted(0.2))
            .prop_map(|(fill, max_age, length, private)| Step::Begin { fill, max_age, length, private }),
        3 => any::<usize>().prop_map(Step::Append),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Drop),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(fill, private)| Step::Validated { fill, private }),
        1 => (0..4 * SLAB).prop_map(Step::Shrink),
        2 => (0..4usize, any::<bool>()).prop_map(|(which, soft)| Step::Purge { which, soft }),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..80)
}

/// A fill driven by the model.
struct Driven {
    key: usize,
    fill: Fill,
    /// The fill's reader; `None` for a background revalidation.
    reader: Option<Reader<Arc<Head>>>,
    stale: Option<Arc<Stored>>,
    left: Option<u64>,
    /// Whether new requests still wait for the fill.
    pending: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn look_up_returns_no_failed_response_and_one_pending_fetch_per_key(steps in steps()) {
        let cache = Cache::new(8 * SLAB).unwrap();
        let mut fills: Vec<Driven> = Vec::new();
        // The number of each purge, whether it was soft, and the keys to which it applies.
        let mut purged: Vec<(u64, bool, IsAbout)> = Vec::new();
        for step in steps {
            let driven = |fill: usize| (!fills.is_empty()).then(|| fill % fills.len());
            match step {
                Step::LookUp { key, now_s } => {
                    let pending = fills.iter().filter(|f| f.key == key && f.pending).count();
                    // Any response found must have been fetched after every hard purge that applies
                    // to it. After a soft purge, it may only be served stale.
                    let spared = |stored: &Stored, is_fresh: bool| {
                        purged.iter().all(|(number, soft, is_about)| {
                            !is_about(key) || stored.number() >= *number || *soft && !is_fresh
                        })
                    };
                    match look_up(&cache, &key.to_string(), now_s * 1000) {
                        Lookup::Hit(stored) => {
                            prop_assert!(matches!(stored.content.progress(), Progress::Complete(_)));
                            prop_assert!(spared(&stored, true));
                        }
                        Lookup::Joined(stored) => {
                            prop_assert!(spared(&stored, true));
                            prop_assert!(matches!(stored.content.progress(), Progress::Filling(_)));
                        }
                        Lookup::Wait(reader, _) => {
                            prop_assert_eq!(pending, 1);
                            prop_assert_eq!(reader.progress(), Progress::AwaitingHead);
                        }
                        Lookup::Miss(fill, reader) => {
                            prop_assert_eq!(pending, 0);
                            let reader = Some(reader);
                            fills.push(Driven { key, fill, reader, stale: None, left: None, pending: true });
                        }
                        Lookup::Stale(fill, reader, stored) => {
                            prop_assert_eq!(pending, 0);
                            prop_assert!(matches!(stored.content.progress(), Progress::Complete(_)));
                            prop_assert!(spared(&stored, false));
                            let (reader, stale) = (Some(reader), Some(stored));
                            fills.push(Driven { key, fill, reader, stale, left: None, pending: true });
                        }
                        Lookup::Refresh(stored, fill) => {
                            prop_assert!(!matches!(stored.content.progress(), Progress::Failed(_)));
                            prop_assert_eq!(fill.is_some(), pending == 0);
                            prop_assert!(spared(&stored, false));
                            let stale = stored.is_complete().then_some(stored);
                            let begun = |fill| Driven { key, fill, reader: None, stale, left: None, pending: true };
                            fills.extend(fill.map(begun));
                        }
                        Lookup::Pass => prop_assert_eq!(pending, 0),
                        Lookup::HitMiss(..) => prop_assert!(false, "no policy marks a key"),
                        Lookup::Nothing => prop_assert!(false, "only-if-cached was not requested"),
                    }
                }
                Step::Begin { fill, max_age, length, private: is_private } => {
                    if let Some(driven) = driven(fill).map(|at| &mut fills[at]).filter(|f| f.left.is_none()) {
                        let private = is_private.then_some(Unshareable { reason: "private", mark: PassMark::No });
                        let mut head = Head { private, ..head_for(driven.key, max_age, Some(length)) };
                        // Half of the responses may be served stale for 3 s.
                        head.freshness.while_revalidate_ms = u64::from(max_age % 2) * 3000;
                        driven.fill.begin(head, 0);
                        driven.left = Some(length);
                        driven.pending = false;
                    }
                }
                Step::Append(fill) => {
                    if let Some(Driven { fill, left: Some(left), .. }) = driven(fill).map(|at| &mut fills[at]) {
                        let piece = (*left).min(100_000);
                        if piece > 0 {
                            prop_assert!(fill.append(Bytes::from(vec![7; piece as usize]), 0).is_ok());
                            *left -= piece;
                        }
                    }
                }
                Step::Complete(fill) => {
                    if let Some(at) = driven(fill).filter(|at| fills[*at].left.is_some()) {
                        fills.swap_remove(at).fill.complete();
                    }
                }
                Step::Fail(fill) => {
                    if let Some(at) = driven(fill) {
                        let Driven { fill, reader, .. } = fills.swap_remove(at);
                        fill.fail(Failure::NoRoom);
                        if let Some(mut reader) = reader {
                            prop_assert!(matches!(reader.try_next(1), Some(Ok(Some(_)) | Err(_))));
                        }
                    }
                }
                Step::Drop(fill) => {
                    if let Some(at) = driven(fill) {
                        fills.swap_remove(at);
                    }
                }
                Step::Validated { fill, private: is_private } => {
                    let stale = |at: &usize| fills[*at].stale.is_some() && fills[*at].left.is_none();
                    if let Some(at) = driven(fill).filter(stale) {
                        let Driven { key, fill, stale: Some(stale), .. } = fills.swap_remove(at) else { unreachable!() };
                        let updated = if is_private { private(PassMark::No) } else { head_for(key, 2, None) };
                        let mut notified = false;
                        fill.validated(&stale, updated, |_| notified = true);
                        prop_assert!(notified);
                    }
                }
                Step::Shrink(bytes) => cache.make_room(bytes),
                Step::Purge { which, soft } => {
                    let (what, is_about) = purges()[which].clone();
                    if let PurgeScope::Url(key) = &what {
                        fills.iter_mut().filter(|f| f.key.to_string() == **key).for_each(|f| f.pending = false);
                    }
                    let is_ban = matches!(what, PurgeScope::Ban(_));
                    cache.purge(what, (soft && !is_ban).then_some(0)).unwrap();
                    purged.push((cache.purges.number(), soft && !is_ban, is_about));
                }
                Step::Sweep => cache.sweep(),
            }
        }
        drop(fills);
        cache.sweep();
        prop_assert_eq!(cache.purges_in_force(), 0);
        // Nothing leaks: every stored response can be evicted, and then all memory is free.
        for _ in 0..10 {
            cache.make_room(8 * SLAB);
        }
        prop_assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
        prop_assert!(cache.arena().free_slabs() >= cache.arena().slabs_max() - 2);
        prop_assert!(cache.shards.iter().all(|shard| lock(shard).slots.is_empty()));
    }
}
