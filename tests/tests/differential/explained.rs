//! Allowed differences between the edge and its peers, read from `explained.txt`.
//!
//! The file consists of groups separated by blank lines. A group's first line is `nginx: why`,
//! `varnish: why` or `both: why`; its other lines are `sequence step: ours -> theirs`.

use std::collections::HashMap;

const TEXT: &str = include_str!("explained.txt");

/// A proxy that is compared with the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    Nginx,
    Varnish,
}

/// The explained difference between the edge and a peer in one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Difference {
    pub(crate) ours: &'static str,
    pub(crate) theirs: &'static str,
    pub(crate) why: &'static str,
}

/// Differences by sequence, step (from 1), and peer.
pub(crate) type Explained = HashMap<(&'static str, usize, Peer), Difference>;

/// Reads all explanations; each must be unique.
pub(crate) fn read() -> Explained {
    let mut all = Explained::new();
    for group in TEXT.split("\n\n") {
        let (head, lines) = group.trim().split_once('\n').unwrap();
        let (who, why) = head.split_once(": ").unwrap();
        let peers: &[Peer] = match who {
            "nginx" => &[Peer::Nginx],
            "varnish" => &[Peer::Varnish],
            "both" => &[Peer::Nginx, Peer::Varnish],
            _ => panic!("unknown peer {who}"),
        };
        for line in lines.lines() {
            let (step, outcomes) = line.trim().split_once(": ").unwrap();
            let (sequence, step) = step.split_once(' ').unwrap();
            let (ours, theirs) = outcomes.split_once(" -> ").unwrap_or_else(|| panic!("{line}"));
            for peer in peers {
                let key = (sequence, step.parse().unwrap(), *peer);
                let before = all.insert(key, Difference { ours, theirs, why });
                assert!(before.is_none(), "duplicate: {line}");
            }
        }
    }
    all
}
