//! Rollout target: decoding of rollouts, and their handling of polls, windows and ticks.

use std::sync::Arc;

use thalweg_control::{EdgeFigures, Poll, Rollout, Settings, State, Tenants, Transition, Window};

/// Number of ticks, [`STEP_S`] apart: together longer than any wait for a candidate.
const TICKS: u64 = 40;
const STEP_S: u64 = 60;
const RESPONSES: u64 = 40;

/// Decodes `input` as a rollout in JSON. If it ends with a line feed, the responses sent by edges
/// fail.
pub(crate) fn run(input: &[u8]) {
    let read = Rollout::decode(input).or_else(|_| Rollout::decode_without_bundles(input));
    let Ok(mut rollout) = read else { return };
    let settings = Settings::default();
    let mut tenants = Tenants::from_iter([(String::new(), State::default())]);
    let mut now_unix_s = 1_800_000_000;
    let is_bad = input.ends_with(b"\n");
    check(&rollout, &[]);
    // Bundle number reported by edges, derived from the input. It may be a number that no
    // controller issues.
    let number = input.first_chunk().map(|bytes| u64::from_le_bytes(*bytes) >> (input.len() % 64));
    rollout.resume(now_unix_s - 1);
    check(&rollout, &[]);
    let names: Vec<_> = rollout.edges().keys().cloned().collect();
    for name in &names {
        let given = rollout.document(name).map(|bundle| bundle.checksum().to_owned());
        let poll = Poll { edge: name, in_force: given.as_deref(), number, refused: None };
        let transitions = rollout.poll(&settings, &mut tenants, poll, now_unix_s);
        check(&rollout, &transitions);
    }
    let edges = names.iter().map(|name| (name.clone(), figures(is_bad))).collect();
    let number = now_unix_s / settings.window_s + 1;
    let window = Window { number, records: 1, edges: Arc::new(edges), ..Window::default() };
    let transitions = rollout.observe(&settings, &mut tenants, &window, now_unix_s);
    check(&rollout, &transitions);
    for _ in 0..TICKS {
        now_unix_s += STEP_S;
        let transitions = rollout.tick(&settings, &mut tenants, now_unix_s);
        check(&rollout, &transitions);
    }
    let transitions = rollout.apply_decisions(&settings, &mut tenants, now_unix_s);
    check(&rollout, &transitions);
    let is_newest = tenants.states().values().all(|state| state.bundle >= rollout.newest());
    assert!(is_newest || transitions.is_empty(), "states must know the newest bundle number");
}

/// Checks the properties that must hold after each call.
fn check(rollout: &Rollout, transitions: &[Transition]) {
    assert_eq!(
        Rollout::decode(rollout.encode().as_bytes()).expect("an encoded rollout must decode"),
        *rollout
    );
    for transition in transitions {
        assert!(!transition.to_string().is_empty());
        if let Transition::RolledBack { number, by, .. } = transition {
            assert!(number < by, "{transition:?}");
        }
    }
    let number = |name: &str| rollout.document(name).map_or(0, |bundle| bundle.content().number);
    assert!(rollout.edges().keys().all(|name| number(name) <= rollout.newest()));
}

fn figures(is_bad: bool) -> EdgeFigures {
    let mut figures = EdgeFigures { responses: RESPONSES, ..EdgeFigures::default() };
    for at in 0..RESPONSES {
        figures.failed.add(f64::from(u8::from(is_bad || at % 10 == 0)));
        figures.retransmitted.add(at as f64 / RESPONSES as f64);
        figures.ln_goodput.add(10.0 + (at % 3) as f64);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every corpus input must be a valid rollout. Otherwise, after a change of its format or of
    /// the bundle format, the target would have no rollout to continue from.
    #[test]
    fn corpus_rollouts_decode() {
        let mut tried = 0;
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/control-rollout")).unwrap()
        {
            let path = file.unwrap().path();
            let rollout = Rollout::decode(&std::fs::read(&path).unwrap());
            let rollout = rollout.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            tried += usize::from(rollout.candidate().is_some());
        }
        assert!(tried > 4);
    }
}
