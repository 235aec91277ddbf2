//! Tests of `tcp_info` decoding at each length, and of a live read from the kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use expect_test::{Expect, expect};

use super::*;

/// Builds a `tcp_info` in which every aligned u32 equals its own offset, so that each decoded
/// number shows which bytes it was read from. (A u64 at offset n would read as n + ((n + 4) << 32)
/// on a little-endian machine, so its high half is cleared.)
fn offsets(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len / 4).flat_map(|i| (i as u32 * 4).to_ne_bytes()).collect();
    for wide in [104, 112, 120, 128, 160, 168, 176, 184, 200, 208] {
        if wide + 8 <= len {
            bytes[wide..wide + 8].copy_from_slice(&(wide as u64).to_ne_bytes());
        }
    }
    bytes
}

/// Asserts the decoded fields, formatted as `name value` lines. Absent fields are omitted.
fn check(bytes: &[u8], expected: Expect) {
    let debug = format!("{:#?}", TcpInfo::decode(bytes).unwrap());
    let mut lines = String::new();
    for line in debug.replace("Some(\n        ", "").replace(",\n    )", "").lines() {
        if let Some((name, value)) = line.trim().trim_end_matches(',').split_once(": ")
            && value != "None"
        {
            lines.push_str(&format!("{name} {value}\n"));
        }
    }
    expected.assert_eq(&lines);
}

/// Asserts which fields become present when a `tcp_info` grows from `from` to `to` bytes.
fn added(from: usize, to: usize, expected: Expect) {
    let names = |len: usize| {
        let debug = format!("{:#?}", TcpInfo::decode(&offsets(len)).unwrap()).replace("Some(\n        ", "");
        let present = debug.lines().filter_map(|line| line.trim().split_once(": "));
        present.filter(|(_, value)| *value != "None,").map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let before = names(from);
    let new: Vec<_> = names(to).into_iter().filter(|name| !before.contains(name)).collect();
    expected.assert_eq(&new.join(" "));
}

#[test]
fn linux_3_14() {
    check(
        &offsets(104),
        expect![[r#"
        state 0
        ca_state 0
        retransmits 0
        rto_us 8
        snd_mss_bytes 16
        rcv_mss_bytes 20
        unacked 24
        sacked 28
        lost 32
        retrans 36
        last_data_sent_ms 44
        last_data_recv_ms 52
        last_ack_recv_ms 56
        pmtu_bytes 60
        rcv_ssthresh_bytes 64
        rtt_us 68
        rttvar_us 72
        snd_ssthresh 76
        snd_cwnd 80
        advmss_bytes 84
        reordering 88
        rcv_rtt_us 92
        rcv_space_bytes 96
        total_retrans 100
        delivery_rate_app_limited false
    "#]],
    );
}

#[test]
fn linux_6_18() {
    check(
        &offsets(280),
        expect![[r#"
            state 0
            ca_state 0
            retransmits 0
            rto_us 8
            snd_mss_bytes 16
            rcv_mss_bytes 20
            unacked 24
            sacked 28
            lost 32
            retrans 36
            last_data_sent_ms 44
            last_data_recv_ms 52
            last_ack_recv_ms 56
            pmtu_bytes 60
            rcv_ssthresh_bytes 64
            rtt_us 68
            rttvar_us 72
            snd_ssthresh 76
            snd_cwnd 80
            advmss_bytes 84
            reordering 88
            rcv_rtt_us 92
            rcv_space_bytes 96
            total_retrans 100
            delivery_rate_app_limited false
            pacing_rate_bytes_per_s 104
            max_pacing_rate_bytes_per_s 112
            bytes_acked 120
            bytes_received 128
            segs_out 136
            segs_in 140
            notsent_bytes 144
            min_rtt_us 148
            data_segs_in 152
            data_segs_out 156
            delivery_rate_bytes_per_s 160
            busy_time_us 168
            rwnd_limited_us 176
            sndbuf_limited_us 184
            delivered 192
            delivered_ce 196
            bytes_sent 200
            bytes_retrans 208
            dsack_dups 216
            reord_seen 220
            rcv_ooopack 224
            snd_wnd_bytes 228
            rcv_wnd_bytes 232
            rehash 236
            total_rto 240
            total_rto_recoveries 0
            total_rto_time_ms 244
            received_ce 248
            delivered_e1_bytes 252
            delivered_e0_bytes 256
            delivered_ce_bytes 260
            received_e1_bytes 264
            received_e0_bytes 268
            received_ce_bytes 272
        "#]],
    );
}

#[test]
fn each_kernel_adds_its_fields() {
    added(104, 120, expect!["pacing_rate_bytes_per_s max_pacing_rate_bytes_per_s"]);
    added(120, 136, expect!["bytes_acked bytes_received"]);
    added(136, 144, expect!["segs_out segs_in"]);
    added(144, 160, expect!["notsent_bytes min_rtt_us data_segs_in data_segs_out"]);
    added(160, 168, expect!["delivery_rate_bytes_per_s"]);
    added(168, 192, expect!["busy_time_us rwnd_limited_us sndbuf_limited_us"]);
    added(192, 200, expect!["delivered delivered_ce"]);
    added(200, 224, expect!["bytes_sent bytes_retrans dsack_dups reord_seen"]);
    added(224, 232, expect!["rcv_ooopack snd_wnd_bytes"]);
    added(232, 240, expect!["rcv_wnd_bytes rehash"]);
    added(240, 248, expect!["total_rto total_rto_recoveries total_rto_time_ms"]);
    added(
        248,
        280,
        expect![
            "received_ce delivered_e1_bytes delivered_e0_bytes delivered_ce_bytes received_e1_bytes received_e0_bytes received_ce_bytes"
        ],
    );
}

#[test]
fn truncated_field_is_absent() {
    assert_eq!(TcpInfo::decode(&offsets(168)[..167]).unwrap().delivery_rate_bytes_per_s, None);
    assert_eq!(TcpInfo::decode(&offsets(104)[..103]), None);
    assert_eq!(TcpInfo::decode(&[]), None);
}

#[test]
fn all_ones_value_is_absent() {
    let info = TcpInfo::decode(&[0xff; 280]).unwrap();
    assert_eq!(info.min_rtt_us, None);
    assert_eq!(info.pacing_rate_bytes_per_s, None);
    assert_eq!(info.max_pacing_rate_bytes_per_s, None);
    assert!(info.delivery_rate_app_limited);
}

#[test]
fn live_tcp_info_counts_bytes_sent_and_acknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(&[7; 10_000]).unwrap();
    client.read_exact(&mut [0; 10_000]).unwrap();
    client.write_all(b"got it").unwrap();
    server.read_exact(&mut [0; 6]).unwrap(); // carries the acknowledgement of the 10,000 bytes

    let info = TcpInfo::read(server.as_fd()).unwrap();
    assert_eq!(info.state, 1, "established");
    assert_eq!(info.bytes_sent, Some(10_000));
    assert_eq!(info.bytes_acked, Some(10_000));
    assert_eq!(info.bytes_received, Some(6));
    assert_eq!(info.notsent_bytes, Some(0));
    assert_eq!(info.total_retrans, 0);
    assert!(info.snd_cwnd >= 2 && info.rtt_us > 0 && info.min_rtt_us <= Some(info.rtt_us), "{info:?}");
    assert!(info.delivery_rate_bytes_per_s > Some(0), "{info:?}");
}

#[test]
fn non_tcp_socket_is_an_error() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(TcpInfo::read(udp.as_fd()).is_err());
}
