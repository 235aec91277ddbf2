//! Tests of scenario parsing and of its error messages.

use std::io;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn no_file(_: &str) -> io::Result<String> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn fault(text: &str, expected: Expect) {
    expected.assert_eq(&read(text, &no_file).unwrap_err().to_string());
}

#[test]
fn named_paths_are_valid() {
    for path in library() {
        let scenario = read(&format!("[[path]]\nuse = {:?}", path.name), &no_file).unwrap();
        assert_eq!(scenario.paths[0].name, path.name);
        assert!(scenario.paths[0].down.capacity.mean_bits_per_s().is_some(), "{}", path.name);
        assert!(path.about().len() > 10, "{}", path.name);
    }
}

#[test]
fn documentation_example_is_a_valid_scenario() {
    let page = include_str!("../../../../docs/reference/scenario.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scenario = read(example, &no_file).unwrap();
    assert_eq!((scenario.paths[0].name.as_str(), scenario.paths[0].changes.len()), ("home", 1));
}

#[test]
fn settings_override_the_named_path() {
    let text = "
        [[path]]
        use = 'long-haul'
        name = 'a'
        [path.down]
        rate = '8Mbit/s'
        queue = '0.5BDP'
        discipline = 'codel'
        [[path.change]]
        at = '2s'
        up.delay = '50ms'
        [[path.change]]
        at = '1s'
        down.rate = '1Mbit/s'
        [[path]]
        prefix4 = '10.0.0.0/24'
        prefix6 = 'fd00:0:0:ff00::/56'";
    let scenario = read(text, &no_file).unwrap();
    let [a, b] = &scenario.paths[..] else { panic!("{scenario:?}") };
    assert_eq!((a.name.as_str(), b.name.as_str()), ("a", "path-2"));
    assert_eq!((a.client4(), b.client4()), ([198, 18, 1, 1].into(), [10, 0, 0, 1].into()));
    assert_eq!(
        (a.client6(), b.client6()),
        ("2001:db8:0:100::1".parse().unwrap(), "fd00:0:0:ff00::1".parse().unwrap())
    );
    assert_eq!(a.down.delay, Duration::from_millis(100));
    assert_eq!(a.down.capacity, Capacity::Rate(8_000_000));
    assert_eq!(a.down.queue, Queue { bytes: 100_000, discipline: Discipline::CoDel });
    assert_eq!(a.down.loss, Loss::random(0.01));
    assert_eq!(
        (a.up.capacity.clone(), b.up.capacity.clone()),
        (Capacity::Rate(40_000_000), Capacity::Unlimited)
    );
    assert_eq!(a.changes[0].down.rate_bits_per_s, Some(1_000_000));
    assert_eq!(
        (a.changes[1].at, a.changes[1].up.delay),
        (Duration::from_secs(2), Some(Duration::from_millis(50)))
    );
}

#[test]
fn changes_of_loss_and_bursts_are_independent() {
    let text = "
        [[path]]
        down = { loss = '1%', bursts = { enter = '1%', leave = '20%' } }
        change = [
            { at = '3s', down.loss = '3%' },
            { at = '1s', down.loss = '2%', up.loss = '5%' },
            { at = '2s', down.bursts = { enter = '2%', leave = '10%', loss = '50%' }, up.delay = '1ms' },
        ]";
    let path = read(text, &no_file).unwrap().paths.remove(0);
    let loss = |good, bad, enter, leave| Some(Loss { good, bad, enter, leave });
    let down: Vec<_> = path.changes.iter().map(|change| change.down.loss).collect();
    assert_eq!(down, [loss(0.02, 1.0, 0.01, 0.2), loss(0.02, 0.5, 0.02, 0.1), loss(0.03, 0.5, 0.02, 0.1)]);
    let up: Vec<_> = path.changes.iter().map(|change| change.up.loss).collect();
    assert_eq!(up, [Some(Loss::random(0.05)), None, None]);
}

#[test]
fn scenarios_are_combined() {
    let one = |text: &str| read(text, &no_file).unwrap();
    let both = combine(vec![
        one("seed = 7\nserver4 = '198.18.9.1'\n[[path]]\nuse = 'lte'"),
        one("[[path]]\nuse = 'wifi'"),
    ]);
    let both = both.unwrap();
    assert_eq!((both.seed, both.server4), (7, [203, 0, 113, 1].into()));
    assert_eq!(both.paths[1].client4(), std::net::Ipv4Addr::new(198, 18, 2, 1));
    let error = |scenarios| combine(scenarios).unwrap_err().to_string();
    let lte = one("[[path]]\nuse = 'lte'");
    assert_eq!(error(vec![lte.clone(), lte]), "two paths are named \"lte\": give one a different `name`");
    let changing = one("[[path]]\n[[path.change]]\nat = '1s'\nup.delay = '1ms'");
    assert_eq!(error(vec![changing]), "path-1: cannot measure a path with changes: remove its `change`");
}

#[test]
fn traces_come_from_files_or_steps() {
    let text = "[[path]]\nuse = 'fibre'\ndown.mahimahi = 'x.trace'\nup.steps = ['1s 2Mbit/s', '3s 0bit/s']";
    let file = |name: &str| if name == "x.trace" { Ok("1\n2\n".to_owned()) } else { no_file(name) };
    let scenario = read(text, &file).unwrap();
    assert_eq!(scenario.paths[0].down.capacity.mean_bits_per_s(), Some(12_000_000.0));
    assert_eq!(scenario.paths[0].up.capacity.mean_bits_per_s(), Some(500_000.0));
}

#[test]
fn errors_name_the_location_and_the_remedy() {
    fault("", expect![[r#"scenario has no [[path]]: add at least one"#]]);
    fault(
        "[[path]]\nuse = 'fiber'",
        expect![[
            r#"fiber: unknown path "fiber": expected one of fibre, cable, dsl, lte, wifi, satellite, long-haul"#
        ]],
    );
    fault(
        "[[path]]\ndown.delay = '5'",
        expect![[r#"
        TOML parse error at line 2, column 14
          |
        2 | down.delay = '5'
          |              ^^^
        "5" has no unit: write 5ms, 5s or 5min
    "#]],
    );
    fault(
        "[[path]]\ndown.dalay = '5ms'",
        expect![[r#"
        TOML parse error at line 2, column 6
          |
        2 | down.dalay = '5ms'
          |      ^^^^^
        unknown field `dalay`, expected one of `delay`, `jitter`, `rate`, `steps`, `mahimahi`, `queue`, `discipline`, `loss`, `bursts`
    "#]],
    );
    fault(
        "[[path]]\ndown.loss = '1'",
        expect![[r#"
        TOML parse error at line 2, column 13
          |
        2 | down.loss = '1'
          |             ^^^
        "1" is not a share: write a number from 0 to 100 and %, as in "0.5%"
    "#]],
    );
    fault(
        "[[path]]\ndown.queue = '1BDP'",
        expect!["path-1: queue in BDP requires `rate`, `steps` or `mahimahi`"],
    );
    fault(
        "[[path]]\ndown.queue = '1kB'",
        expect!["path-1: queue must be at least 1500 bytes, one full packet, got 1000"],
    );
    fault(
        "[[path]]\ndown = { rate = '1Mbit/s', mahimahi = 'x' }",
        expect!["path-1: more than one of `rate`, `steps` and `mahimahi` is set: keep one"],
    );
    fault("[[path]]\ndown.mahimahi = 'x'", expect!["path-1: x: entity not found"]);
    fault("[[path]]\ndown.delay = '1h'", expect!["path-1: delay must be at most 10s, got 3600s"]);
    fault(
        "[[path]]\ndown.rate = '0bit/s'",
        expect!["path-1: rate must be from 1 bit/s to 10 Gbit/s, got 0 bit/s"],
    );
    fault(
        "[[path]]\ndown.bursts = { enter = '0%', leave = '1%' }",
        expect!["path-1: bursts: `enter` or `leave` is 0%: set both above 0%"],
    );
    fault(
        "[[path]]\nname = 'a'\n[[path]]\nname = 'a'",
        expect![[r#"two paths are named "a": give one a different `name`"#]],
    );
    fault(
        "[[path]]\n[[path]]\nprefix4 = '198.18.1.0/24'",
        expect!["path-1 and path-2 have the same prefix: change one"],
    );
    fault(
        "[[path]]\nprefix4 = '198.18.1.0/16'",
        expect![[r#"
        TOML parse error at line 2, column 11
          |
        2 | prefix4 = '198.18.1.0/16'
          |           ^^^^^^^^^^^^^^^
        "198.18.1.0/16" is not a client prefix: write an IPv4 /24, as in "198.18.1.0/24"
    "#]],
    );
    fault(
        "[[path]]\nprefix4 = '203.0.113.0/24'",
        expect!["path-1: prefix contains the server's address: change either"],
    );
    fault(
        "[[path]]\n[[path.change]]\nat = '1s'\ndown.rate = '1Mbit/s'",
        expect!["path-1: a change of `rate` requires an initial `rate`"],
    );
}

#[test]
fn mean_and_clustering_of_bursts_are_exact() {
    let bursts = Loss { good: 0.0, bad: 1.0, enter: 0.01, leave: 0.19 };
    assert!((bursts.mean() - 0.05).abs() < 1e-12);
    assert!((bursts.clustering() - 9.0).abs() < 1e-9, "{}", bursts.clustering());
    assert_eq!((Loss::random(0.3).mean(), Loss::random(0.3).clustering()), (0.3, 1.0));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in ".*") {
        let _ = read(&text, &no_file);
    }

    #[test]
    fn values_never_panic(value in "[0-9a-zA-Z.%/: -]{0,12}") {
        for key in ["delay", "rate", "queue", "loss", "steps", "discipline"] {
            let _ = read(&format!("[[path]]\ndown.{key} = {value:?}"), &no_file);
        }
        let _ = read(&format!("[[path]]\nprefix6 = {value:?}"), &no_file);
    }
}
