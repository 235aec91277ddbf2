//! Tests of the activity between two dumps, taken from a capture.

use expect_test::expect;
use thalweg_tcp::diag::decode_capture;

use super::*;

/// Sockets of Linux 6.18 in many states.
const CAPTURE: &[u8] = include_bytes!("../../../../../tcp/tests/captures/linux-6.18.bin");

fn capture() -> Vec<Socket> {
    let mut sockets = Vec::new();
    decode_capture(CAPTURE, |socket| sockets.push(*socket)).unwrap();
    sockets
}

fn joined(lines: &[Line<'_>]) -> String {
    lines.iter().map(Line::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn activity_appears_from_the_second_dump_on() {
    let mut seen = capture();
    let mut sockets = Sockets::default();
    let display = |sort| Display { sort, rows_max: 3, colour: Colour::Never, note: "  paused" };
    sockets.begin();
    seen.iter().for_each(|socket| sockets.add(socket, 0, Duration::ZERO));
    let first = sockets.lines(&[None], &display(Sort::Rtt));
    expect![[r#"
        16 sockets  bbr 13  cubic 1  none 1  reno 1  0bit/s acknowledged  0.0 retransmitted/s  sorted by rtt  paused
        STATE       PORT CC        SENDING  RETR/s     RTT     MIN  CWND     DELIVERY      PACING   RETR  LOST    ACKED    BUSY RWND SNDB    SENDQ CLIENT
        FIN-WAIT-2 44390 bbr        0bit/s     0.0   226us     6us    11   148Mbit/s*  1.25Tbit/s      0     0       2B  4.00ms   0%   0%       0B [::1]:8443
        ESTAB        443 bbr        0bit/s     0.0    27us     3us    18   175Gbit/s    535Gbit/s      0     0   293KiB     0us    -    -       0B 127.0.0.1:59108
        ESTAB      59108 bbr        0bit/s     0.0    18us     3us    11  87.4Gbit/s*   356Gbit/s      0     0       7B     0us    -    -       0B 127.0.0.1:443"#]].assert_eq(&joined(&first));

    // One socket sends, one retransmits, one is idle, and one is new.
    let busy = seen.iter_mut().filter_map(|socket| socket.tcp_info.as_mut()).filter(|info| info.state == 1);
    for (number, info) in busy.enumerate().take(2) {
        info.bytes_acked = info.bytes_acked.map(|bytes| bytes + 2_000_000 * number as u64);
        info.total_retrans += 5 - 5 * u32::try_from(number).unwrap();
    }
    sockets.begin();
    let mut new = seen[0];
    new.cookie = u64::MAX;
    seen.iter().chain([&new]).for_each(|socket| sockets.add(socket, 0, Duration::from_secs(2)));
    expect![[r#"
        17 sockets  bbr 14  cubic 1  none 1  reno 1  8.00Mbit/s acknowledged  2.5 retransmitted/s  sorted by sending  paused
        STATE       PORT CC        SENDING  RETR/s     RTT     MIN  CWND     DELIVERY      PACING   RETR  LOST    ACKED    BUSY RWND SNDB    SENDQ CLIENT
        ESTAB      43312 bbr    8.00Mbit/s     0.0     6us     6us    10      0bit/s*  1.25Tbit/s      0     0  1.91MiB     0us    -    -       0B 127.0.0.1:8443 edge
        LISTEN       443 bbr        0bit/s     0.0     0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      0/8 0.0.0.0:0 edge
        LISTEN         9 bbr        0bit/s     0.0     0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      1/0 0.0.0.0:0 edge"#]].assert_eq(&joined(&sockets.lines(&[Some("edge".to_owned())], &display(Sort::Sending))));
    expect![[r#"
        17 sockets  bbr 14  cubic 1  none 1  reno 1  8.00Mbit/s acknowledged  2.5 retransmitted/s  sorted by retrans  paused
        STATE       PORT CC        SENDING  RETR/s     RTT     MIN  CWND     DELIVERY      PACING   RETR  LOST    ACKED    BUSY RWND SNDB    SENDQ CLIENT
        ESTAB      59108 bbr        0bit/s     2.5    18us     3us    11  87.4Gbit/s*   356Gbit/s      5     0       7B     0us    -    -       0B 127.0.0.1:443
        LISTEN       443 bbr        0bit/s     0.0     0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      0/8 0.0.0.0:0
        LISTEN         9 bbr        0bit/s     0.0     0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      1/0 0.0.0.0:0"#]].assert_eq(&joined(&sockets.lines(&[None], &display(Sort::Retrans))));
    assert_eq!(sockets.before.len(), capture().iter().filter(|socket| socket.tcp_info.is_some()).count());
}
