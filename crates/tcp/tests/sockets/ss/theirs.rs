//! Parser for the output of iproute2's `ss`. It skips no word, so an unknown value fails the test.

use std::collections::HashMap;
use std::process::Command;

use thalweg_tcp::{CongestionControl, congestion};

use super::reported::Reported;

/// Runs `ss` and returns the values of the sockets on these ports, by cookie.
pub(super) fn reported(ports: &[u16]) -> HashMap<u64, Reported> {
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
        let (cookie, reported) = parse_line(line, &algorithms);
        if is_ours(&reported.facts["local"]) || is_ours(&reported.facts["remote"]) {
            found.insert(cookie.expect("ss -e prints the cookie"), reported);
        }
    }
    found
}

fn parse_line(line: &str, algorithms: &[CongestionControl]) -> (Option<u64>, Reported) {
    let (mut cookie, mut reported) = (None, Reported::default());
    let mut words = line.split_whitespace();
    for name in ["state", "rqueue", "wqueue", "local", "remote"] {
        reported.fact(name, words.next().unwrap());
    }
    while let Some(word) = words.next() {
        match (word, word.split_once(':')) {
            ("send" | "pacing_rate" | "delivery_rate", _) => reported.fact(word, words.next().unwrap()),
            (name, None) if algorithms.iter().any(|algorithm| algorithm.as_str() == name) => {
                reported.fact("cc", name);
            }
            ("<->" | "-->" | "<--" | "---", _) => reported.fact("shutdown", word),
            (_, Some(("sk", number))) => cookie = Some(u64::from_str_radix(number, 16).unwrap()),
            (_, Some(("timer", timer))) => {
                let [kind, expires, retransmits] =
                    timer.trim_matches(['(', ')']).split(',').collect::<Vec<_>>()[..]
                else {
                    panic!("{word}")
                };
                reported.fact("timer", format!("{kind},{retransmits}"));
                reported.clock("timer", expires_ms(expires));
            }
            (_, Some((name @ ("lastsnd" | "lastrcv" | "lastack"), ms))) => {
                reported.clock(name, ms.parse().unwrap());
            }
            (_, Some((name @ ("busy" | "rwnd_limited" | "sndbuf_limited"), share))) => {
                let (ms, _share_of_busy) = share.split_once("ms").unwrap();
                reported.clock(name, ms.parse().unwrap());
            }
            (_, Some((name, value))) => reported.fact(name, value),
            (flag, None) => reported.fact(flag, ""),
        }
    }
    (cookie, reported)
}

/// Parses the time until a timer expires: `1min30sec`, `30sec`, `3.200ms` (which means 3.2 s), or
/// `200ms`.
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
