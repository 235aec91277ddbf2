//! All sequences, by subject.

mod changes;
mod conditions;
mod fetches;
mod fields;
pub(crate) mod policies;
mod ranges;
mod requests;
mod reuse;
mod stale;
mod statuses;
mod storing;
mod validation;

use crate::sequence::Sequence;

/// Returns all sequences; names are unique.
pub(crate) fn all() -> Vec<Sequence> {
    let all: Vec<Sequence> = [
        storing::all(),
        statuses::all(),
        reuse::all(),
        validation::all(),
        stale::all(),
        requests::all(),
        ranges::all(),
        conditions::all(),
        fields::all(),
        changes::all(),
        fetches::all(),
    ]
    .concat();
    let mut names: Vec<_> = all.iter().map(|sequence| sequence.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "duplicate name: {names:?}");
    all
}
