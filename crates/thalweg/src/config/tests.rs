//! Config tests: faults as the user sees them, and the declarations.

use expect_test::{Expect, expect, expect_file};
use proptest::prelude::*;
use thalweg_edge::BundleSource;

use super::declare::{Absent, Setting};
use super::sections::SECTIONS;
use super::*;

/// Checks that `text`, read as `thalweg.toml`, has the expected faults.
fn check(text: &str, expected: Expect) {
    let report = match Config::from_text(Path::new("thalweg.toml"), text) {
        Ok(_) => "no fault".to_owned(),
        Err(faults) => faults.to_string(),
    };
    expected.assert_eq(&report);
}

#[test]
fn unknown_key_suggests_the_nearest_known() {
    check(
        "[origin]\nlisten = '127.0.0.1:1'\n\n[edge]\nlistn = '127.0.0.1:2'",
        expect![[r#"thalweg.toml:5:1: unknown key "listn" in [edge]; did you mean "listen"?"#]],
    );
    check(
        "[origin]\nbackends = 'http://127.0.0.1:1'",
        expect![[r#"thalweg.toml:2:1: unknown key "backends" in [origin]; it belongs to [edge]"#]],
    );
    check(
        "[console]\ncolour = 'red'",
        expect![[r#"thalweg.toml:2:1: unknown key "colour" in [console]; known keys: listen, edge"#]],
    );
}

#[test]
fn unknown_section_is_reported() {
    check(
        "[orgin]\nlisten = '127.0.0.1:1'",
        expect![[r#"thalweg.toml:1:2: unknown section "orgin"; did you mean [origin]?"#]],
    );
    check(
        "[kafka]",
        expect![[
            r#"thalweg.toml:1:2: unknown section "kafka"; known sections: edge, origin, console, agent, consumer, controller, tenant, source"#
        ]],
    );
    check(
        "edge = 1\nsource = 2\n[origin]",
        expect![[r#"
        thalweg.toml:1:1: edge is a section: write [edge] on its own line
        thalweg.toml:2:1: source is a repeatable section: write [[source]]"#]],
    );
    check(
        "[source]\nchannel = 'a'\nmedia = '.'\n[origin]",
        expect!["thalweg.toml:1:2: source is a repeatable section: write [[source]]"],
    );
}

#[test]
fn ingest_beyond_loopback_needs_a_token() {
    let origin = |lines: &str, expected| check(&format!("[origin]\n{lines}\n"), expected);
    origin(
        "ingest = '0.0.0.0:8084'",
        expect![[
            "thalweg.toml:2:10: ingest: 0.0.0.0:8084 is reachable from other machines, so anyone could publish: set ingest_token, or use a loopback address"
        ]],
    );
    origin("ingest = '0.0.0.0:8084'\ningest_token = 'correct-horse-battery'", expect!["no fault"]);
    origin("ingest = '[::1]:8084'", expect!["no fault"]);
    origin(
        "ingest_token = 'short'",
        expect![
            "thalweg.toml:2:16: ingest_token: expected a token of at least 16 letters, digits and -._~+/=, or @FILE"
        ],
    );
    origin(
        "ingest_token = '@not-there'",
        expect![[
            "thalweg.toml:2:16: ingest_token: cannot read secret file not-there: No such file or directory (os error 2)"
        ]],
    );
}

#[test]
fn wrong_value_is_reported_with_the_expected_form() {
    let edge = |line: &str, expected| check(&format!("[origin]\n[edge]\n{line}\n"), expected);
    edge(
        "memory = 1073741824",
        expect![[
            r#"thalweg.toml:3:10: memory: expected a size such as "512MiB", got the number 1073741824"#
        ]],
    );
    edge("memory = '1 GB'", expect![[r#"thalweg.toml:3:10: memory: "1 GB" is not a size: write "1GB""#]]);
    edge("memory = '1KiB'", expect![[r#"thalweg.toml:3:10: memory: "1KiB" is outside 16MiB to 16TiB"#]]);
    edge("threads = 0", expect!["thalweg.toml:3:11: threads: the number 0 is outside 1 to 1024"]);
    edge("threads = 'two'", expect![[r#"thalweg.toml:3:11: threads: "two" is not a whole number"#]]);
    edge(
        "listen = ':8080'",
        expect![[
            r#"thalweg.toml:3:10: listen: ":8080" has no address: write "127.0.0.1:8080" or "0.0.0.0:8080""#
        ]],
    );
    edge(
        "listen = 'localhost:8080'",
        expect![[r#"thalweg.toml:3:10: listen: "localhost:8080" is a name: write "127.0.0.1" or "[::1]""#]],
    );
    edge(
        "listen = '8080'",
        expect![[
            r#"thalweg.toml:3:10: listen: "8080" has no address: write "127.0.0.1:8080" or "0.0.0.0:8080""#
        ]],
    );
    edge(
        "listen = { port = 8080 }",
        expect![[
            r#"thalweg.toml:3:10: listen: expected an address and a port such as "127.0.0.1:8080", got a value of type table"#
        ]],
    );
    edge(
        "disk = '/tmp'",
        expect![[
            r#"thalweg.toml:3:8: disk: "/tmp" is not a directory and a size such as "/var/cache/thalweg=10GiB""#
        ]],
    );
    edge(
        "disk = '/tmp=1KiB'",
        expect![[r#"thalweg.toml:3:8: disk: "/tmp=1KiB": size must be at least 16MiB"#]],
    );
    edge("disk = '=1GiB'", expect!["thalweg.toml:3:8: disk: the path is empty"]);
    edge("log = ''", expect!["thalweg.toml:3:7: log: the path is empty"]);
    edge(
        "backends = []",
        expect![[
            r#"thalweg.toml:3:12: backends: expected a server's address such as "http://127.0.0.1:8081", got an empty list"#
        ]],
    );
    edge(
        "backends = ['http://a', 'https://b', 'http://c/d', 'ftp://e', 'http://u@f', 1]",
        expect![[r#"
            thalweg.toml:3:25: backends: "https://b": TLS to a backend is not supported
            thalweg.toml:3:38: backends: "http://c/d": backend URL must not have a path: request paths stay unchanged
            thalweg.toml:3:52: backends: "ftp://e": invalid backend URL (expected http://HOST[:PORT])
            thalweg.toml:3:63: backends: "http://u@f": invalid backend URL (expected http://HOST[:PORT]): host contains an invalid character
            thalweg.toml:3:77: backends: expected a server's address such as "http://127.0.0.1:8081", got the number 1"#]],
    );
    edge("bundle = ''", expect!["thalweg.toml:3:10: bundle: a path cannot be empty"]);
    edge(
        "bundle = 'http:///bundle'",
        expect![[
            r#"thalweg.toml:3:10: bundle: "http:///bundle": invalid bundle URL (expected http[s]://HOST[:PORT]/PATH): host is empty"#
        ]],
    );
    edge(
        "purge_from = ['10.0.0.0/8', 'none', '10.0.0.0/40', 'localhost', '10.0.0.1/8']",
        expect![[r#"
            thalweg.toml:3:37: purge_from: "10.0.0.0/40" is not an address or a prefix such as "10.0.0.0/8", or "none"
            thalweg.toml:3:52: purge_from: "localhost" is not an address or a prefix such as "10.0.0.0/8", or "none"
            thalweg.toml:3:65: purge_from: "10.0.0.1/8": bits after the prefix are set: write 10.0.0.0/8"#]],
    );
    edge(
        "congestion_control = 'b b r'",
        expect![[
            r#"thalweg.toml:3:22: congestion_control: "b b r" is not the name of a congestion control"#
        ]],
    );
    edge(
        "steering_size_min = 100",
        expect![[
            r#"thalweg.toml:3:21: steering_size_min: expected a size such as "512MiB", got the number 100"#
        ]],
    );
    edge(
        "tcp_notsent_lowat = '1B'",
        expect![[r#"thalweg.toml:3:21: tcp_notsent_lowat: "1B" is outside 4KiB to 1GiB"#]],
    );
    edge(
        "tcp_slow_start_after_idle = 'on'",
        expect![[r#"thalweg.toml:3:29: tcp_slow_start_after_idle: "on" is not "keep" or "off""#]],
    );
    edge(
        "connect_timeout = '0ms'",
        expect![[r#"thalweg.toml:3:19: connect_timeout: "0ms" is outside 1ms to 1h"#]],
    );
}

#[test]
fn all_faults_are_reported_at_once_in_file_order() {
    check(
        "[edge]\nmemory = '1'\nlistn = 1\n[origin]\nwindow = 60\n[oops]\n",
        expect![[r#"
            thalweg.toml:2:10: memory: "1" has no unit: write 1B, 1KiB or 1MiB
            thalweg.toml:3:1: unknown key "listn" in [edge]; did you mean "listen"?
            thalweg.toml:5:10: window: expected a duration such as "250ms", got the number 60
            thalweg.toml:6:2: unknown section "oops"; known sections: edge, origin, console, agent, consumer, controller, tenant, source"#]],
    );
}

#[test]
fn syntax_error_is_reported_with_its_place() {
    check(
        "[edge]\nlisten = \n",
        expect!["thalweg.toml:2:10: string values must be quoted, expected literal string"],
    );
    check("[edge]\n[edge]\n", expect!["thalweg.toml:2:2: duplicate key"]);
    check("[edge\n", expect!["thalweg.toml:1:6: unclosed table, expected `]`"]);
}

#[test]
fn incompatible_sections_are_reported() {
    check(
        "",
        expect![
            "thalweg.toml:1:1: the file names no role: write [edge], [origin], [console], [agent], [consumer], [controller] or [[source]]"
        ],
    );
    check(
        "[edge]",
        expect!["thalweg.toml:1:2: the edge has no backend: set backends or policy, or write [origin]"],
    );
    check(
        "[console]\nedge = 'http://a.example'\n[origin]",
        expect![[r#"
            thalweg.toml:1:2: the console has nothing to show: write [edge], [agent] with sqlite, or [controller]
            thalweg.toml:2:8: edge: must belong to an edge in the same file: write [edge]"#]],
    );
    check("[console]\n[agent]", expect!["no fault"]);
    check(
        "[console]\n[agent]\nkafka = '127.0.0.1:9092'",
        expect![
            "thalweg.toml:1:2: the console has nothing to show: write [edge], [agent] with sqlite, or [controller]"
        ],
    );
    check(
        "[origin]\nmedia = 'not/there'\nwindow = '4s'\nsegment_target = '3s'",
        expect![[r#"
            thalweg.toml:2:9: media: cannot read directory not/there: No such file or directory (os error 2)
            thalweg.toml:3:10: window: must be at least two segments long"#]],
    );
    check(
        "[[source]]\nmedia = 'src'\n[[source]]\nmedia = 'src'\nchannel = 'a'",
        expect![[r#"
        thalweg.toml:1:1: source has no destination: set channel or to
        thalweg.toml:3:1: channel needs an origin in the same file: write [origin], or set to instead"#]],
    );
    check(
        "[[source]]\nchannel = '../a'\n",
        expect![[r#"
            thalweg.toml:1:1: media: missing: a path
            thalweg.toml:2:11: channel: "../a" is not a name of letters, digits, '-', '_' and '.', at most 253"#]],
    );
    check(
        "[origin]\n[[source]]\nmedia = 'src'\nchannel = 'a'\n[[source]]\nmedia = 'src'\nchannel = 'a'\n\
         [[source]]\nmedia = 'src'\nchannel = 'b'\nto = 'http://127.0.0.1:1/ingest/b'",
        expect![[r#"
            thalweg.toml:5:1: channel "a" already has a source
            thalweg.toml:8:1: channel and to are both set: set only one of them"#]],
    );
    check(
        "[edge]\nlisten = '0.0.0.0:9000'\n[origin]\nlisten = '127.0.0.1:9000'",
        expect!["thalweg.toml:4:10: listen: 0.0.0.0:9000 is already used by edge.listen"],
    );
    check(
        "[edge]\nadmin = '127.0.0.1:8000'\n[origin]\n[console]",
        expect!["thalweg.toml:2:9: admin: 127.0.0.1:8000 is already used by console.listen"],
    );
}

#[test]
fn file_sets_values_and_defaults_fill_the_rest() {
    let text = "[edge]\nbackends = 'http://127.0.0.1:7/'\nidle_timeout = '5min'\n\
                [[source]]\nmedia = 'src'\nto = 'http://127.0.0.1:7/ingest/a'";
    let config = Config::from_text(Path::new("thalweg.toml"), text).unwrap();
    let edge = config.edge.unwrap();
    assert_eq!(edge.idle_timeout.value.duration.as_secs(), 300);
    assert_eq!(edge.idle_timeout.place, Place::File { line: 3, column: 16 });
    assert_eq!(edge.backends.unwrap().value[0].to_string(), "http://127.0.0.1:7");
    assert_eq!(edge.memory.value.bytes, 1 << 30);
    assert_eq!((edge.memory.place, edge.threads), (Place::Default, None));
    assert_eq!(config.sources[0].to.as_ref().unwrap().value.path(), "/ingest/a");
    assert!(config.origin.is_none() && config.console.is_none());
}

#[test]
fn relative_paths_are_resolved_against_the_files_directory() {
    let text = "[origin]\nmedia = 'src'\n[edge]\nlog = 'log.json'\ndisk = 'a=b=1GiB'\nbundle = 'b.json'";
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_text(&base.join("thalweg.toml"), text).unwrap();
    assert_eq!(config.origin.unwrap().media.unwrap().value, [base.join("src").into()]);
    let edge = config.edge.unwrap();
    assert_eq!(edge.log.value, thalweg_edge::LogDestination::File(base.join("log.json")));
    assert_eq!(edge.disk.unwrap().value.directory, base.join("a=b"));
    assert_eq!(edge.bundle.unwrap().value, BundleSource::File(base.join("b.json")));
    assert_eq!(edge.state.value, Some(base.join("thalweg-edge")));
}

#[test]
fn secret_can_be_read_from_a_file() {
    let base = std::env::temp_dir().join(format!("thalweg-secret-{}", std::process::id()));
    fs::create_dir_all(&base).unwrap();
    fs::write(base.join("url"), "http://a:hidden@ch:8123/x\r\n").unwrap();
    fs::write(base.join("password"), "@hidden=1 \n\n").unwrap();
    fs::write(base.join("empty"), "\n").unwrap();
    fs::write(base.join("no-url"), "hidden").unwrap();
    fs::write(base.join("long"), "x".repeat(70_000)).unwrap();
    let read = |text: &str| Config::from_text(&base.join("t.toml"), text).map(|config| config.agent.unwrap());
    let agent =
        read("[agent]\nclickhouse = '@url'\nkafka_set = ['sasl.password=@password', 'linger.ms=5']").unwrap();
    assert_eq!(agent.clickhouse.as_ref().unwrap().value.0, "http://a:hidden@ch:8123/x");
    let properties = &agent.kafka_set.as_ref().unwrap().value;
    assert_eq!((properties[0].value.as_str(), properties[1].value.as_str()), ("@hidden=1 ", "5"));
    assert!(!format!("{agent:?}").contains("hidden"));
    let wrong = "[agent]\nclickhouse = '@no-url'\nkafka_set = ['a=@empty', 'b=@absent', 'c=@long']";
    let faults = read(wrong).unwrap_err().to_string().replace(&format!("{}/", base.display()), "");
    fs::remove_dir_all(&base).unwrap();
    expect![[r#"
        t.toml:2:14: clickhouse: expected a URL such as "http://user:password@clickhouse:8123/thalweg", or @FILE
        t.toml:3:14: kafka_set: a: secret file empty is empty
        t.toml:3:26: kafka_set: b: cannot read secret file absent: No such file or directory (os error 2)
        t.toml:3:39: kafka_set: c: secret file long exceeds 64 KiB"#]]
    .assert_eq(&faults);
}

#[test]
fn congestion_control_must_exist_in_the_kernel() {
    let text = "[origin]\n[edge]\ncongestion_control = 'no_such'";
    let faults = Config::from_text(Path::new("thalweg.toml"), text).unwrap_err().to_string();
    let available = thalweg_tcp::congestion::available().unwrap();
    let names: Vec<_> = available.iter().map(thalweg_tcp::CongestionControl::as_str).collect();
    let expected = format!(
        "thalweg.toml:3:22: congestion_control: this kernel has no congestion control \"no_such\"; it has {}",
        names.join(", ")
    );
    assert_eq!(faults, expected);
}

/// Reading an empty section parses all defaults and compares them with their bounds.
#[test]
fn defaults_parse_and_lie_within_their_bounds() {
    fn check<S: Section>() {
        let required = |setting: &Setting| setting.absent == Absent::Fault;
        let mut faults = Vec::new();
        let mut reader = declare::Reader {
            lookup: &|_| None,
            place: Place::Command,
            base: Path::new(""),
            faults: &mut faults,
        };
        S::read(&mut reader);
        let missing = S::SETTINGS.iter().filter(|setting| required(setting)).count();
        assert_eq!(faults.len(), missing, "{faults:?}");
    }
    check::<Edge>();
    check::<Origin>();
    check::<Console>();
    check::<Agent>();
    check::<Consumer>();
    check::<Source>();
}

#[test]
fn reference_lists_every_setting() {
    expect![[r#"
        [edge]
          The delivery node: an HTTP cache that relays responses while they are still arriving.

          listen                 ADDR:PORT, default 0.0.0.0:8080
              Address for client connections. Port 0 picks a free one.
          backends               [URL, …], if absent: the origin in the same file
              Backends, used in turn.
          hosts                  [HOST, …], if absent: any host
              Hosts to serve; a request for any other host gets 421.
          policy                 PATH, if absent: the caching rules only
              Policy for all requests: a VCL file, with its includes beside it. A policy can declare
              its own backends.
          geoip                  [PATH, …], if absent: client.geo and client.as are unknown
              MaxMind databases (City or Country, ASN) for client.geo and client.as in policies.
              Changed files are reread when a policy is loaded.
          memory                 SIZE, default 1GiB, 16MiB to 16TiB
              Memory for stored content.
          disk                   DIR=SIZE, if absent: memory only
              Directory for stored content that survives restarts, and the maximum total size of its
              files. No other process may use the directory.
          state                  DIR|off, default thalweg-edge
              Directory for state that must survive a crash: the last good bundle, and the number of
              started responses, from which an agent can count the records that it never received. No
              other edge may use the directory. The edge also works without it.
          grace                  DURATION, default 0s, 0s to 720h
              How long a stale response is served while it is revalidated in the background, unless
              the response forbids it or has its own stale-while-revalidate.
          stale_if_error         DURATION, default 1min, 0s to 720h
              How long a stale response is served when the backend does not respond, or responds with
              500, 502, 503 or 504, unless the stale response forbids it or has its own
              stale-if-error. A policy's vcl_backend_error takes precedence.
          heuristic_percent      N, default 10, 0 to 100
              Freshness lifetime of a response without an explicit one, as a percentage of the time
              since its last modification.
          heuristic_max          DURATION, default 24h, 0s to 8760h
              Maximum heuristic freshness lifetime.
          negative               DURATION, default 1s, 0s to 24h
              Freshness lifetime of a 404 or 410 without an explicit one.
          negative_max           DURATION, default 1min, 0s to 720h
              Maximum freshness lifetime of a response with status 400 or above, even if its explicit
              one is longer.
          surrogate_control      on|off, default off
              Whether Surrogate-Control is honoured, with precedence over Cache-Control.
              CDN-Cache-Control is always honoured, with precedence over both.
          request_directives     on|off, default on
              Whether Cache-Control in requests is honoured, which lets clients bypass the cache.
          slice                  SIZE, default 4MiB, 0B to 64MiB
              Slice size. Content is fetched and stored in slices if it is larger than a quarter of
              the memory, or if a requested range starts this far beyond the bytes already received.
              The backend must send an ETag and support ranges. 0B disables slices.
          abandoned_fills        finish|half|cancel, default half
              What happens to a fill that has lost all its readers: "finish" completes it, "half"
              completes it only if half has arrived or little is missing, "cancel" ends the fetch.
          threads                N, if absent: one per core, 1 to 1024
              Number of threads, each with its own runtime and listener.
          congestion_control     NAME, default system
              Congestion control of client connections; "system" keeps the kernel's default.
          steering_size_min      SIZE, default 100kB, 0B to 1GiB
              Minimum response size, or number of bytes already sent on the connection, for a steering
              rule or an experiment to change the congestion control. This exempts short connections:
              most player connections fetch one playlist and close. A policy can change the congestion
              control at any size.
          delivery_min           SIZE, default 10kB, 0B to 1GiB
              Minimum size of a response whose delivery is measured: how much of it the client's
              kernel acknowledged, and when. The record of such a response is written once its last
              byte is acknowledged. Requires Linux 6.2 or later.
          bundle                 FILE|URL, if absent: the controller in the same file; without a controller, no rules or experiments
              Bundle of steering rules and experiments. A JSON file is checked every second, and may
              be created or replaced at any time. A URL is polled, with the machine's name added as
              edge=NAME unless the query already has an edge. The last good bundle is kept in the
              state directory.
          bundle_token_file      FILE, if absent: no token
              File with the token that the edge presents to the bundle server. It is read for each
              request, so it can be replaced at any time.
          controller_ca          PATH, if absent: the authorities that the system trusts
              PEM file with the authorities to trust for an https:// URL of the bundle server.
          controller_certificate PATH, if absent: no client certificate
              PEM file with the certificate that the edge presents to the bundle server, followed by
              those of intermediate authorities. Changed files take effect within a second.
          controller_key         PATH, if absent: no client certificate
              PEM file with the private key of controller_certificate.
          tcp_notsent_lowat      SIZE, if absent: the kernel's net.ipv4.tcp_notsent_lowat, 4KiB to 1GiB
              Maximum unsent bytes per client in the kernel. With a low value, a new pace or
              congestion control takes effect sooner and a seek wastes fewer bytes, but threads wake
              more often; 128KiB is a good first choice.
          tcp_slow_start_after_idle keep|off, default keep
              Slow start after an idle period, such as between segments. "keep" leaves the kernel's
              setting unchanged; by default, the congestion window then returns to its initial size,
              except with BBR. "off" keeps the window, for the whole network namespace; if the
              kernel's setting cannot be written, a warning is logged.
          forward_ingest         on|off, default off
              Whether PUT, POST and other unsafe methods under /ingest/ are forwarded to the backend.
              A Thalweg origin refuses forwarded sources; "on" is for other backends with such a path.
          purge_from             [PREFIX, …], if absent: this machine: 127.0.0.0/8 and ::1/128
              Clients that may send PURGE.
          admin                  ADDR:PORT, default 127.0.0.1:8082
              Admin interface: response records, purges, bans, policies. Keep it on loopback.
          log                    FILE|-|off, default off
              Destination of the request log, which has one JSON line per response.
          records_kept           DURATION, default 60s, 1s to 1h
              How long response records are kept for agents that reconnect or lag. An agent that is
              away for longer loses the older ones, which are counted.
          records_kept_max       SIZE, default 128MiB, 1MiB to 1TiB
              Approximate memory for these records. If it is full, the oldest ones are dropped
              earlier.
          records_sample         N, default 1, 1 to 1000
              Record the responses of one client in this many. Their records carry the ratio, and
              queries weight them by it. Metrics count all responses.
          records_sample_salt    TEXT, if absent: empty
              Text that decides which clients are in the sample. Edges with the same text sample the
              same clients. Clients that know it could choose to be in the sample, so keep it secret.
          connections_max        N, default 16000, 1 to 10000000
              Maximum concurrent client connections; further connections are closed at once. Each
              client or backend connection is an open file.
          backend_connections_max N, default 1000, 1 to 1000000
              Maximum backend connections in use per thread. Further fetches wait up to the connect
              timeout, then fail.
          head_max               SIZE, default 32KiB, 1KiB to 1MiB
              Maximum length of a request or response head (start line and fields).
          connect_timeout        DURATION, default 2s, 1ms to 1h
              Maximum wait for a connection to a backend.
          first_byte_timeout     DURATION, default 15s, 1ms to 1h
              Maximum wait for a backend's response head, once the request is sent.
          between_bytes_timeout  DURATION, default 15s, 1ms to 1h
              Maximum pause within a backend's response.
          idle_timeout           DURATION, default 75s, 1ms to 24h
              How long an idle client connection is kept open.
          head_timeout           DURATION, default 10s, 1ms to 1h
              Maximum time from the first to the last byte of a request's head.
          send_timeout           DURATION, default 60s, 1ms to 24h
              How long a client may stall, that is, neither accept response bytes nor send request
              content.

        [origin]
          The packager: produces HLS and DASH just in time, from CMAF files and live ingest.

          listen                 ADDR:PORT, default 127.0.0.1:8081
              Address for edges and clients. Port 0 picks a free one.
          ingest                 ADDR:PORT, default 127.0.0.1:8084
              Address for live sources. Sources forwarded by a proxy are refused. Keep it on loopback,
              or set ingest_token.
          ingest_token           TOKEN|@FILE, if absent: no token, allowed only if ingest is on loopback
              Token that live sources send, as "Authorization: Bearer TOKEN" or as the password in the
              URL; @FILE reads the token from a file.
          admin                  ADDR:PORT, default 127.0.0.1:8085
              Address for Prometheus at /metrics and health checks at /healthz and /readyz. Keep it
              within your network.
          media                  [DIR|URL, …], if absent: live channels only
              Libraries of presentations: directories, buckets or web servers. Each subdirectory NAME
              is served as /vod/NAME/; if several libraries have one of the same name, the first one
              serves it.
          window                 DURATION, default 60s, 4s to 24h
              DVR window of live channels.
          segment_target         DURATION, default 2s, 200ms to 30s
              Minimum segment duration, live and for files without a segment index; sparse random
              access points may make segments longer.
          listing_max_age        DURATION, default 1s, 0ms to 1h
              Maximum delay before a changed file in a directory is noticed.
          remote_listing_max_age DURATION, default 10s, 0ms to 24h
              Maximum delay before a new or changed object of a bucket or web server is noticed. A
              changed object is never mixed with its earlier version.
          s3_endpoint            URL, if absent: AWS
              URL of the S3 service.
          s3_path_style          on|off, default off
              Whether the name of the bucket is in the path of URLs rather than in the host name.
          s3_region              NAME, if absent: AWS_REGION or AWS_DEFAULT_REGION of the environment, else us-east-1
              Region of the buckets.
          s3_anonymous           on|off, default off
              Whether requests to S3 are sent without credentials, for public buckets. Otherwise they
              are signed with those of the environment, a profile, a web identity or the machine.
          storage_ca             PATH, if absent: the authorities that the system trusts
              PEM file with the authorities to trust for https:// URLs of storage.
          storage_idle           DURATION, default 4s, 0s to 1h
              How long an idle storage connection is kept. Amazon S3 closes some after 5 s. 0s opens a
              connection for each request.
          storage_connections_max N, default 256, 1 to 100000
              Maximum connections per storage server; further requests wait for one.
          storage_slot_timeout   DURATION, default 5s, 1ms to 1h
              Maximum wait for one of these connections.
          storage_connect_timeout DURATION, default 2s, 1ms to 1h
              Maximum time to open a storage connection, including name resolution and TLS.
          storage_first_byte_timeout DURATION, default 10s, 1ms to 1h
              Maximum wait for the head of a response from storage.
          storage_between_bytes_timeout DURATION, default 10s, 1ms to 1h
              Maximum pause within a response from storage.
          live_memory            SIZE, default 512MiB, 16MiB to 16TiB
              Memory for the DVR windows of all live channels.
          channels_max           N, default 64, 1 to 100000
              Maximum live channels; further sources are refused.
          connections_max        N, default 4096, 1 to 10000000
              Maximum concurrent connections per listener; further connections wait to be accepted.
          head_max               SIZE, default 16KiB, 1KiB to 1MiB
              Maximum length of a request head (request line and fields).

        [console]
          The web console: players, and live records from the edge that is configured in the same
          file.

          listen                 ADDR:PORT, default 127.0.0.1:8000
              Address for browsers. Port 0 picks a free one.
          edge                   URL, if absent: the console's host name with the edge's port
              Edge URL for browsers that reach the edge through a proxy or a port mapping.

        [agent]
          The agent: samples every TCP socket of the machine, whichever server owns it, and records
          the responses of edges. Records are sent to SQLite, Kafka, ClickHouse, a controller or
          files, and wait in the spool while a sink is unavailable.

          host                   NAME, if absent: the system's host name
              Name of the machine in records.
          pop                    NAME, if absent: no name
              Name of the site (PoP) in records.
          period                 DURATION, default 10s, 100ms to 1h
              Interval between dumps of all sockets. Dumps of different hosts are staggered by host
              name.
          sockets                FILTER, if absent: every connection
              Sockets to record, in the filter syntax of `thalweg sockets`.
          sample                 N, default 1, 1 to 1000000
              Record one in this many sockets, each for its whole life.
          namespaces             [NAME|PATH, …], if absent: the process's own
              Network namespaces to sample, by `ip netns` name or by path.
          edges                  [ADDR:PORT, …], if absent: the edge in the same file
              Admin addresses of the edges whose responses are recorded.
          geoip                  [PATH, …], if absent: regions and autonomous systems are unknown
              MaxMind databases (City or Country, ASN) for the region and autonomous system of
              clients.
          networks               PATH, if absent: the databases only
              CSV file of networks, one "prefix,asn,region" per line; takes precedence over the
              databases.
          spool                  DIR=SIZE, default thalweg-spool=1GiB
              Directory in which records wait until every sink has stored them, and the maximum total
              size of its files. Above this size, the oldest records are dropped and counted.
          sqlite                 PATH, if absent: thalweg-telemetry.sqlite beside the spool, if no other sink is named
              SQLite database for records and aggregates.
          keep                   DURATION, default 2h, 1min to 8760h
              How long records stay in SQLite.
          keep_aggregates        DURATION, default 840h, 1h to 87600h
              How long five-minute aggregates stay in SQLite.
          sqlite_max             SIZE, default 4GiB, 16MiB to 16TiB
              Maximum size of the database; above it, the oldest records are deleted early.
          json                   PATH, if absent: no JSON files
              Directory for JSON lines files, one record per line, for log shippers. A file is closed
              at 256 MiB or after an hour.
          json_max               SIZE, if absent: no limit, 64MiB to 1024TiB
              Maximum total size of the JSON lines files; above it, the oldest are deleted. If set, a
              file is closed at a quarter of this size, or at 256 MiB if that is less.
          parquet                PATH, if absent: no Parquet files
              Directory for Parquet files. A file is written atomically, after 50,000 rows or one
              minute of records.
          parquet_max            SIZE, if absent: no limit, 64MiB to 1024TiB
              Maximum total size of the Parquet files; above it, the oldest are deleted.
          kafka                  [HOST:PORT, …], if absent: no Kafka
              Kafka bootstrap brokers. Records are sent to a topic, partitioned by client network.
          kafka_topic            NAME, default thalweg.telemetry
              Kafka topic.
          kafka_partitions       N, default 12, 0 to 10000
              Number of partitions if the agent creates the topic. With 0, it never does.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
              value from a file.
          clickhouse             URL|@FILE, if absent: no ClickHouse
              ClickHouse database with the tables of `thalweg schema apply`: a URL, or @FILE to read
              the URL from a file. Records are inserted directly, without Kafka.
          controller             URL, if absent: the controller in the same file
              Controller that receives records for its decisions. It does not store records; use
              another sink to keep them.
          controller_token_file  FILE, if absent: no token
              File with the token that the agent presents to the controller. It is read for each
              request, so it can be replaced at any time.
          controller_ca          PATH, if absent: the authorities that the system trusts
              PEM file with the authorities to trust for an https:// URL of the controller.
          controller_certificate PATH, if absent: no client certificate
              PEM file with the certificate that the agent presents to the controller, followed by
              those of intermediate authorities. Changed files take effect within a second.
          controller_key         PATH, if absent: no client certificate
              PEM file with the private key of controller_certificate.
          listen                 ADDR:PORT, if absent: no metrics listener
              Address for Prometheus: the agent's own metrics, at /metrics.

        [consumer]
          The consumer: moves records from Kafka to ClickHouse, each exactly once. Up to as many
          consumers as the topic has partitions share the work.

          kafka                  [HOST:PORT, …], required
              Kafka bootstrap brokers.
          kafka_topic            NAME, default thalweg.telemetry
              Kafka topic.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
              value from a file.
          topic_wait             DURATION, default 1min, 0s to 24h
              How long to wait for a missing topic at startup before failing.
          group                  NAME, default thalweg-clickhouse
              Consumer group that shares the partitions.
          clickhouse             URL|@FILE, required
              ClickHouse database with the tables of `thalweg schema apply`: a URL, or @FILE to read
              the URL from a file.
          block_rows             N, default 200000, 1 to 1000000
              Number of rows at which a partition's block is inserted.
          block_wait             DURATION, default 1s, 0s to 1h
              Maximum time from a block's first message to its insertion.
          listen                 ADDR:PORT, if absent: no metrics listener
              Address for Prometheus: the consumer's own metrics, at /metrics.

        [controller]
          The controller: finds client networks that may gain from another congestion control, tries
          it there on a share of connections, and keeps it where it shows a gain. Edges fetch their
          bundles from the controller.

          listen                 ADDR:PORT, default 127.0.0.1:8083
              Address for agents, which send records, and edges, which fetch their bundles. Keep it on
              loopback, or set identities.
          identities             PATH, if absent: anyone, allowed only if listen is on loopback
              File of the edges, agents and operators that may use the controller: TOML with the
              [[identity]] tables that `thalweg controller token` prints, or with the names in client
              certificates. Changes take effect within a second; a faulty file changes nothing.
          tls_certificate        PATH, if absent: clear text
              PEM file with the controller's certificate, followed by those of intermediate
              authorities. The controller then speaks TLS only. Changed files take effect for new
              connections; unusable ones change nothing.
          tls_key                PATH, if absent: clear text
              PEM file with the private key of tls_certificate.
          tls_client_ca          PATH, if absent: no client certificates
              PEM file with the authorities of client certificates. Every client, including a health
              check, then needs a certificate.
          agent_records_max      N, default 50000, 1 to 10000000
              Maximum records of an agent per second, averaged over a minute.
          agent_networks_max     N, default 50000, 1 to 200000
              Maximum client networks of an agent in a window; records of further ones are dropped.
          kafka                  [HOST:PORT, …], if absent: agents send records directly
              Kafka bootstrap brokers: the controller also reads the records that agents write to a
              topic.
          kafka_topic            NAME, default thalweg.telemetry
              Kafka topic.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
              value from a file.
          database               PATH, default thalweg-control.sqlite
              SQLite file for the controller's state, rounds and bundles.
          window                 DURATION, default 5min, 1s to 24h
              Length of a decision window.
          late                   DURATION, default 1min, 0s to 24h
              How long a window still accepts records after its end.
          measure                delivery_rate|goodput, default delivery_rate
              Measure that ranks networks: the kernel's delivery rate samples, or the goodput of
              responses.
          goodput_min            SIZE, default 100kB, 0B to 1GiB
              Minimum size of responses that count for goodput and to which steering rules apply.
          hosts_left_alone       [HOST, …], if absent: none
              Hosts that opt out: their connections are not counted, and no rule applies to their
              responses.
          by_tenant              on|off, default off
              Whether the controller decides separately for each host without a [[tenant]], from the
              responses of that host alone. Requires hosts to be set on the edges.
          connections_min        N, default 3, 1 to 1000000
              Minimum measured connections in a window for a network to be ranked.
          bottom_share           SHARE, default 0.2
              Share of ranked networks that forms the bottom group.
          history_windows        N, default 72, 1 to 128
              Windows of history to keep.
          observed_windows_min   N, default 12, 1 to 128
              Minimum windows in which a network was ranked before it is considered.
          duty_enter             SHARE, default 0.6
              Minimum duty cycle (share of windows in the bottom group) for a network to enter.
          duty_leave             SHARE, default 0.3
              Duty cycle at or below which a network leaves if there is no evidence either way.
          flap_max               SHARE, default 0.25
              Maximum flap rate (group changes per window) for a network to enter.
          min_rtt_min            DURATION, default 10ms, 0ms to 10s
              Networks with a shorter minimum RTT are tried only for exploration.
          left_alone             [PREFIX, …], if absent: none
              Networks that are never steered.
          congestion_control     NAME, default bbr
              Congestion control to try, by its kernel name.
          steered_max            N, default 500, 0 to 10000
              Maximum networks steered at once per PoP.
          entering_max           N, default 20, 0 to 10000
              Maximum networks that enter per round.
          changes_max            N, default 50, 0 to 10000
              Maximum networks that enter and leave per round; safety withdrawals are not limited.
          explored_max           N, default 100, 0 to 10000
              Maximum networks on trial at once for exploration, that is, although they are not slow.
          exploring_max          N, default 5, 0 to 10000
              Maximum networks that enter for exploration per round.
          holdout_trial          SHARE, default 0.5
              Share of clients held out during a trial. With 0, there are no trials, and the duty
              cycle alone decides.
          holdout                SHARE, default 0.1
              Share of clients held out after a gain has been shown for the network as a whole.
          false_promise_share    SHARE, default 0.05
              Maximum probability that a trial without effect makes its network promising.
          switchback_block_windows N, default 3, 2 to 1000
              Length of the blocks in which a promising network is steered as a whole or not at all,
              in windows. The first window of each block is left out.
          switchback_windows_max N, default 288, 1 to 1000000
              Windows after which a promising network leaves if no gain as a whole has been shown. At
              least two blocks, at most 2,000.
          false_discovery_share  SHARE, default 0.05
              Maximum expected share of false discoveries among all networks ever declared helped.
          false_harm_share       SHARE, default 0.05
              Maximum probability that a harmless trial is declared harmful.
          evidence_connections_min N, default 30, 2 to 1000000
              Minimum outcomes per arm before any conclusion: of clients in a trial, of connections on
              a canary.
          effect_min             SHARE, default 0.05
              Minimum effect on log goodput that is worth a rule.
          trial_windows_max      N, default 72, 1 to 1000000
              Windows after which an inconclusive trial ends.
          proof_windows_max      N, default 576, 1 to 1000000
              Windows after which a gain must be shown again.
          pooled_keep            SHARE, default 0.9
              Minimum probability of a worthwhile effect, pooled over all networks, for a network to
              stay after its trial.
          likely_windows_max     N, default 288, 0 to 1000000
              Maximum number of windows after its trial for which a network kept by pooled_keep stays
              without proof.
          retransmitted_rise_max SHARE, default 0.05
              Rise in the share of retransmitted bytes that ends a trial.
          guardrail_rise_max     SHARE, default 0.03
              Rise in the share of retransmitted bytes, across all trials, that ends the trials that
              may have caused it.
          guardrail_pause_windows N, default 12, 0 to 1000000
              Windows without new entries after the guardrail has ended trials.
          cool_off_windows       N, default 288, 1 to 1000000
              Windows before a withdrawn network may enter again.
          canary_share           SHARE, default 0.1
              Share of edges that get a bundle first; at least one edge.
          canary_windows         N, default 1, 1 to 128
              Windows during which the canary edges are watched.
          canary_windows_max     N, default 3, 1 to 128
              Windows after which all edges get the bundle even if too few connections were measured.
          acknowledge_max        DURATION, default 2min, 1s to 24h
              How long to wait for an edge's acknowledgement.
          canary_quorum          SHARE, default 0.25
              Share of the PoP's live edges with traffic that must refuse a bundle, or not acknowledge
              it, to roll it back; at least two edges, unless only one is live. A single edge is
              excluded and reported.
          canary_failed_rise_max SHARE, default 0.02
              Rise in the share of failed responses that rolls a bundle back.
          canary_retransmitted_rise_max SHARE, default 0.02
              Rise in the share of retransmitted bytes that rolls a bundle back.
          canary_goodput_drop_max SHARE, default 0.2
              Drop in log goodput that rolls a bundle back.

        [[tenant]]  (any number)
          Hosts for which the controller decides separately, from the responses of these hosts alone
          and with rules for them alone. Unset keys are taken from [controller].

          hosts                  [HOST, …], required
              Hosts of the tenant. The first host names the tenant; renaming it starts the tenant from
              scratch.
          measure                delivery_rate|goodput, if absent: as in [controller]
              Measure that ranks networks: the kernel's delivery rate samples, or the goodput of
              responses.
          goodput_min            SIZE, if absent: as in [controller], 0B to 1GiB
              Minimum size of responses that count for goodput and to which steering rules apply.
          connections_min        N, if absent: as in [controller], 1 to 1000000
              Minimum measured connections in a window for a network to be ranked.
          bottom_share           SHARE, if absent: as in [controller]
              Share of ranked networks that forms the bottom group.
          duty_enter             SHARE, if absent: as in [controller]
              Minimum duty cycle (share of windows in the bottom group) for a network to enter.
          duty_leave             SHARE, if absent: as in [controller]
              Duty cycle at or below which a network leaves if there is no evidence either way.
          flap_max               SHARE, if absent: as in [controller]
              Maximum flap rate (group changes per window) for a network to enter.
          min_rtt_min            DURATION, if absent: as in [controller], 0ms to 10s
              Networks with a shorter minimum RTT are tried only for exploration.
          left_alone             [PREFIX, …], if absent: as in [controller]
              Networks that are never steered.
          congestion_control     NAME, if absent: as in [controller]
              Congestion control to try, by its kernel name.
          steered_max            N, if absent: as in [controller], 0 to 10000
              Maximum networks of the tenant steered at once per PoP, within the limit for all hosts.
          entering_max           N, if absent: as in [controller], 0 to 10000
              Maximum networks of the tenant that enter per round, within the limit for all hosts.
          explored_max           N, if absent: as in [controller], 0 to 10000
              Maximum networks on trial at once for exploration.
          exploring_max          N, if absent: as in [controller], 0 to 10000
              Maximum networks that enter for exploration per round.
          holdout_trial          SHARE, if absent: as in [controller]
              Share of clients held out during a trial.
          holdout                SHARE, if absent: as in [controller]
              Share of clients held out after a gain has been shown for the network as a whole.
          evidence_connections_min N, if absent: as in [controller], 2 to 1000000
              Minimum outcomes per arm before any conclusion: of clients in a trial, of connections on
              a canary.
          effect_min             SHARE, if absent: as in [controller]
              Minimum effect on log goodput that is worth a rule.
          trial_windows_max      N, if absent: as in [controller], 1 to 1000000
              Windows after which an inconclusive trial ends.
          retransmitted_rise_max SHARE, if absent: as in [controller]
              Rise in the share of retransmitted bytes that ends a trial.
          guardrail_rise_max     SHARE, if absent: as in [controller]
              Rise in the share of retransmitted bytes, across the tenant's trials, that ends those
              that may have caused it.
          cool_off_windows       N, if absent: as in [controller], 1 to 1000000
              Windows before a withdrawn network may enter again.

        [[source]]  (any number)
          A live source for demonstrations and tests: pushes a presentation in a loop, in real time.

          media                  PATH, required
              Presentation to push: a directory of CMAF tracks.
          channel                NAME, if absent: `to` names the publishing point
              Channel at the origin in the same file. Set either `channel` or `to`.
          to                     URL, if absent: the origin in the same file
              Publishing point at another origin. Set either `channel` or `to`.
          token                  TOKEN|@FILE, if absent: none
              Ingest token of the other origin; @FILE reads the token from a file.

        Relative paths in the file are resolved against the file's directory.
    "#]]
    .assert_eq(&reference());
}

const SETTINGS_HEAD: &str = "# Settings

Generated from the declarations in `crates/thalweg/src/config/sections.rs` by the test `settings_page_is_current` in
`crates/thalweg`, which fails when this page is stale. `thalweg check --settings` prints the same as text, and
`thalweg check FILE` checks a file.

`thalweg up` reads `thalweg.toml`, or the file named by `--config`. Each section of the file configures one role of the
process, except `[[tenant]]` and `[[source]]`, which may be repeated. A command that runs a single role has a flag for
each setting in that role's section.

| written as | means |
|---|---|
| `SIZE` | a number and `B`, `KiB`, `MiB`, `GiB`, `TiB`, `kB`, `MB`, `GB` or `TB`: `\"512MiB\"` |
| `DURATION` | a number and `ms`, `s`, `min` or `h`: `\"250ms\"` |
| `DIR=SIZE` | a directory and the maximum size of its files: `\"/var/cache/thalweg=10GiB\"` |
| `SHARE` | a number from 0 to 1 |
| `[X, …]` | a list, or a single X; the flag is repeated for each item |
| `@FILE` | the content of this file, without trailing line breaks |

Relative paths are resolved against the file's directory or, in flags, against the working directory.
";

/// Returns the command that runs a section's role alone.
fn command(section: &str) -> Option<&'static str> {
    match section {
        "edge" => Some("thalweg edge"),
        "origin" => Some("thalweg origin"),
        "agent" => Some("thalweg agent"),
        "consumer" => Some("thalweg consumer"),
        "controller" => Some("thalweg controller run"),
        "source" => Some("thalweg source"),
        _ => None,
    }
}

/// Formats a table row. Bars within a cell are escaped, even in code spans.
fn row(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Wraps `text` at 120 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("`lines` has at least one line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= 120 {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// Checks that `docs/reference/settings.md` is current; `UPDATE_EXPECT=1` rewrites it.
#[test]
fn settings_page_is_current() {
    let mut page = SETTINGS_HEAD.to_owned();
    for section in SECTIONS {
        let name = section.name;
        let heading = if section.many { format!("[[{name}]]") } else { format!("[{name}]") };
        page += &format!("\n## {heading}\n\n{}\n", wrapped(&prose(section.doc)));
        let command = command(name);
        if let Some(command) = command {
            page += &format!("\nAlone: `{command}`.\n");
        }
        page += "\n| setting | flag | value | default | meaning |\n|---|---|---|---|---|\n";
        for setting in section.settings {
            // `thalweg source` runs without an origin, so it has no `channel` flag.
            let is_flag = command.is_some() && (name, setting.name) != ("source", "channel");
            let value = match setting.placeholder {
                item if setting.many => format!("[{item}, …]"),
                item => item.to_owned(),
            };
            let bounds = setting.bounds.map(|(least, most)| format!(", {least} to {most}"));
            page += &row(&[
                format!("`{}`", setting.name),
                if is_flag { format!("`{}`", setting.flag()) } else { String::new() },
                format!("`{value}`{}", bounds.unwrap_or_default()),
                match setting.absent {
                    Absent::Default(text) => format!("`{text}`"),
                    Absent::Unset(meaning) => meaning.to_owned(),
                    Absent::Fault => "required".to_owned(),
                },
                prose(setting.doc),
            ]);
        }
    }
    expect_file!["../../../../docs/reference/settings.md"].assert_eq(&page);
}

proptest! {
    /// Any text must be read or rejected, and every fault must be one line.
    #[test]
    fn any_text_is_read_or_rejected_with_one_line_faults(key in "[a-z_]{1,12}|listen|media|memory", value in ".{0,20}", cut in 0usize..80) {
        let whole = format!("[origin]\n[edge]\n{key} = {value}\n'{value}' = '{value}'\n[[source]]\n{key} = [{value}]");
        let text: String = whole.chars().take(cut).collect();
        if let Err(faults) = Config::from_text(Path::new("f"), &text) {
            for line in faults.to_string().lines() {
                prop_assert!(line.starts_with("f:"), "{}", line);
            }
        }
    }
}
