//! `thalweg bundle` tests: its output, and its effect in nginx and Varnish.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::thread;

use expect_test::expect;
use thalweg_bundle::Rule;
use thalweg_tcp::congestion;
use thalweg_tcp::diag::{Diag, Extensions, Filter};

use crate::bundles::{HOSTILE, document, document_but, document_with, of_rules, rule};
use crate::program::{Directory, thalweg};
use crate::servers::{Server, get};

/// Minimum size of responses to which the rules of [`sized`] apply.
const SIZE_BYTES: u64 = 100_000;

fn sized(prefix: &str, algorithm: &str) -> Rule {
    Rule { size_bytes_min: Some(SIZE_BYTES), ..rule(prefix, algorithm) }
}

/// Runs the command on a bundle and returns its output.
fn written(server: &str, directory: &Directory, document: &str) -> String {
    let file = directory.write("bundle.json", document);
    let output = thalweg(&["bundle", server, file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the maximum number of hosts to exclude; all but two have the maximum length.
fn many_hosts() -> Vec<String> {
    let long = |number| format!("{}.{number:03}.{}", "a".repeat(120), "b".repeat(128));
    (0..254).map(long).chain(["audio.example".to_owned(), "default".to_owned()]).collect()
}

/// Returns `Host` values to send, and for each whether [`many_hosts`] contains its host.
fn named(hosts: &[String]) -> [(String, bool); 10] {
    [
        ("audio.example".to_owned(), true),
        ("Audio.EXAMPLE:8080".to_owned(), true),
        ("audio.example.".to_owned(), true),
        ("audio.example.:80".to_owned(), true),
        ("default".to_owned(), true),
        (hosts[0].clone(), true),
        (hosts[253].to_uppercase(), true),
        ("audio-example".to_owned(), false),
        ("audio.example.com".to_owned(), false),
        ("my.audio.example".to_owned(), false),
    ]
}

#[test]
fn nginx_output_is_a_geo_map() {
    let directory = Directory::new();
    let rules = vec![sized("203.0.113.0/24", "bbr"), rule("2001:db8:77::/56", "dctcp-reno")];
    let text = written("nginx", &directory, &document(42, rules));
    expect![[r##"
        # Written by `thalweg bundle nginx`; do not edit.
        # Bundle 42, sha256:a6ea1fb37e21c1462efd837e4f7c265224b2ba7359e60964dc8f030c37586abb
        # Reason: " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        #
        # $thalweg_cc is the bundle's congestion control for the client's network and the host; empty without one, and for excluded
        # hosts. nginx cannot set it: `thalweg routes apply` does. Use it in log_format, limit_rate, add_header or a module that
        # sets it. It ignores the size limits and holdouts of rules: split_clients cannot compute the holdout hash.
        geo $thalweg_cc {
            default "";
            203.0.113.0/24 bbr; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
            2001:db8:77::/56 dctcp-reno; # " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        }
    "##]]
    .assert_eq(&text);
    let but = document_but(42, vec![rule("192.0.2.0/24", "bbr")], &["audio.example", "dashed-audio.example"]);
    let text = written("nginx", &directory, &but);
    expect![[r#"
        geo $thalweg_cc_of_network {
            default "";
            192.0.2.0/24 bbr;
        }
        map $host $thalweg_cc {
            default $thalweg_cc_of_network;
            ~^audio\.example$ "";
            ~^dashed-audio\.example$ "";
        }
    "#]]
    .assert_eq(&without_comments(&text));
}

/// Strips comments, which start with a number sign.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn varnish_output_is_valid_vcl() {
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
        # Bundle 42, sha256:bd3cd9a8a281e7949c3f4e16add6e79cf2aae29983d8b04a8c7cd1edc77a9acd
        # Reason: " } */ ; '); C{ system("x"); }C "} {" ${x} \ `id` # // é 漢
        #
        # No holdouts: VCL cannot compute the holdout hash. Sizes are taken from Content-Length: responses without it are not steered.

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
    let hosts = many_hosts();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let but = document_but(42, vec![sized("192.0.2.0/24", "bbr")], &hosts);
    let output = check(&written("varnish", &directory, &but));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let but =
        document_but(42, vec![sized("192.0.2.0/24", "bbr")], &["audio.example", "dashed-audio.example"]);
    let text = without_comments(&written("varnish", &directory, &but));
    let condition = text.lines().find(|line| line.contains("if (client.ip")).unwrap();
    expect![[r#"if (client.ip ~ thalweg_bbr_100000 && std.integer(resp.http.Content-Length, 0) >= 100000 && req.http.host !~ "(?i)^(?:audio\.example|dashed-audio\.example)\.*(?::[0-9]*)?$") {"#]]
        .assert_eq(condition.trim_start());
    let output = check(&written("varnish", &directory, &document(42, Vec::new())));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Returns a bundle in which a tenant has its own rules.
fn with_tenant(own: &str, of_all: Option<&str>) -> String {
    let own = Rule { tenant: "news.example".into(), ..rule("127.0.0.0/8", own) };
    let of_all = of_all.map(|algorithm| rule("127.0.0.0/16", algorithm));
    document_with(1, of_all.into_iter().chain([own]).collect(), &["news.example", "sport.example"])
}

#[test]
fn nginx_map_separates_tenants() {
    let directory = Directory::new();
    let text = written("nginx", &directory, &with_tenant("bbr", Some("reno")));
    expect![[r#"
        geo $thalweg_cc_of_network {
            default "";
            127.0.0.0/16 reno;
        }
        geo $thalweg_cc_of_tenant_1 {
            default "";
            127.0.0.0/8 bbr;
        }
        map $host $thalweg_cc {
            default $thalweg_cc_of_network;
            ~^news\.example$ $thalweg_cc_of_tenant_1;
            ~^sport\.example$ $thalweg_cc_of_tenant_1;
        }
    "#]]
    .assert_eq(&without_comments(&text));
    directory.write("thalweg-cc.conf", &text);
    let (server, socket) = Server::nginx(
        &directory,
        "set_real_ip_from unix:; real_ip_header X-Client; return 200 \"[$thalweg_cc]\";",
    );
    let algorithm_of = |host: &str| {
        let mut connection = UnixStream::connect(&socket).unwrap();
        get(&mut connection, "/", &format!("Host: {host}\r\nX-Client: 127.0.0.7\r\nConnection: close\r\n"))
    };
    assert_eq!(algorithm_of("video.example"), "[reno]", "{}", server.log());
    assert_eq!([algorithm_of("news.example"), algorithm_of("Sport.example.:80")], ["[bbr]", "[bbr]"]);
}

#[test]
fn varnish_steers_a_tenants_hosts_alone() {
    let directory = Directory::new();
    let (default, other) = algorithms();
    let text = written("varnish", &directory, &with_tenant(&other, None));
    expect![[r#"
        vcl 4.0;
        import std;
        import tcp;
        acl thalweg1_OTHER_0 {
            "127.0.0.0"/8;
        }
        sub vcl_deliver {
            if (client.ip ~ thalweg1_OTHER_0 && (req.http.host ~ "(?i)^(?:news\.example|sport\.example)\.*(?::[0-9]*)?$")) {
                if (tcp.congestion_algorithm("OTHER") != 0) {
                    std.log("thalweg: the kernel refuses OTHER");
                }
            }
        }
    "#]].assert_eq(&without_comments(&text).replace(&other, "OTHER"));
    directory.write("thalweg.vcl", &text);
    let (_server, address) = varnish(&directory);
    for (host, runs) in [("video.example", &default), ("Sport.example:80", &other), ("news.example.", &other)]
    {
        let mut connection = TcpStream::connect(address).unwrap();
        get(&mut connection, "/1000", &format!("Host: {host}\r\n"));
        assert_eq!(at_the_server(&connection), *runs, "{host}");
    }
}

#[test]
fn unwritable_rules_and_files_are_reported() {
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
    assert_eq!(
        refused(&["varnish", bundle, "-o", out]),
        "thalweg: \"b.b\": names with a dot are invalid in VCL\n"
    );
    assert_eq!(
        refused(&["nginx", "/there-is-none", "-o", out]),
        "thalweg: cannot read /there-is-none: No such file or directory (os error 2)\n"
    );
    assert_eq!(
        refused(&["nginx", bundle, "-o", "/there-is-none/out"]),
        "thalweg: cannot write /there-is-none/out: No such file or directory (os error 2)\n"
    );
    // A device or pipe must not be replaced by a file.
    let report = refused(&["nginx", bundle, "-o", "/dev/null"]);
    assert_eq!(report, "thalweg: cannot write /dev/null: not a regular file\n");
    // A line break in a reason would end the comment that contains it, so bundles must not have
    // any.
    let two_lines = of_rules(1, &[("203.0.113.0/24", "bbr")]).replace("漢", "\\n} include evil; #");
    let two_lines = directory.write("bundle.json", &two_lines);
    let report = refused(&["nginx", two_lines.to_str().unwrap(), "-o", out]);
    assert!(report.contains("DIR/bundle.json: /reason: must be one line"), "{report}");
    assert!(report.contains("DIR/bundle.json: /rules/0/reason: must be one line"), "{report}");
}

#[test]
fn only_the_named_file_is_written() {
    let directory = Directory::new();
    let bundle = directory.write("bundle.json", &of_rules(1, &[("203.0.113.0/24", "bbr")]));
    let (other, link) = (directory.write("other", "as it was"), directory.path().join("link"));
    // The link's target does not exist yet, and another link occupies the temporary name.
    std::os::unix::fs::symlink("map", &link).unwrap();
    let (map, passing) = (directory.path().join("map"), directory.path().join("map.new"));
    std::os::unix::fs::symlink(&other, &passing).unwrap();
    let write = || {
        thalweg(&["bundle", "nginx", bundle.to_str().unwrap(), "-o", link.to_str().unwrap()])
            .output()
            .unwrap()
    };
    assert!(write().status.success());
    assert!(link.is_symlink() && std::fs::read_to_string(&map).unwrap().contains("203.0.113.0/24"));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "as it was");
    let mode = |file| std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode(&map), mode(&other), "the mode must let other servers read the file");
    // The links form a cycle.
    std::fs::remove_file(&map).unwrap();
    std::os::unix::fs::symlink("link", &map).unwrap();
    assert!(String::from_utf8(write().stderr).unwrap().contains("too many symbolic links"));
    assert!(!passing.exists());
}

#[test]
fn nginx_maps_each_client_to_its_algorithm() {
    let (directory, hosts) = (Directory::new(), many_hosts());
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let rules = [("127.0.0.0/8", "reno"), ("2001:db8:77::/56", "bbr"), ("203.0.113.0/24", "dctcp-reno")];
    let map = directory.write("as-it-was", "");
    let link = directory.path().join("thalweg-cc.conf");
    std::os::unix::fs::symlink(&map, &link).unwrap();
    let rules = rules.map(|(prefix, algorithm)| rule(prefix, algorithm)).to_vec();
    for left_alone in [&[][..], &hosts] {
        let bundle = directory.write("bundle.json", &document_but(1, rules.clone(), left_alone));
        let args = ["bundle", "nginx", bundle.to_str().unwrap(), "--output", link.to_str().unwrap()];
        assert!(thalweg(&args).status().unwrap().success());
        assert!(link.is_symlink(), "only the link's target may be replaced");
        let block = "set_real_ip_from unix:; real_ip_header X-Client; return 200 \"[$thalweg_cc]\";";
        let (server, socket) = Server::nginx(&directory, block);
        let algorithm_of = |client: &str, host: &str| {
            let mut connection = UnixStream::connect(&socket).unwrap();
            let fields = format!("Host: {host}\r\nX-Client: {client}\r\nConnection: close\r\n");
            get(&mut connection, "/", &fields)
        };
        for (client, expected) in [
            ("127.0.0.1", "[reno]"),
            ("203.0.113.255", "[dctcp-reno]"),
            ("203.0.114.0", "[]"),
            ("2001:db8:77:ff::1", "[bbr]"),
            ("2001:db8:77:100::1", "[]"),
        ] {
            assert_eq!(algorithm_of(client, "video.example"), expected, "{client}: {}", server.log());
        }
        for (host, is_named) in named(&many_hosts()) {
            let is_left_alone = is_named && !left_alone.is_empty();
            assert_eq!(
                algorithm_of("127.0.0.1", &host),
                if is_left_alone { "[]" } else { "[reno]" },
                "{host}"
            );
        }
        drop(server);
        std::fs::remove_file(socket).unwrap();
    }
}

/// Starts a backend that takes the content length from the request path; returns its address.
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

/// Returns the congestion control of the connection's server end, as reported by the kernel.
fn at_the_server(connection: &TcpStream) -> String {
    let (server, client) = (connection.peer_addr().unwrap(), connection.local_addr().unwrap());
    let filter = Filter::parse(&format!("sport {} dport {}", server.port(), client.port())).unwrap();
    let mut found = None;
    let each = |socket: &thalweg_tcp::diag::Socket| found = socket.congestion_control;
    Diag::open().unwrap().dump(&filter, Extensions::CONGESTION_CONTROL, each).unwrap();
    found.expect("the kernel lists the open socket").to_string()
}

/// Returns the kernel's default algorithm and another algorithm.
fn algorithms() -> (String, String) {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = default.trim().to_owned();
    let other = congestion::available().unwrap().into_iter().map(|name| name.to_string());
    let other = other
        .into_iter()
        .find(|name| *name != default)
        .expect("the kernel has at least two congestion controls");
    (default, other)
}

/// Starts Varnish with the policy in `thalweg.vcl`.
fn varnish(directory: &Directory) -> (Server, SocketAddr) {
    let (behind, at) = (backend(), directory.path().display());
    let policy = format!(
        "vcl 4.1;\ninclude \"{at}/thalweg.vcl\";\n\
         backend content {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\nsub vcl_recv {{ return (pass); }}",
        behind.port()
    );
    let policy = directory.write("policy.vcl", &policy);
    assert!(thalweg(&["check", policy.to_str().unwrap()]).output().unwrap().status.success());
    Server::varnish(directory, &policy)
}

#[test]
fn varnish_steers_large_enough_responses() {
    let directory = Directory::new();
    let (default, other) = algorithms();
    let rules = vec![
        sized("127.0.0.0/8", &other),
        rule("203.0.113.0/24", &other),
        rule("2001:db8:77::/56", "nosuch"),
    ];
    let hosts = many_hosts();
    let left_alone: Vec<_> = hosts.iter().map(String::as_str).collect();
    let text = written("varnish", &directory, &document_but(1, rules, &left_alone));
    directory.write("thalweg.vcl", &text);
    let (_server, address) = varnish(&directory);
    let mut connection = TcpStream::connect(address).unwrap();
    get(&mut connection, "/99999", "Host: video.example\r\n");
    assert_eq!(at_the_server(&connection), default);
    get(&mut connection, "/100000", "Host: video.example\r\n");
    assert_eq!(at_the_server(&connection), other);
    for (host, is_named) in named(&hosts) {
        let mut connection = TcpStream::connect(address).unwrap();
        get(&mut connection, "/100000", &format!("Host: {host}\r\n"));
        assert_eq!(at_the_server(&connection), *if is_named { &default } else { &other }, "{host}");
    }
    let mut connection = TcpStream::connect(address).unwrap();
    get(&mut connection, "/100000", "Host: default.\r\n");
    get(&mut connection, "/100000", "Host: video.example\r\n");
    assert_eq!(
        at_the_server(&connection),
        other,
        "an excluded host must not prevent steering of another host on the same connection"
    );
}

#[test]
fn hostile_reason_has_every_dangerous_token() {
    for dangerous in ["\"", "}", "*/", ";", "C{", "#", "//", "${", "\\"] {
        assert!(HOSTILE.contains(dangerous), "{dangerous}");
    }
}
