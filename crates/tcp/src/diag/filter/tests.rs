//! Filter tests: parsing, and compiled programs checked with reimplementations of the kernel's
//! `inet_diag_bc_audit` and `inet_diag_bc_run`.

use std::net::{IpAddr, SocketAddr};

use expect_test::{Expect, expect};

use super::*;
use crate::diag::netlink::{u16_at, u32_at};
use crate::diag::{State, network};

fn check(text: &str, expected: Expect) {
    let shown = match Filter::parse(text) {
        Err(error) => error.to_string(),
        Ok(filter) => {
            let prefixes = |prefixes: &[IpNet]| prefixes.iter().map(IpNet::to_string).collect::<Vec<_>>();
            format!(
                "{:?}\nports {:?} {:?}\nprefixes {:?} {:?}",
                filter.states,
                filter.local_ports,
                filter.remote_ports,
                prefixes(&filter.local_prefixes),
                prefixes(&filter.remote_prefixes)
            )
        }
    };
    expected.assert_eq(&shown);
}

#[test]
fn ss_style_filters_are_parsed() {
    check(
        "",
        expect![[r#"
        {Established, SynSent, FinWait1, FinWait2, CloseWait, LastAck, Closing}
        ports [] []
        prefixes [] []"#]],
    );
    check(
        "sport = :443",
        expect![[r#"
        {Established, SynSent, FinWait1, FinWait2, CloseWait, LastAck, Closing}
        ports [443..=443] []
        prefixes [] []"#]],
    );
    check(
        "state established sport=:443,8000-8010 and dst 203.0.113.9/24 , 2001:db8::/32",
        expect![[r#"
        {Established}
        ports [443..=443, 8000..=8010] []
        prefixes [] ["203.0.113.0/24", "2001:db8::/32"]"#]],
    );
    check(
        "dport == 80 dport 81 src [::1] src ::ffff:10.0.0.0/104 state time-wait,CLOSE_WAIT",
        expect![[r#"
        {TimeWait, CloseWait}
        ports [] [80..=80, 81..=81]
        prefixes ["::1/128", "10.0.0.0/8"] []"#]],
    );
    check(
        "state listening state syn-recv",
        expect![[r#"
        {SynRecv, Listen, NewSynRecv}
        ports [] []
        prefixes [] []"#]],
    );
    assert_eq!(Filter::parse("state all").unwrap().states, States::ALL);
    assert_eq!(Filter::parse("state connected").unwrap(), Filter::default());
}

#[test]
fn errors_mark_the_offending_word() {
    check(
        "sprt 443",
        expect![[r#"
        unknown term sprt (did you mean sport?); expected one of state, sport, dport, src, dst
          sprt 443
          ^^^^"#]],
    );
    check(
        "sport 443 or sport 80",
        expect![[r#"
        all terms must match: write alternatives as a list, such as sport 80,443
          sport 443 or sport 80
                    ^^"#]],
    );
    check(
        "not dport 1",
        expect![[r#"
        a filter cannot exclude: list the values to include
          not dport 1
          ^^^"#]],
    );
    check(
        "state estblished",
        expect![[r#"
        unknown state estblished (did you mean established?); expected one of all, connected, established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, last-ack, listening, closing, new-syn-recv, bound-inactive
          state estblished
                ^^^^^^^^^^"#]],
    );
    check(
        "sport = https",
        expect![[r#"
        https is not a port: write a number, or a range such as 8000-8010
          sport = https
                  ^^^^^"#]],
    );
    check(
        "sport 9-8",
        expect![[r#"
        a range must start with the lower port: 8-9
          sport 9-8
                ^^^"#]],
    );
    check(
        "sport",
        expect![[r#"
        expected a port
          sport
               ^"#]],
    );
    check(
        "sport 1,",
        expect![[r#"
        expected a port
          sport 1,
                  ^"#]],
    );
    check(
        "sport >= 1024",
        expect![[r#"
        > is not a port: write a number, or a range such as 8000-8010
          sport >= 1024
                ^"#]],
    );
    check(
        "dst 10.0.0.1:443",
        expect![[r#"
        10.0.0.1:443 is not an address or prefix such as 203.0.113.0/24; a port needs its own term, sport or dport
          dst 10.0.0.1:443
              ^^^^^^^^^^^^"#]],
    );
    check(
        "dst 10.0.0.0/33",
        expect![[r#"
        10.0.0.0/33: prefix length of 10.0.0.0 must be at most 32
          dst 10.0.0.0/33
              ^^^^^^^^^^^"#]],
    );
    check(
        "dst ::ffff:10.0.0.0/24",
        expect![[r#"
        ::ffff:10.0.0.0/24: write an IPv4-mapped address as IPv4
          dst ::ffff:10.0.0.0/24
              ^^^^^^^^^^^^^^^^^^"#]],
    );
    check(
        "dst örtlich",
        expect![[r#"
        örtlich is not an address or prefix such as 203.0.113.0/24
          dst örtlich
              ^^^^^^^"#]],
    );
    let many = format!("sport {}", vec!["1"; ALTERNATIVES_MAX + 1].join(","));
    assert!(Filter::parse(&many).unwrap_err().to_string().starts_with("a list must have at most 256 values"));
    let twice = format!("sport {0} sport {0}", vec!["1"; ALTERNATIVES_MAX].join(","));
    assert!(Filter::parse(&twice).unwrap_err().to_string().starts_with("all lists of one kind"));
}

/// Asserts that a program passes the kernel's validation (`inet_diag_bc_audit`).
fn audit(program: &[u8]) {
    let mut starts = vec![];
    let mut at = 0;
    while at < program.len() {
        starts.push(at);
        at += usize::from(program[at + 1]);
    }
    assert_eq!(at, program.len(), "`yes` must lead to the end");
    for &start in &starts {
        let least = match program[start] {
            1 => 4,
            2..=5 => 8,
            7 | 8 => match program[start + 4] {
                2 => 16,
                10 => 28,
                family => panic!("family {family}"),
            },
            code => panic!("operation {code}"),
        };
        let no = usize::from(u16_at(program, start + 2).unwrap());
        assert!(usize::from(program[start + 1]) >= least && program[start + 1].is_multiple_of(4));
        assert!(
            no >= least && no.is_multiple_of(4) && no <= program.len() - start + 4,
            "jump of {no} at {start}"
        );
        let target = start + no;
        assert!(target >= program.len() || starts.contains(&target), "jump to {target} at {start}");
    }
}

/// Runs a program as the kernel does (`inet_diag_bc_run`). Returns whether it accepts a socket with
/// these addresses.
fn run(program: &[u8], local: SocketAddr, remote: SocketAddr) -> bool {
    let mut at = 0;
    while at < program.len() {
        let port = || u16_at(program, at + 6).unwrap();
        let holds = match program[at] {
            1 => false,
            2 => local.port() >= port(),
            3 => local.port() <= port(),
            4 => remote.port() >= port(),
            5 => remote.port() <= port(),
            7 => within(&program[at + 4..], local.ip()),
            _ => within(&program[at + 4..], remote.ip()),
        };
        at += if holds { program[at + 1].into() } else { usize::from(u16_at(program, at + 2).unwrap()) };
    }
    at == program.len()
}

fn within(condition: &[u8], address: IpAddr) -> bool {
    assert_eq!(u32_at(condition, 4), Some(u32::MAX), "any port");
    let bytes = match (condition[0], address) {
        (2, IpAddr::V4(address)) => address.octets().to_vec(),
        (2, IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.octets().to_vec(),
            None => return false,
        },
        (_, IpAddr::V6(address)) => address.octets().to_vec(),
        _ => return false,
    };
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    (0..usize::from(condition[1])).all(|at| bit(&bytes, at) == bit(&condition[8..], at))
}

const ADDRESSES: [&str; 8] = [
    "10.0.0.1",
    "10.0.1.1",
    "203.0.113.9",
    "::ffff:10.0.0.1",
    "::ffff:203.0.113.9",
    "2001:db8::1",
    "2001:db9::1",
    "::1",
];

#[test]
fn program_and_filter_agree() {
    let ports = ["", "sport 80", "sport 80,443-445,9", "dport 443", "sport 1-79,81-65535 dport 80,81"];
    let prefixes = [
        "",
        "src 10.0.0.0/24",
        "dst 10.0.0.0/24,203.0.113.0/24",
        "dst ::/0",
        "dst ::/0,10.0.1.0/24",
        "src ::8000:0:0/81,::1",
        "dst 2001:db8::/32 src 0.0.0.0/0",
        "src 10.0.0.1,2001:db8::1,::/64,203.0.113.0/25 dst ::/0,0.0.0.0/0",
    ];
    let mut accepted = 0;
    for text in ports.iter().flat_map(|ports| prefixes.map(|prefixes| format!("{ports} {prefixes}"))) {
        let filter = Filter::parse(&text).unwrap();
        let program = filter.bytecode();
        audit(&program);
        for (number, (local, remote)) in
            ADDRESSES.iter().flat_map(|local| ADDRESSES.map(|remote| (local, remote))).enumerate()
        {
            let port = |at: usize| [80, 443, 81, 444, 9][at % 5];
            let local = SocketAddr::new(local.parse().unwrap(), port(number));
            let remote = SocketAddr::new(remote.parse().unwrap(), port(number / 5 + 1));
            let expected = end_holds(&filter.local_ports, &filter.local_prefixes, local)
                && end_holds(&filter.remote_ports, &filter.remote_prefixes, remote);
            assert_eq!(run(&program, local, remote), expected, "{text}: {local} {remote}");
            accepted += u32::from(expected);
        }
    }
    assert!(accepted > 100 && accepted < 2000, "{accepted} of 2560 accepted: both outcomes must occur");
}

#[test]
fn longest_program_passes_the_kernels_audit() {
    let all = Filter {
        states: States::of(&[State::Established]),
        local_ports: vec![1..=2; ALTERNATIVES_MAX],
        remote_ports: vec![1..=2; ALTERNATIVES_MAX],
        local_prefixes: vec![network("::".parse().unwrap(), 1); ALTERNATIVES_MAX],
        remote_prefixes: vec![network("::".parse().unwrap(), 1); ALTERNATIVES_MAX],
    };
    let program = all.bytecode();
    audit(&program);
    assert!(run(&program, "[::2]:1".parse().unwrap(), "[::2]:2".parse().unwrap()));
    assert!(!run(&program, "[::2]:1".parse().unwrap(), "[::2]:3".parse().unwrap()));
    assert_eq!(Filter::default().bytecode(), []);
}
