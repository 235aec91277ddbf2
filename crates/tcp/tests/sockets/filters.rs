//! Filter tests: a dump filtered by the kernel equals an unfiltered dump filtered by
//! [`Filter::holds`].

use thalweg_tcp::diag::{Filter, States};

use crate::pairs::{Zoo, dumped};

#[test]
fn kernel_and_filter_agree() {
    let zoo = Zoo::new();
    let (cookies, ports) = (zoo.cookies(), zoo.ports());
    let all = dumped(&Filter { states: States::ALL, ..Filter::default() }, &cookies);
    assert_eq!(all.len(), cookies.len(), "an unfiltered dump must have every socket");
    let [v4, v6, dual] = ports[..] else { panic!("expected three listeners") };
    let texts = [
        String::new(),
        "state all".to_owned(),
        "state established".to_owned(),
        "state close-wait,fin-wait-2".to_owned(),
        "state listening".to_owned(),
        format!("sport = :{v4}"),
        format!("dport {v4},{v6}-{v6},{dual} state established"),
        format!("sport {} state all", ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
        "src 127.0.0.0/8".to_owned(),
        "dst 127.0.0.7".to_owned(),
        "dst ::/0".to_owned(),
        "dst ::1,127.0.0.1 src ::/0,127.0.0.0/29".to_owned(),
        "src ::/0 state all".to_owned(),
        "src 0.0.0.0/0 dst 0.0.0.0/0 state all".to_owned(),
        "src 2001:db8::/32".to_owned(),
        format!("sport 1-{},{}-65535", v4 - 1, v4 + 1),
    ];
    let mut sizes = Vec::new();
    for text in &texts {
        let filter = Filter::parse(text).unwrap();
        let mut reported: Vec<u64> = dumped(&filter, &cookies).into_keys().collect();
        let holds = all.values().filter(|socket| filter.holds(socket));
        let mut expected: Vec<u64> = holds.map(|socket| socket.cookie).collect();
        reported.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reported, expected, "{text}");
        sizes.push(reported.len());
    }
    // Number of matches per filter, out of 15 sockets. Without this check, the test would also pass
    // if no filter ever matched.
    assert_eq!(sizes, [12, 15, 6, 6, 3, 2, 3, 9, 8, 2, 4, 10, 6, 9, 0, 10]);
}
