//! `thalweg check FILE.vcl`: compiles a policy without running it.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use thalweg_policy::{File, Known, Program, Report, compile};
use thalweg_tcp::congestion;

/// Error for a rejected policy; displays the compiler's report.
#[derive(Debug)]
pub(crate) struct Refused(Report);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// Compiles the policy at `path`. Each include is resolved relative to the file that contains it.
pub(crate) fn check(path: &Path) -> anyhow::Result<(Program, Report)> {
    let main = read(path).map_err(anyhow::Error::msg)?;
    let mut loader = |name: &str, within: &str| {
        let beside = Path::new(within).parent().unwrap_or(Path::new(""));
        read(&beside.join(name))
    };
    Ok(compile(main, &mut loader, &known()).map_err(Refused)?)
}

fn read(path: &Path) -> Result<File, String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{name}: not UTF-8"))?;
    Ok(File { name, text })
}

/// Returns the facts about this machine that the compiler may assume. Geo databases and labels are
/// left unspecified, because they depend on an edge's settings.
fn known() -> Known {
    let algorithms = congestion::available().ok();
    Known {
        congestion_algorithms: algorithms
            .map(|names| names.iter().map(|name| name.as_str().to_owned()).collect()),
        has_geo: None,
        storages: ["s0", "Transient", "disk"].map(str::to_owned).into(),
        labels: None,
        resolve: Some(resolve),
        is_known_host: Some(is_known_host),
    }
}

/// Time limit for all backend look-ups together, because a check must also work offline.
const LOOK_UP_MAX: Duration = Duration::from_secs(3);

/// Returns whether `host` resolves in time. Hosts looked up after the time limit count as known.
fn is_known_host(host: &str) -> bool {
    static UNTIL: OnceLock<Instant> = OnceLock::new();
    let left = UNTIL.get_or_init(|| Instant::now() + LOOK_UP_MAX).saturating_duration_since(Instant::now());
    if left.is_zero() {
        return true;
    }
    let (host, (send, found)) = (host.to_owned(), mpsc::channel());
    // A look-up cannot be cancelled; it ends with the process.
    std::thread::spawn(move || send.send(!resolve(&host).is_empty()));
    found.recv_timeout(left).unwrap_or(false)
}

fn resolve(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("thalweg-policy-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path
    }

    #[test]
    fn includes_resolve_beside_the_including_file() {
        let included = file("part.vcl", "sub part { set req.http.a = \"1\"; }");
        let name = included.file_name().expect("the path names a file").to_str().expect("the name is ASCII");
        let text = format!(
            "vcl 4.1; backend b {{ .host = \"::1\"; }} include \"{name}\"; sub vcl_recv {{ call part; }}"
        );
        let main = file("main.vcl", &text);
        let (program, report) = check(&main).expect("the policy is valid");
        assert_eq!(report.faults.len(), 0, "{report}");
        assert_eq!(program.backends().len(), 1);
    }

    #[test]
    fn unresolvable_backend_causes_a_warning() {
        // RFC 6761 §6.4: this name never resolves.
        let main = file("host.vcl", "vcl 4.1; backend b { .host = \"nosuch.invalid\"; }");
        let (_, report) = check(&main).expect("the policy is valid");
        assert!(report.to_string().contains("nosuch.invalid does not resolve on this host"), "{report}");
        let main = file("known.vcl", "vcl 4.1; backend b { .host = \"localhost\"; }");
        assert_eq!(check(&main).expect("the policy is valid").1.to_string(), "");
    }

    #[test]
    fn every_fault_is_reported() {
        let main = file("wrong.vcl", "vcl 4.1;\nsub vcl_recv { set req.urll = 1; call nosuch; }\n");
        let error = check(&main).expect_err("the policy is invalid").to_string();
        assert!(error.contains("wrong.vcl:2:20"), "{error}");
        assert!(error.contains("did you mean req.url?"), "{error}");
        assert!(error.contains("unknown subroutine nosuch"), "{error}");
    }
}
