//! nginx and Varnish as test processes, on sockets that no other process can take.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::Directory;

/// A server process, killed on drop.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(command: &mut Command, log: &Path) -> Self {
        let child = command
            .stderr(File::create(log).unwrap())
            .spawn()
            .expect("server must be installed: run tools/setup test");
        Self { child, log: log.to_owned() }
    }

    /// Starts nginx with this server block on an inherited socket; connections wait until nginx
    /// accepts them.
    pub(crate) fn nginx(directory: &Directory, block: &str) -> (Self, PathBuf) {
        let (path, at) = (directory.path().join("socket"), directory.path().display());
        let listener = UnixListener::bind(&path).unwrap();
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/pid; user root; events {{ worker_connections 64; }}
             http {{ access_log off; include {at}/thalweg-cc.conf; server {{ listen unix:{at}/socket; {block} }} }}"
        );
        let config = directory.write("nginx.conf", &config);
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(directory.path()).arg("-c").arg(config).args(["-e", "stderr"]);
        // Pass the listener as descriptor 0, the way nginx passes its sockets during a binary
        // upgrade.
        command.env("NGINX", "0;").stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null());
        (Self::start(&mut command, &directory.path().join("log")), path)
    }

    /// Starts Varnish with this policy on a port chosen by Varnish.
    pub(crate) fn varnish(directory: &Directory, policy: &Path) -> (Self, SocketAddr) {
        let mut command = Command::new("/usr/sbin/varnishd");
        command
            .args(["-d", "-j", "none", "-T", "none", "-s", "malloc,32m", "-a", "127.0.0.1:0", "-f"])
            .arg(policy);
        command.arg("-n").arg(directory.path().join("varnish")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Self::start(&mut command, &directory.path().join("log"));
        // Varnish answers commands in order, and answers `start` once its child accepts
        // connections.
        let commands = b"start\ndebug.listen_address\n";
        server.child.stdin.as_mut().unwrap().write_all(commands).unwrap();
        let mut answers = BufReader::new(server.child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let listening = answers.find_map(|line| Some(line.strip_prefix("a0 ")?.replace(' ', ":")));
        let address = listening.unwrap_or_else(|| panic!("Varnish did not start: {}", server.log()));
        (server, address.parse().unwrap())
    }

    /// Returns the server's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Sends a request with these fields and returns the response content. Leaves the connection open.
pub(crate) fn get(connection: &mut (impl Read + Write), path: &str, fields: &str) -> String {
    write!(connection, "GET {path} HTTP/1.1\r\n{fields}\r\n").unwrap();
    let (mut response, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        let read = connection.read(&mut buffer).unwrap();
        assert!(read > 0, "the server closed the connection: {}", String::from_utf8_lossy(&response));
        response.extend(&buffer[..read]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, content)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        if content.len() == length.parse::<usize>().unwrap() {
            return content.to_owned();
        }
    }
}
