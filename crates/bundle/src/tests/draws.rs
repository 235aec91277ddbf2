//! Tests of holdouts, switchback blocks and arms: shares, and independence of draws.

use super::*;

proptest! {
    #[test]
    fn holdout_and_arm_shares_are_met(salt in "[a-z0-9]{1,12}", prefix in prefixes(), percent in 1_u32..100, from in any::<u32>()) {
        const CONNECTIONS: u32 = 20_000;
        let share = f64::from(percent) / 100.0;
        let rule = Rule { holdout: Share::from_number(share).unwrap(), ..rule(&prefix.to_string()) };
        // Consecutive addresses in several periods, similar to the clients of one PoP.
        let holds_out = |rule: &Rule, at: u32| rule.holds_out(Ipv4Addr::from_bits(from.wrapping_add(at / 8)).into(), 300 * u64::from(at % 8) + u64::from(at % 300));
        let held = (0..CONNECTIONS).filter(|at| holds_out(&rule, *at)).count();
        assert_binomial(held as u32, CONNECTIONS, share);
        // A different salt must draw independently.
        let other = Rule { salt: salt.clone(), ..rule.clone() };
        let both = (0..CONNECTIONS).filter(|at| holds_out(&rule, *at) && holds_out(&other, *at)).count();
        assert_binomial(both as u32, CONNECTIONS, share * share);
        // The next period must draw independently.
        let again = (0..CONNECTIONS).step_by(2).filter(|at| holds_out(&rule, *at) && holds_out(&rule, at + 1)).count();
        assert_binomial(again as u32, CONNECTIONS / 2, share * share);

        let client = |at: u32| SocketAddr::from((Ipv4Addr::from_bits(from.wrapping_add(at / 8)), 40_000 + (at % 8) as u16));
        let arms = vec![arm("a", share, None), arm("b", 1.0 - share, None)];
        let experiment = Experiment { arms, salt, ..sample().experiments.remove(0) };
        let of_a = (0..CONNECTIONS).filter(|at| experiment.arm(client(*at * 8)).name == "a").count();
        assert_binomial(of_a as u32, CONNECTIONS, share);
    }

    #[test]
    fn switchback_holds_out_one_block_of_each_pair(salt in "[a-z0-9]{1,12}", prefix in prefixes(), from in 0_u64..1 << 33) {
        const PAIRS: u64 = 2_000;
        let rule = Rule { salt, ..switchback(&prefix.to_string()) };
        let client = |at: u64| Ipv4Addr::from_bits(at as u32).into();
        let from = from / 1_800 * 1_800;
        let is_first = |pair: u64| rule.holds_out(client(pair), from + pair * 1_800 + pair % 900);
        for pair in 0..PAIRS {
            let at = from + pair * 1_800 + pair % 900;
            prop_assert_eq!(rule.holds_out_prefix(at), is_first(pair));
            prop_assert_eq!(rule.block(at), Some(from + pair * 1_800..from + pair * 1_800 + 900));
            prop_assert_ne!(is_first(pair), rule.holds_out(client(0), from + pair * 1_800 + 900 + pair % 900));
        }
        let firsts = (0..PAIRS).filter(|pair| is_first(*pair)).count();
        assert_binomial(firsts as u32, PAIRS as u32, 0.5);
        let runs = (0..PAIRS).step_by(2).filter(|pair| is_first(*pair) && is_first(pair + 1)).count();
        assert_binomial(runs as u32, PAIRS as u32 / 2, 0.25);
    }
}

#[test]
fn whole_prefix_is_held_out_only_with_all_of_its_clients() {
    for (holdout, is_held_out) in [(0.0, false), (0.999_999, false), (1.0, true)] {
        let rule = Rule { holdout: Share::from_number(holdout).unwrap(), ..rule("203.0.113.0/24") };
        assert_eq!((rule.holds_out_prefix(900), rule.block(900)), (is_held_out, None), "{holdout}");
    }
}
