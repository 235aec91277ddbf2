//! A real web server (nginx) with byte ranges.
#![allow(dead_code, reason = "each test binary uses only some fixtures")]

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running nginx, stopped when dropped.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Serves the files of a directory; `settings` are those of the location.
    pub(crate) fn start(root: &Path, settings: &str) -> Nginx {
        let directory = super::directory("nginx");
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = directory.join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; user root; pid {directory}/pid; error_log {directory}/error.log;\n\
             events {{ }} http {{ access_log off; server {{ listen {address}; root {root}; \
             location / {{ {settings} }} }} }}\n",
            directory = directory.display(),
            root = root.display(),
        );
        fs::write(&config, text).unwrap();
        let path = "/usr/sbin:/usr/local/sbin:/usr/bin:/bin";
        let mut command = Command::new("nginx");
        command.env("PATH", path).arg("-p").arg(&directory).arg("-c").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nginx is installed");
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Nginx { child, address }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
