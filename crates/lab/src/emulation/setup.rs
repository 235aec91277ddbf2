//! What a side is set to, and `ip`, which gives it addresses and routes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::addresses::Commands;
use super::namespace::Namespace;
use super::{Error, Family};

/// What both sides' network stacks are set to: buffers that fill any path of the library, nothing remembered from one
/// connection for the next, and no slow start after a pause, which would be another experiment.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/tcp_rmem", "4096 131072 67108864"),
    ("ipv4/tcp_wmem", "4096 65536 67108864"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_slow_start_after_idle", "0"),
    ("ipv4/ip_local_port_range", "10000 65535"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // An IPv6 prefix that is local as a whole still needs this to be bound to.
    ("ipv6/ip_nonlocal_bind", "1"),
];
/// And the server's side, where it hands packets on to the host.
const FORWARDING: &[(&str, &str)] = &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Gives a side its settings, addresses and routes; one that forwards hands packets on between its devices.
pub(super) fn set_up(namespace: &Namespace, forwards: bool, commands: &Commands) -> Result<(), Error> {
    let settings = || {
        let mut all = SYSCTLS.iter().chain(if forwards { FORWARDING } else { &[] });
        all.try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/{name}"), value))
    };
    namespace.run(settings).map_err(|error| Error::System("settings of a namespace", error))?;
    for family in [Family::Four, Family::Six] {
        let run = || Ok(ip_batch(commands.of(family)));
        namespace.run(run).map_err(|error| Error::System("thread in a namespace", error))??;
    }
    Ok(())
}

/// Has `ip` take these commands of a family, in this thread's namespace.
pub(super) fn ip_batch((family, commands): (&str, &str)) -> Result<(), Error> {
    match run_ip(&[family, "-batch", "-"], commands) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(Error::Addresses(message.trim().replace('\n', "; ")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing("ip", "iproute2")),
        Err(error) => Err(Error::System("process for `ip`", error)),
    }
}

/// Runs `ip`, with this as its input.
pub(super) fn run_ip(arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut ip = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for this program, which hears it once all is set up.
        .process_group(0)
        .spawn()?;
    ip.stdin.take().expect("it is piped").write_all(input.as_bytes())?;
    ip.wait_with_output()
}
