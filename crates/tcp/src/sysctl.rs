//! Settings of the kernel that hold for every connection of a network namespace: `/proc/sys/net/ipv4`.
//!
//! Source: `Documentation/networking/ip-sysctl.rst` of the kernel.

use std::fs;
use std::io;

const SLOW_START_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

/// Whether a connection that has sent nothing for longer than its retransmission timeout begins again from the initial
/// window. Congestion controls with a model of the path, such as BBR, do not ask it.
///
/// # Errors
/// When the setting cannot be read, or is no switch.
pub fn slow_start_after_idle() -> io::Result<bool> {
    match fs::read_to_string(SLOW_START_AFTER_IDLE)?.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("neither 0 nor 1: {other:?}"))),
    }
}

/// Sets it for all connections of this network namespace, those that are open too.
///
/// # Errors
/// When the setting cannot be written, as without CAP_NET_ADMIN or where `/proc/sys` is read-only.
pub fn set_slow_start_after_idle(on: bool) -> io::Result<()> {
    fs::write(SLOW_START_AFTER_IDLE, if on { "1" } else { "0" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_switch_is_read() {
        let text = fs::read_to_string(SLOW_START_AFTER_IDLE).unwrap();
        assert_eq!(slow_start_after_idle().unwrap(), text == "1\n");
    }
}
