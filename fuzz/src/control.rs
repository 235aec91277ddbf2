//! Control state target: decoding of stored states, and decision rounds that start from them.

use thalweg_control::{Moment, Outcome, Sample, Settings, State, Window, decide, explain};

/// Number of windows to decide after the state's last one.
const ROUNDS: u64 = 3;
/// Number of connections of each prefix per window.
const CONNECTIONS: u64 = 8;

/// Decodes `input` as a state in JSON. If it ends with a line feed, edges have a newer bundle than
/// the state.
pub(crate) fn run(input: &[u8]) {
    let Ok(mut state) = State::decode(input) else { return };
    assert_eq!(State::decode(state.encode().as_bytes()).expect("an encoded state must decode"), state);
    let settings = settings();
    let acknowledged_bundle = state.bundle + u64::from(input.ends_with(b"\n"));
    for _ in 0..ROUNDS {
        let window = window(&state);
        let (next, decision) = decide(&settings, &state, &window, moment(&window, acknowledged_bundle));
        if let Some(content) = decision.content {
            thalweg_bundle::Bundle::new(content).expect("edges must accept the bundle");
        }
        for entry in next.entries() {
            assert!(explain(&settings, &next, entry.prefix).starts_with(&entry.prefix.to_string()));
        }
        assert_eq!(State::decode(next.encode().as_bytes()).expect("a decided state must decode"), next);
        state = next;
    }
}

/// Returns the settings with which the states of the corpus were created. Other settings would
/// discard part of their evidence.
fn settings() -> Settings {
    Settings { evidence_connections_min: 2, connections_min: 1, ..Settings::default() }
}

/// Returns the moment at the end of a window.
fn moment(window: &Window, acknowledged_bundle: u64) -> Moment {
    let now_unix_s = (window.number + 1) * settings().window_s;
    Moment { now_unix_s, seed: 1, acknowledged_bundle }
}

/// Returns the next window, in which each prefix has a few connections of both arms.
fn window(state: &State) -> Window {
    let number = state.window.map_or(0, |last| last + 1);
    let sample = |at: u64| {
        let mut sample = Sample::default();
        for connection in 0..CONNECTIONS {
            let rate = 1_000 * (at + 1) + connection;
            sample.other.connections += 1;
            sample.other.delivery_rate.add(rate);
            sample.ln_goodput.add((rate as f64).ln());
            sample.min_rtt_us.add(50_000);
            sample.outcomes.push(Outcome {
                bundle: state.bundle,
                period: number,
                is_steered: connection % 2 == 0,
                ln_goodput: (rate as f64).ln(),
                retransmitted_share: (connection % 3 > 0).then_some(0.01),
            });
        }
        sample
    };
    let prefixes = state.entries().iter().zip(0..).map(|(entry, at)| (entry.prefix, sample(at))).collect();
    Window { number, records: 1, lost: 0, prefixes, ..Window::default() }
}

#[cfg(test)]
mod tests {
    use thalweg_control::Entry;

    use super::*;

    /// Every corpus input must be a valid state whose evidence these settings keep. Otherwise,
    /// after a change of the format or the settings, the target would have no state or evidence to
    /// continue from.
    #[test]
    fn corpus_states_decode_and_keep_their_evidence() {
        let mut counted = 0;
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/control-state")).unwrap() {
            let path = file.unwrap().path();
            let state = State::decode(&std::fs::read(&path).unwrap())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let window = window(&state);
            let (next, decision) = decide(&settings(), &state, &window, moment(&window, state.bundle));
            assert!(decision.changed.is_empty(), "{}: {:?}", path.display(), decision.changed);
            for (entry, after) in next.steered() {
                let before = state.entry(entry.prefix).and_then(Entry::steered).unwrap();
                counted += after.evidence.goodput.count - before.evidence.goodput.count;
            }
        }
        assert!(counted >= CONNECTIONS, "a trial must continue");
    }
}
