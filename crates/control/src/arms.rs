//! Goodput distributions of both arms, from which low percentiles are computed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_record::Sketch;

use crate::window::Outcome;

/// Minimum number of outcomes in each arm for a 10th percentile: with fewer, the percentile has no
/// distribution-free 95 % confidence interval.
const P10_OUTCOMES_MIN: u64 = 36;

/// Goodput distribution of the outcomes in each arm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmGoodputs {
    #[serde(serialize_with = "write_sketch", deserialize_with = "read_sketch")]
    steered: Sketch,
    #[serde(serialize_with = "write_sketch", deserialize_with = "read_sketch")]
    held_out: Sketch,
}

/// The 10th percentile of goodput in each arm, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LowGoodputs {
    /// 10th percentile of steered clients' goodput.
    pub steered: f64,
    /// 10th percentile of held-out clients' goodput.
    pub held_out: f64,
}

impl ArmGoodputs {
    /// Adds an outcome to its arm.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let arm = if outcome.is_steered { &mut self.steered } else { &mut self.held_out };
        arm.add(outcome.ln_goodput.exp() as u64);
    }

    /// Returns the 10th percentiles. `None` with too few outcomes in an arm.
    pub fn p10(&self) -> Option<LowGoodputs> {
        let p10 = |arm: &Sketch| (arm.count() >= P10_OUTCOMES_MIN).then(|| arm.quantile(0.1)).flatten();
        Some(LowGoodputs { steered: p10(&self.steered)?, held_out: p10(&self.held_out)? })
    }
}

fn write_sketch<S: Serializer>(sketch: &Sketch, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&sketch.to_json())
}

fn read_sketch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sketch, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Sketch::from_json(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_is_that_of_each_arm_and_needs_enough_outcomes() {
        let mut arms = ArmGoodputs::default();
        for at in 0..2 * P10_OUTCOMES_MIN {
            assert_eq!(arms.p10(), None);
            let is_steered = at % 2 == 0;
            let rate: f64 = if is_steered { 2e6 } else { 1e6 };
            arms.add(&Outcome {
                bundle: 1,
                period: 0,
                is_steered,
                // One outcome in eight is far slower.
                ln_goodput: (if at % 16 < 2 { rate / 10.0 } else { rate }).ln(),
                retransmitted_share: None,
            });
        }
        let p10 = arms.p10().unwrap();
        assert!((p10.steered / 2e5 - 1.0).abs() < 0.02 && (p10.held_out / 1e5 - 1.0).abs() < 0.02, "{p10:?}");
        let written = serde_json::to_string(&arms).unwrap();
        assert_eq!(serde_json::from_str::<ArmGoodputs>(&written).unwrap(), arms);
    }
}
