//! Kernel settings in `/proc/sys/net/ipv4` that apply to every connection in a network namespace.
//!
//! Source: the kernel's `Documentation/networking/ip-sysctl.rst`.

use std::fs;
use std::io;

const SLOW_START_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

/// Reads `net.ipv4.tcp_slow_start_after_idle`: whether a connection restarts from the initial
/// window after being idle for longer than its retransmission timeout. Congestion controls with a
/// path model, such as BBR, ignore this setting.
///
/// # Errors
///
/// Returns an error if the setting cannot be read or is neither 0 nor 1.
pub fn slow_start_after_idle() -> io::Result<bool> {
    match fs::read_to_string(SLOW_START_AFTER_IDLE)?.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected 0 or 1, got {other:?}"))),
    }
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
    fn kernel_setting_is_read() {
        let text = fs::read_to_string(SLOW_START_AFTER_IDLE).unwrap();
        assert_eq!(slow_start_after_idle().unwrap(), text == "1\n");
    }
}
