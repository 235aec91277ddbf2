//! Kernel settings in `/proc/sys/net/ipv4` that apply to every connection in a network namespace.
//!
//! Source: the kernel's `Documentation/networking/ip-sysctl.rst`.

use std::fs;
use std::io;

const SLOW_START_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";
const NO_METRICS_SAVE: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";

/// Reads `net.ipv4.tcp_slow_start_after_idle`: whether a connection restarts from the initial
/// window after being idle for longer than its retransmission timeout. Congestion controls with a
/// path model, such as BBR, ignore this setting.
///
/// # Errors
///
/// Returns an error if the setting cannot be read or is neither 0 nor 1.
pub fn slow_start_after_idle() -> io::Result<bool> {
    read_switch(SLOW_START_AFTER_IDLE)
}

fn read_switch(path: &str) -> io::Result<bool> {
    match fs::read_to_string(path)?.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected 0 or 1, got {other:?}"))),
    }
}

/// Returns a warning if `net.ipv4.tcp_no_metrics_save` is 0. The kernel then starts a connection
/// with the slow start threshold, RTT and reordering of earlier connections to the same address,
/// whatever their congestion control. Returns `None` if the setting cannot be read.
pub fn metrics_save_warning() -> Option<&'static str> {
    (!read_switch(NO_METRICS_SAVE).ok()?).then_some(
        "connections to a client start with the slow start threshold and RTT of its earlier ones, even \
         of those with another congestion control, which distorts comparisons: \
         run `sysctl -w net.ipv4.tcp_no_metrics_save=1`",
    )
}

/// Sets `net.ipv4.tcp_slow_start_after_idle` for all connections in this network namespace,
/// including open ones.
///
/// # Errors
///
/// Returns an error if the setting cannot be written, for example without CAP_NET_ADMIN or with a
/// read-only `/proc/sys`.
pub fn set_slow_start_after_idle(on: bool) -> io::Result<()> {
    fs::write(SLOW_START_AFTER_IDLE, if on { "1" } else { "0" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_metrics_are_warned_about() {
        let is_off = fs::read_to_string(NO_METRICS_SAVE).unwrap() == "0\n";
        assert_eq!(metrics_save_warning().is_some(), is_off);
    }

    #[test]
    fn kernel_setting_is_read() {
        let text = fs::read_to_string(SLOW_START_AFTER_IDLE).unwrap();
        assert_eq!(slow_start_after_idle().unwrap(), text == "1\n");
    }
}
