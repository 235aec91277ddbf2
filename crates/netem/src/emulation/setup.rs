//! Setup of one side: writes kernel settings, and configures addresses and routes with `ip`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::addresses::Commands;
use super::namespace::Namespace;
use super::{Error, Family};

/// Settings of both sides' network stacks. Buffers are large enough to fill any named path. A
/// connection uses no metrics cached from earlier connections, and does not return to slow start
/// after an idle period.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/tcp_rmem", "4096 131072 67108864"),
    ("ipv4/tcp_wmem", "4096 65536 67108864"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_slow_start_after_idle", "0"),
    ("ipv4/ip_local_port_range", "10000 65535"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // Required to bind to any address in a local prefix.
    ("ipv6/ip_nonlocal_bind", "1"),
];
/// Additional settings of the server's side, used if it forwards packets to the host.
const FORWARDING: &[(&str, &str)] = &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Applies the settings, addresses and routes of one side. If `forwards` is set, the side forwards
/// packets between devices.
pub(super) fn set_up(namespace: &Namespace, forwards: bool, commands: &Commands) -> Result<(), Error> {
    let settings = || {
        let mut all = SYSCTLS.iter().chain(if forwards { FORWARDING } else { &[] });
        all.try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/{name}"), value))
    };
    namespace.run(settings).map_err(|error| Error::System("namespace settings", error))?;
    for family in [Family::Four, Family::Six] {
        let run = || Ok(ip_batch(commands.of(family)));
        namespace.run(run).map_err(|error| Error::System("a thread in a namespace", error))??;
    }
    Ok(())
}

/// Runs one family's commands with `ip` in this thread's namespace.
pub(super) fn ip_batch((family, commands): (&str, &str)) -> Result<(), Error> {
    match run_ip(&[family, "-batch", "-"], commands) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(Error::Addresses(message.trim().replace('\n', "; ")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing("ip", "iproute2")),
        Err(error) => Err(Error::System("a process for `ip`", error)),
    }
}

/// Runs `ip`, passing `input` on standard input.
pub(super) fn run_ip(arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut ip = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate process group keeps Ctrl-C from interrupting `ip`; this program handles the
        // signal after setup.
        .process_group(0)
        .spawn()?;
    ip.stdin.take().expect("stdin is piped").write_all(input.as_bytes())?;
    ip.wait_with_output()
}
