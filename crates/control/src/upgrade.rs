//! Conversion of stored states of earlier formats.
//!
//! In format 1, a comparison of connections within the prefix counted as proof. Converted states
//! keep the histories, cool-offs and counts of trials. Proofs are dropped: a prefix that had one is
//! `renewed`. The next round restarts all trials, because evidence of format 1 is about a different
//! outcome: see [`crate::basis`]. The count of discoveries starts from zero, because it counts
//! switchbacks.

use serde_json::{Value, json};

use crate::state::STATE_FORMAT;

/// Format that [`upgrade`] converts.
pub(crate) const FORMAT_BEFORE: u32 = 1;

/// Converts a state of format 1 to the current format. If the state is malformed, the decoder
/// rejects the result.
pub(crate) fn upgrade(mut state: Value) -> Value {
    state["format"] = json!(STATE_FORMAT);
    if let Some(trials) = state.get_mut("trials").and_then(Value::as_object_mut) {
        trials.insert("told".into(), json!(0));
    }
    let entries = state.get_mut("entries").and_then(Value::as_array_mut);
    let steered = entries.into_iter().flatten().filter_map(|entry| entry.pointer_mut("/phase/Steered"));
    for steered in steered.filter_map(Value::as_object_mut) {
        if steered.get("proof").is_some_and(|proof| !proof.is_null()) {
            steered.insert("is_renewed".into(), json!(true));
            steered.insert("proof".into(), Value::Null);
        }
    }
    state
}
