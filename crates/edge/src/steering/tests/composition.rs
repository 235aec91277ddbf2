//! Table of all combinations of policy, experiment, rule, holdout and switchback: the algorithm
//! used, its decider, and the assignment in the record.

use std::net::SocketAddr;

use thalweg_bundle::{Arm, Bundle, Content, Experiment as Trial, PERIOD_S_MAX, Share, Unit};
use thalweg_record::Steered;

use super::*;

const PREFIX: &str = "203.0.113.0/24";
const RULE: &str = "cubic";
const ARM: &str = "bbr";
/// The default algorithm, which is also the one that the policy sets.
const RENO: &str = "reno";

/// The rule for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    None,
    Steers,
    HoldsOut,
    SteeredBlock,
    HeldOutBlock,
}

/// The client's arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InArm {
    None,
    AsIs,
    WithAlgorithm,
}

/// When a policy sets an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicySets {
    Never,
    Before,
    After,
}

fn client() -> SocketAddr {
    "203.0.113.7:50000".parse().unwrap()
}

fn rules(found: Match) -> Vec<thalweg_bundle::Rule> {
    let rule = |holdout: f64, block_s: Option<u32>, salt: u32| thalweg_bundle::Rule {
        tenant: String::new(),
        prefix: PREFIX.parse().unwrap(),
        congestion_control: RULE.to_owned(),
        size_bytes_min: None,
        initcwnd: None,
        initrwnd: None,
        holdout: Share::from_number(holdout).unwrap(),
        period_s: block_s,
        switchback_block_s: block_s,
        salt: salt.to_string(),
        reason: "slow".to_owned(),
    };
    // With blocks of one year, the salt determines whether the prefix is currently held out.
    let block = |is_held_out: bool| {
        let mut rules = (0..64).map(|salt| rule(0.5, Some(PERIOD_S_MAX), salt));
        rules.find(|rule| rule.holds_out_prefix(now_s()) == is_held_out).unwrap()
    };
    match found {
        Match::None => Vec::new(),
        Match::Steers => vec![rule(0.0, None, 0)],
        Match::HoldsOut => vec![rule(1.0, None, 0)],
        Match::SteeredBlock => vec![block(false)],
        Match::HeldOutBlock => vec![block(true)],
    }
}

fn experiments(in_arm: InArm) -> Vec<Trial> {
    let algorithm = match in_arm {
        InArm::None => return Vec::new(),
        InArm::AsIs => None,
        InArm::WithAlgorithm => Some(ARM.to_owned()),
    };
    let arms = vec![Arm { name: "all".into(), share: Share::ALL, congestion_control: algorithm }];
    vec![Trial { name: "live".into(), hosts: Vec::new(), salt: "s".into(), unit: Unit::Client, arms }]
}

fn now_s() -> u64 {
    crate::clock::now_ms() / 1_000
}

/// Connects, lets the bundle and the policy act, and returns the algorithm, its decider and the
/// assignment.
async fn outcome(bundle: &Bundle, policy: PolicySets) -> (String, Decider, Option<Steered>) {
    let mut it = Accepted::with(Some(RENO)).await;
    let follow = |it: &mut Accepted, bytes: u64| {
        let response = Response { client: client(), host: "media.example", bytes: Some(bytes) };
        it.steering.follow(it.stream.as_fd(), bundle, response, &it.common);
    };
    if policy == PolicySets::Before {
        it.socket().set_congestion_algorithm(RENO).unwrap();
    }
    follow(&mut it, MIN - 1);
    assert_eq!(it.steering.steered(), None, "a small response assigns nothing");
    follow(&mut it, MIN);
    let assigned = it.steering.steered().map(|it| (**it).clone());
    if policy == PolicySets::After {
        it.socket().set_congestion_algorithm(RENO).unwrap();
    }
    follow(&mut it, MIN);
    let last = it.steering.steered().map(|it| (**it).clone());
    assert_eq!(last, assigned, "neither a policy nor a later response changes an assignment");
    (it.algorithm(), it.steering.decider(), last)
}

#[tokio::test]
async fn every_combination_sets_the_strongest_and_records_all() {
    use {InArm::*, Match::*};
    // Columns: rule, arm, decider without a policy, algorithm, and whether a holdout is recorded.
    let table = [
        (Match::None, InArm::None, Default, RENO, false),
        (Match::None, AsIs, Default, RENO, false),
        (Match::None, WithAlgorithm, Experiment, ARM, false),
        (Steers, InArm::None, Rule, RULE, false),
        (Steers, AsIs, Rule, RULE, false),
        (Steers, WithAlgorithm, Experiment, ARM, false),
        (HoldsOut, InArm::None, Default, RENO, true),
        (HoldsOut, AsIs, Default, RENO, true),
        (HoldsOut, WithAlgorithm, Experiment, ARM, true),
        (SteeredBlock, InArm::None, Rule, RULE, false),
        (SteeredBlock, AsIs, Rule, RULE, false),
        (SteeredBlock, WithAlgorithm, Experiment, ARM, false),
        (HeldOutBlock, InArm::None, Default, RENO, true),
        (HeldOutBlock, AsIs, Default, RENO, true),
        (HeldOutBlock, WithAlgorithm, Experiment, ARM, true),
    ];
    for (found, in_arm, decider, algorithm, is_holdout) in table {
        let (rules, experiments) = (rules(found), experiments(in_arm));
        let is_block = matches!(found, SteeredBlock | HeldOutBlock);
        let named = |name: &str| (in_arm != InArm::None).then(|| name.to_owned());
        let steered = Steered {
            bundle: 7,
            rule: (found != Match::None).then(|| PREFIX.to_owned()),
            is_holdout,
            experiment: named("live"),
            arm: named("all"),
            refused: Option::None,
            draw_period: is_block.then(|| now_s() / u64::from(PERIOD_S_MAX)),
        };
        let steered = (found != Match::None || in_arm != InArm::None).then_some(steered);
        let bundle = Bundle::new(Content { number: 7, rules, experiments, ..Content::default() }).unwrap();
        for policy in [PolicySets::Never, PolicySets::Before, PolicySets::After] {
            let expected = match policy {
                PolicySets::Never => (algorithm.to_owned(), decider, steered.clone()),
                PolicySets::Before | PolicySets::After => (RENO.to_owned(), Policy, steered.clone()),
            };
            assert_eq!(outcome(&bundle, policy).await, expected, "{found:?}, {in_arm:?}, policy: {policy:?}");
        }
    }
}

#[tokio::test]
async fn rule_applies_if_the_kernel_refuses_the_arm() {
    let mut experiments = experiments(InArm::WithAlgorithm);
    experiments[0].arms[0].congestion_control = Some("nosuch".to_owned());
    let content = Content { number: 7, rules: rules(Match::Steers), experiments, ..Content::default() };
    let (algorithm, decider, steered) = outcome(&Bundle::new(content).unwrap(), PolicySets::Never).await;
    let steered = steered.unwrap();
    assert_eq!((&*algorithm, decider, steered.rule.as_deref()), (RULE, Rule, Some(PREFIX)));
    assert_eq!(steered.arm.as_deref(), Some("all"));
    assert!(steered.refused.unwrap().contains("nosuch"));
}
