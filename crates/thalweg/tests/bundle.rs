//! `thalweg bundle` as other servers take it: what it writes, and what nginx and Varnish make of that.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod bundles;
mod program;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use thalweg_bundle::Rule;
use thalweg_tcp::congestion;
use thalweg_tcp::diag::{Diag, Extensions, Filter};

use bundles::{HOSTILE, document, of_rules, rule};
use program::{Directory, thalweg};

/// A server accepts connections by then, also one that compiles its policy first.
const START_MAX: Duration = Duration::from_secs(30);
/// From what size on rules of [`sized`] hold.
const SIZE_BYTES: u64 = 100_000;

fn sized(prefix: &str, algorithm: &str) -> Rule {
    Rule { size_bytes_min: Some(SIZE_BYTES), ..rule(prefix, algorithm) }
}

/// What the command prints of a bundle.
fn written(server: &str, directory: &Directory, document: &str) -> String {
    let file = directory.write("bundle.json", document);
    let output = thalweg(&["bundle", server, file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server's process, which accepts connections; it ends with this.
struct Server(Child);

impl Server {
    fn start(command: &mut Command, address: SocketAddr, log: &Path) -> Self {
        let errors = std::fs::File::create(log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let mut server = Self(child.expect("tools/setup test installs it"));
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let has_ended = server.0.try_wait().unwrap().is_some() || begun.elapsed() > START_MAX;
            assert!(!has_ended, "it does not start: {}", std::fs::read_to_string(log).unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The response to a request on this connection, which stays open.
fn get(connection: &mut TcpStream, path: &str) -> String {
    write!(connection, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut response, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        let read = connection.read(&mut buffer).unwrap();
        assert!(read > 0, "it closed: {}", String::from_utf8_lossy(&response));
        response.extend(&buffer[..read]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, content)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        if content.len() == length.parse::<usize>().unwrap() {
            return content.to_owned();
        }
    }
}

#[test]
fn a_geo_map() {
    let directory = Directory::new();
    let rules = vec![sized("203.0.113.0/24", "bbr"), rule("2001:db8:77::/56", "dctcp-reno")];
    let text = written("nginx", &directory, &document(42, rules));
    expect![[r##"
        # Written by `thalweg bundle nginx`; do not edit.
        # Bundle 42, sha256:5f2068d6bbeaeebe5a6683542b00bdf4c76f6ed363f5d50eb84f12eebecb1e5e
        # Reason: " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        #
        # $thalweg_cc is the congestion control that the bundle has for the client's network, empty where it has none. nginx cannot
        # set it: `thalweg routes apply` does. For log_format, limit_rate, add_header or a module that sets it. Rules' sizes are not
        # in it, nor hosts that are left alone, nor who is held out, by a hash that split_clients does not compute.
        geo $thalweg_cc {
            default "";
            203.0.113.0/24 bbr; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
            2001:db8:77::/56 dctcp-reno; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        }
    "##]]
    .assert_eq(&text);
}

#[test]
fn vcl() {
    let directory = Directory::new();
    let rules = vec![
        sized("203.0.113.0/24", "bbr"),
        rule("2001:db8:77::/56", "bbr"),
        rule("192.0.2.0/24", "cubic"),
        sized("198.51.100.0/24", "bbr"),
    ];
    let text = written("varnish", &directory, &document(42, rules));
    expect![[r#"
        vcl 4.0;
        # Written by `thalweg bundle varnish`; do not edit.
        # Bundle 42, sha256:0d583c67d4272dbcdac8887b37eca5f918c618e49b74eb34a7119a425feeaa2b
        # Reason: " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        #
        # Nobody is held out: that goes by a hash that VCL does not compute. No host is left alone. A size is that of Content-Length: what has none is not steered.

        import std;
        import tcp;

        acl thalweg_bbr_0 {
            "2001:db8:77::"/56; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        }

        acl thalweg_bbr_100000 {
            "203.0.113.0"/24; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
            "198.51.100.0"/24; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        }

        acl thalweg_cubic_0 {
            "192.0.2.0"/24; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        }

        sub vcl_deliver {
            if (client.ip ~ thalweg_bbr_0) {
                if (tcp.congestion_algorithm("bbr") != 0) {
                    std.log("thalweg: the kernel refuses bbr");
                }
            }
            if (client.ip ~ thalweg_bbr_100000 && std.integer(resp.http.Content-Length, 0) >= 100000) {
                if (tcp.congestion_algorithm("bbr") != 0) {
                    std.log("thalweg: the kernel refuses bbr");
                }
            }
            if (client.ip ~ thalweg_cubic_0) {
                if (tcp.congestion_algorithm("cubic") != 0) {
                    std.log("thalweg: the kernel refuses cubic");
                }
            }
        }
    "#]]
    .assert_eq(&text);
    let check = |text: &str| {
        let file = directory.write("thalweg.vcl", text);
        thalweg(&["check", file.to_str().unwrap()]).output().unwrap()
    };
    assert!(check(&text).status.success());
    let odd = document(42, vec![rule("0.0.0.0/0", "bbr"), rule("::/0", "x_-1")]);
    assert!(check(&written("varnish", &directory, &odd)).status.success());
    let output = check(&written("varnish", &directory, &document(42, Vec::new())));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_cannot_be_written_is_told() {
    let directory = Directory::new();
    let bundle = directory.write("bundle.json", &of_rules(1, &[("203.0.113.0/24", "b.b")]));
    let bundle = bundle.to_str().unwrap();
    let out = directory.write("out", "as it was");
    let refused = |args: &[&str]| {
        let output = thalweg(&[&["bundle"], args].concat()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{args:?}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "as it was", "{args:?}");
        String::from_utf8(output.stderr).unwrap().replace(&directory.path().display().to_string(), "DIR")
    };
    let out = out.to_str().unwrap();
    assert_eq!(refused(&["varnish", bundle, "-o", out]), "thalweg: \"b.b\": a name in VCL has no dot\n");
    assert_eq!(
        refused(&["nginx", "/there-is-none", "-o", out]),
        "thalweg: cannot read /there-is-none: No such file or directory (os error 2)\n"
    );
    assert_eq!(
        refused(&["nginx", bundle, "-o", "/there-is-none/out"]),
        "thalweg: cannot write /there-is-none/out: No such file or directory (os error 2)\n"
    );
    // A reason of two lines would end its comment: no bundle has one.
    let two_lines = of_rules(1, &[("203.0.113.0/24", "bbr")]).replace("漢", "\\n} include evil; #");
    let two_lines = directory.write("bundle.json", &two_lines);
    let said = refused(&["nginx", two_lines.to_str().unwrap(), "-o", out]);
    assert!(said.contains("DIR/bundle.json: /reason: not a text of one line"), "{said}");
    assert!(said.contains("DIR/bundle.json: /rules/0/reason: not a text of one line"), "{said}");
}

#[test]
fn nginx_tells_it_of_each_client() {
    let directory = Directory::new();
    let rules = [("127.0.0.0/8", "reno"), ("2001:db8:77::/56", "bbr"), ("203.0.113.0/24", "dctcp-reno")];
    let bundle = directory.write("bundle.json", &of_rules(1, &rules));
    let map = directory.path().join("thalweg-cc.conf");
    let args = ["bundle", "nginx", bundle.to_str().unwrap(), "--output", map.to_str().unwrap()];
    for _ in 0..2 {
        assert!(thalweg(&args).status().unwrap().success());
    }
    let (address, at) = (free_address(), directory.path().display());
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/pid; user root; events {{ worker_connections 64; }}
         http {{
             access_log off; include {at}/thalweg-cc.conf;
             server {{ listen {address}; set_real_ip_from 127.0.0.1; real_ip_header X-Client; return 200 \"[$thalweg_cc]\"; }}
         }}"
    );
    let config = directory.write("nginx.conf", &config);
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(directory.path()).arg("-c").arg(config).args(["-e", "stderr"]);
    let _server = Server::start(&mut command, address, &directory.path().join("log"));
    for (client, expected) in [
        ("127.0.0.1", "[reno]"),
        ("203.0.113.255", "[dctcp-reno]"),
        ("203.0.114.0", "[]"),
        ("2001:db8:77:ff::1", "[bbr]"),
        ("2001:db8:77:100::1", "[]"),
    ] {
        let mut connection = TcpStream::connect(address).unwrap();
        let path = format!("/ HTTP/1.1\r\nX-Client: {client}\r\nX-Rest:");
        assert_eq!(get(&mut connection, &path), expected, "{client}");
    }
}

/// A backend whose content has as many bytes as the path says.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut head = [0; 4096];
            let read = connection.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let length: usize = head.split(['/', ' ']).nth(2).and_then(|path| path.parse().ok()).unwrap_or(0);
            let fields = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = connection.write_all(&[fields.into_bytes(), vec![b'x'; length]].concat());
        }
    });
    address
}

/// What the kernel says that the server's end of a connection runs.
fn at_the_server(connection: &TcpStream) -> String {
    let (server, client) = (connection.peer_addr().unwrap(), connection.local_addr().unwrap());
    let filter = Filter::parse(&format!("sport {} dport {}", server.port(), client.port())).unwrap();
    let mut found = None;
    let each = |socket: &thalweg_tcp::diag::Socket| found = socket.congestion_control;
    Diag::open().unwrap().dump(&filter, Extensions::CONGESTION_CONTROL, each).unwrap();
    found.expect("it is open").to_string()
}

#[test]
fn varnish_sets_it_for_what_is_large_enough() {
    let directory = Directory::new();
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = default.trim();
    let other = congestion::available().unwrap().into_iter().map(|name| name.to_string());
    let other = other.into_iter().find(|name| name != default).expect("every kernel has reno and another");
    let rules = vec![
        sized("127.0.0.0/8", &other),
        rule("203.0.113.0/24", &other),
        rule("2001:db8:77::/56", "nosuch"),
    ];
    directory.write("thalweg.vcl", &written("varnish", &directory, &document(1, rules)));
    let (address, behind, at) = (free_address(), backend(), directory.path().display());
    let policy = format!(
        "vcl 4.1;\ninclude \"{at}/thalweg.vcl\";\n\
         backend content {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\nsub vcl_recv {{ return (pass); }}",
        behind.port()
    );
    let policy = directory.write("policy.vcl", &policy);
    assert!(thalweg(&["check", policy.to_str().unwrap()]).output().unwrap().status.success());
    let mut command = Command::new("/usr/sbin/varnishd");
    command.args(["-F", "-j", "none", "-T", "none", "-s", "malloc,32m", "-a", &address.to_string()]);
    command.arg("-n").arg(directory.path().join("varnish")).arg("-f").arg(policy);
    let _server = Server::start(&mut command, address, &directory.path().join("log"));
    let mut connection = TcpStream::connect(address).unwrap();
    get(&mut connection, "/99999");
    assert_eq!(at_the_server(&connection), default);
    get(&mut connection, "/100000");
    assert_eq!(at_the_server(&connection), other);
}

#[test]
fn a_hostile_reason_is_hostile() {
    for dangerous in ["\"", "}", "*/", ";", "C{", "#", "//", "${", "\\"] {
        assert!(HOSTILE.contains(dangerous), "{dangerous}");
    }
}
