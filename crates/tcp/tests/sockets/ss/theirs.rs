//! What `ss` of iproute2 prints, word by word: nothing of it is passed over.

use std::collections::HashMap;
use std::process::Command;

use thalweg_tcp::{CongestionControl, congestion};

use super::said::Said;

/// What `ss` says of those that have one of the ports, by cookie.
pub(super) fn said(ports: &[u16]) -> HashMap<u64, Said> {
    let command = ["-tinHOeam", "--tos"];
    let output = Command::new("ss").args(command).output().expect("tools/setup test installs ss");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_ours = |address: &str| {
        address.rsplit_once(':').is_some_and(|(_, port)| port.parse().is_ok_and(|port| ports.contains(&port)))
    };
    let algorithms = congestion::available().unwrap();
    let mut found = HashMap::new();
    for line in text.lines() {
        let (cookie, said) = said_in(line, &algorithms);
        if is_ours(&said.facts["local"]) || is_ours(&said.facts["remote"]) {
            found.insert(cookie.expect("ss -e tells the cookie"), said);
        }
    }
    found
}

fn said_in(line: &str, algorithms: &[CongestionControl]) -> (Option<u64>, Said) {
    let (mut cookie, mut said) = (None, Said::default());
    let mut words = line.split_whitespace();
    for name in ["state", "rqueue", "wqueue", "local", "remote"] {
        said.fact(name, words.next().unwrap());
    }
    while let Some(word) = words.next() {
        match (word, word.split_once(':')) {
            ("send" | "pacing_rate" | "delivery_rate", _) => said.fact(word, words.next().unwrap()),
            (name, None) if algorithms.iter().any(|algorithm| algorithm.as_str() == name) => {
                said.fact("cc", name);
            }
            ("<->" | "-->" | "<--" | "---", _) => said.fact("shutdown", word),
            (_, Some(("sk", number))) => cookie = Some(u64::from_str_radix(number, 16).unwrap()),
            (_, Some(("timer", timer))) => {
                let [kind, expires, retransmits] =
                    timer.trim_matches(['(', ')']).split(',').collect::<Vec<_>>()[..]
                else {
                    panic!("{word}")
                };
                said.fact("timer", format!("{kind},{retransmits}"));
                said.clock("timer", expires_ms(expires));
            }
            (_, Some((name @ ("lastsnd" | "lastrcv" | "lastack"), ms))) => {
                said.clock(name, ms.parse().unwrap());
            }
            (_, Some((name @ ("busy" | "rwnd_limited" | "sndbuf_limited"), share))) => {
                let (ms, _share_of_busy) = share.split_once("ms").unwrap();
                said.clock(name, ms.parse().unwrap());
            }
            (_, Some((name, value))) => said.fact(name, value),
            (flag, None) => said.fact(flag, ""),
        }
    }
    (cookie, said)
}

/// `1min30sec`, `30sec`, `3.200ms`, which are 3.2 s, or `200ms`.
fn expires_ms(text: &str) -> u64 {
    let number = |text: &str| if text.is_empty() { 0 } else { text.parse::<u64>().unwrap() };
    let (minutes, rest) = text.split_once("min").unwrap_or(("", text));
    let (seconds, ms) = match rest.strip_suffix("sec") {
        Some(seconds) => (seconds, ""),
        None => {
            let part = rest.strip_suffix("ms").unwrap_or(rest);
            part.split_once('.').unwrap_or(("", part))
        }
    };
    (number(minutes) * 60 + number(seconds)) * 1000 + number(ms)
}
