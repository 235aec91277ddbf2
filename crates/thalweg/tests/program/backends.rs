//! `thalweg backends` against a running edge.

use rustix::process::Signal;

use crate::program::{Running, thalweg};

/// Runs the program; returns its exit status and all output.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = thalweg(args).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn backends_are_listed_and_set() {
    let url = "http://127.0.0.1:9";
    let listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off", "--backend", url];
    let mut edge = Running::start(thalweg(&[&["edge"], &listen[..]].concat()));
    edge.listening("edge");
    let admin = edge.listening("admin");
    let backends = |args: &[&str]| run(&[&["backends", "--admin", &admin], args].concat());
    let listed = || {
        let (status, text) = backends(&[]);
        assert_eq!(status, Some(0), "{text}");
        let (line, since) = text.lines().nth(1).unwrap().rsplit_once("  ").unwrap();
        assert!(since.ends_with("s ago"), "{since}");
        (text.lines().next().unwrap().to_owned(), line.to_owned())
    };
    let header = "NAME                ADDRESS      HEALTH   PROBE  SET   SINCE".to_owned();
    let row = "http://127.0.0.1:9  127.0.0.1:9  healthy  -      auto".to_owned();
    assert_eq!(listed(), (header, row));
    assert_eq!(backends(&[url, "sick"]), (Some(0), format!("{url}: sick\n")));
    assert_eq!(listed().1, "http://127.0.0.1:9  127.0.0.1:9  sick    -      sick");
    assert_eq!(backends(&["b", "sick"]), (Some(1), "thalweg: no backend b\n".into()));
    for wrong in [&[url, "ill"][..], &[url]] {
        assert_eq!(backends(wrong).0, Some(2), "{wrong:?}");
    }
    assert_eq!(edge.stop(Signal::TERM), Some(0));
}
