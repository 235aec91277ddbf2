//! How many of the trials told to be helped are not, over days in which ever more begin, with noise that nobody would wish for.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::online::needed;
use crate::simulate::normal;
use crate::{Evidence, Outcome, Trials};

const SHARE: f64 = 0.05;
const DAYS: usize = 8;
/// Rounds of a day, in each of which a trial begins.
const ROUNDS: usize = 288;
/// Rounds of a trial.
const TRIAL_ROUNDS: usize = 72;
/// Connections of a trial in a round.
const CONNECTIONS: usize = 20;
const HOLDOUT: f64 = 0.5;

/// What steering does.
#[derive(Clone, Copy, PartialEq)]
enum Truth {
    Nothing,
    /// It changes how log goodput is spread, not its mean.
    Spread,
    Helps,
}

/// The mean of exp(1.2 z).
const SKEWED_MEAN: f64 = 2.054_433_210_643_888;

fn outcome(truth: Truth, random: &mut Xoshiro256PlusPlus) -> Outcome {
    let is_steered = random.random_bool(1.0 - HOLDOUT);
    let noise = if is_steered && truth == Truth::Spread {
        0.8 * normal(random)
    } else {
        SKEWED_MEAN - (1.2 * normal(random)).exp()
    };
    let effect = if is_steered && truth == Truth::Helps { 1.0 } else { 0.0 };
    Outcome { bundle: 1, is_steered, ln_goodput: 13.0 + noise + effect, retransmitted_share: None }
}

/// The share of false ones among all trials told, and how many were told rightly.
fn days(seed: u64) -> (f64, u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut trials, mut falsely) = (Trials::default(), 0);
    let mut under_way: Vec<(u64, usize, Truth, Evidence)> = Vec::new();
    for round in 0..DAYS * ROUNDS {
        let truth = [Truth::Nothing, Truth::Spread, Truth::Nothing, Truth::Helps][round % 4];
        under_way.push((trials.begin(), round, truth, Evidence::from(Some(13.0))));
        under_way.retain(|(_, begun, ..)| round - begun < TRIAL_ROUNDS);
        for (_, _, truth, evidence) in &mut under_way {
            let outcomes: Vec<_> = (0..CONNECTIONS).map(|_| outcome(*truth, &mut random)).collect();
            evidence.add(outcomes.iter(), HOLDOUT);
        }
        let enough = under_way.iter().filter(|(.., evidence)| evidence.is_enough(30));
        let candidates: Vec<_> =
            enough.map(|(number, _, _, evidence)| (*number, evidence.ln_e_helped(HOLDOUT))).collect();
        let told = trials.tell(&candidates, SHARE);
        under_way.retain(|(number, _, truth, _)| {
            let candidate = candidates.iter().find(|(candidate, _)| candidate == number);
            let is_told = candidate.is_some_and(|(_, ln_e)| needed(*number, *ln_e, SHARE) <= told);
            falsely += u64::from(is_told && *truth != Truth::Helps);
            !is_told
        });
    }
    (falsely as f64 / trials.told.max(1) as f64, trials.told - falsely)
}

#[test]
fn few_of_all_that_were_ever_told_are_false() {
    let runs: Vec<_> = (0..3).map(days).collect();
    let share = runs.iter().map(|(share, _)| share).sum::<f64>() / runs.len() as f64;
    println!("{runs:?}");
    assert!(share <= SHARE, "{runs:?}");
    // Two in three of those that are helped are told: an e-value that says nothing would pass the line above.
    assert!(runs.iter().all(|(_, rightly)| *rightly as usize > DAYS * ROUNDS / 4 * 2 / 3), "{runs:?}");
}
