//! Faults as the user sees them, and the declarations themselves.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_edge::BundleSource;

use super::declare::{Absent, Section, Setting};
use super::*;

/// What is wrong with `text` as `thalweg.toml`.
fn check(text: &str, expected: Expect) {
    let said = match Config::from_text(Path::new("thalweg.toml"), text) {
        Ok(_) => "no fault".to_owned(),
        Err(faults) => faults.to_string(),
    };
    expected.assert_eq(&said);
}

#[test]
fn an_unknown_key_is_told_with_the_nearest_known() {
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
        expect![[r#"thalweg.toml:2:1: unknown key "colour" in [console]; known are listen, edge"#]],
    );
}

#[test]
fn an_unknown_section_is_told() {
    check(
        "[orgin]\nlisten = '127.0.0.1:1'",
        expect![[r#"thalweg.toml:1:2: unknown section "orgin"; did you mean [origin]?"#]],
    );
    check(
        "[kafka]",
        expect![[
            r#"thalweg.toml:1:2: unknown section "kafka"; known are edge, origin, console, agent, consumer, controller, tenant, source"#
        ]],
    );
    check(
        "edge = 1\nsource = 2\n[origin]",
        expect![[r#"
        thalweg.toml:1:1: edge is a section: write [edge] on a line of its own
        thalweg.toml:2:1: source may stand several times: write [[source]]"#]],
    );
    check(
        "[source]\nchannel = 'a'\nmedia = '.'\n[origin]",
        expect!["thalweg.toml:1:2: source may stand several times: write [[source]]"],
    );
}

#[test]
fn a_wrong_value_is_told_with_what_is_allowed() {
    let edge = |line: &str, expected| check(&format!("[origin]\n[edge]\n{line}\n"), expected);
    edge(
        "memory = 1073741824",
        expect![[
            r#"thalweg.toml:3:10: memory: the number 1073741824 where a size such as "512MiB" is expected"#
        ]],
    );
    edge("memory = '1 GB'", expect![[r#"thalweg.toml:3:10: memory: "1 GB" is no size: write "1GB""#]]);
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
            r#"thalweg.toml:3:10: listen: a value of type table where an address and a port such as "127.0.0.1:8080" is expected"#
        ]],
    );
    edge(
        "disk = '/tmp'",
        expect![[
            r#"thalweg.toml:3:8: disk: "/tmp" is not a directory and a size such as "/var/cache/thalweg=10GiB""#
        ]],
    );
    edge("disk = '/tmp=1KiB'", expect![[r#"thalweg.toml:3:8: disk: "/tmp=1KiB": the size is below 16MiB"#]]);
    edge("disk = '=1GiB'", expect!["thalweg.toml:3:8: disk: a path cannot be empty"]);
    edge("log = ''", expect!["thalweg.toml:3:7: log: a path cannot be empty"]);
    edge(
        "backends = []",
        expect![[
            r#"thalweg.toml:3:12: backends: an empty list where a server's address such as "http://127.0.0.1:8081" is expected"#
        ]],
    );
    edge(
        "backends = ['http://a', 'https://b', 'http://c/d', 'ftp://e', 'http://u@f', 1]",
        expect![[r#"
            thalweg.toml:3:25: backends: "https://b": TLS towards a backend is not supported
            thalweg.toml:3:38: backends: "http://c/d": a backend has no path: requests keep their own
            thalweg.toml:3:52: backends: "ftp://e": a backend is http://HOST[:PORT]
            thalweg.toml:3:63: backends: "http://u@f": a backend is http://HOST[:PORT]: host has a character that no host name has
            thalweg.toml:3:77: backends: the number 1 where a server's address such as "http://127.0.0.1:8081" is expected"#]],
    );
    edge("bundle = ''", expect!["thalweg.toml:3:10: bundle: a path cannot be empty"]);
    edge(
        "bundle = 'https://a/bundle'",
        expect![[
            r#"thalweg.toml:3:10: bundle: "https://a/bundle": TLS towards the bundle's server is not supported"#
        ]],
    );
    edge(
        "bundle = 'http:///bundle'",
        expect![[
            r#"thalweg.toml:3:10: bundle: "http:///bundle": the bundle's URL is http://HOST[:PORT]/PATH: host is empty"#
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
            r#"thalweg.toml:3:21: steering_size_min: the number 100 where a size such as "512MiB" is expected"#
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
fn every_fault_is_told_at_once_in_the_order_of_the_file() {
    check(
        "[edge]\nmemory = '1'\nlistn = 1\n[origin]\nwindow = 60\n[oops]\n",
        expect![[r#"
            thalweg.toml:2:10: memory: "1" has no unit: write 1B, 1KiB or 1MiB
            thalweg.toml:3:1: unknown key "listn" in [edge]; did you mean "listen"?
            thalweg.toml:5:10: window: the number 60 where a duration such as "250ms" is expected
            thalweg.toml:6:2: unknown section "oops"; known are edge, origin, console, agent, consumer, controller, tenant, source"#]],
    );
}

#[test]
fn syntax_is_told_with_its_place() {
    check(
        "[edge]\nlisten = \n",
        expect!["thalweg.toml:2:10: string values must be quoted, expected literal string"],
    );
    check("[edge]\n[edge]\n", expect!["thalweg.toml:2:2: duplicate key"]);
    check("[edge\n", expect!["thalweg.toml:1:6: unclosed table, expected `]`"]);
}

#[test]
fn sections_must_fit_together() {
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
            thalweg.toml:1:2: a console shows what the same file has: write [edge], [agent] with sqlite, or [controller]
            thalweg.toml:2:8: edge: the edge is that of the same file: write [edge]"#]],
    );
    check("[console]\n[agent]", expect!["no fault"]);
    check(
        "[console]\n[agent]\nkafka = '127.0.0.1:9092'",
        expect![
            "thalweg.toml:1:2: a console shows what the same file has: write [edge], [agent] with sqlite, or [controller]"
        ],
    );
    check(
        "[origin]\nmedia = 'not/there'\nwindow = '4s'\nsegment_target = '3s'",
        expect![[r#"
            thalweg.toml:2:9: media: cannot read directory not/there: No such file or directory (os error 2)
            thalweg.toml:3:10: window: shorter than two segments"#]],
    );
    check(
        "[[source]]\nmedia = 'src'\n[[source]]\nmedia = 'src'\nchannel = 'a'",
        expect![[r#"
        thalweg.toml:1:1: the source has nowhere to push: set channel or to
        thalweg.toml:3:1: channel is one of the origin in the same file: write [origin], or set to instead"#]],
    );
    check(
        "[agent]\nkafka_bundles = 'b'\n[controller]\nkafka_bundles = 'b'",
        expect![[r#"
        thalweg.toml:2:17: kafka_bundles: set kafka, where the topic is
        thalweg.toml:2:17: kafka_bundles: set pop, whose bundles they are
        thalweg.toml:2:17: kafka_bundles: set bundle_file, where they go
        thalweg.toml:2:17: kafka_bundles: set edges, which take them
        thalweg.toml:4:17: kafka_bundles: set kafka, where the topic is"#]],
    );
    check(
        "[agent]\nbundle_file = 'b'",
        expect!["thalweg.toml:2:15: bundle_file: kafka_bundles says what comes there"],
    );
    check(
        "[agent]\nkafka = ['a:1']\nkafka_topic = 'b'\nkafka_bundles = 'b'\npop = 'p'\nbundle_file = 'f'\nedges = ['127.0.0.1:1']\n\
         [controller]\nkafka = ['a:1']\nkafka_bundles = 'thalweg.telemetry'",
        expect![[r#"
            thalweg.toml:4:17: kafka_bundles: the topic of records: name another
            thalweg.toml:10:17: kafka_bundles: the topic of records: name another"#]],
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
            thalweg.toml:5:1: another source pushes channel "a" already
            thalweg.toml:8:1: channel and to exclude each other: to names the publishing point whole"#]],
    );
    check(
        "[edge]\nlisten = '0.0.0.0:9000'\n[origin]\nlisten = '127.0.0.1:9000'",
        expect!["thalweg.toml:4:10: listen: edge.listen listens on 0.0.0.0:9000 already"],
    );
    check(
        "[edge]\nadmin = '127.0.0.1:8000'\n[origin]\n[console]",
        expect!["thalweg.toml:2:9: admin: console.listen listens on 127.0.0.1:8000 already"],
    );
}

#[test]
fn what_the_file_says_and_what_it_leaves_out() {
    let text = "[edge]\nbackends = 'http://127.0.0.1:7/'\nidle_timeout = '5min'\n\
                [[source]]\nmedia = 'src'\nto = 'http://127.0.0.1:7/ingest/a'";
    let config = Config::from_text(Path::new("thalweg.toml"), text).unwrap();
    let edge = config.edge.unwrap();
    assert_eq!(edge.idle_timeout.value.duration.as_secs(), 300);
    assert_eq!(edge.idle_timeout.place, Place::File { line: 3, column: 16 });
    assert_eq!(edge.backends.unwrap().value[0].to_string(), "http://127.0.0.1:7");
    assert_eq!(edge.memory.value.bytes, 1 << 30);
    assert_eq!((edge.memory.place, edge.threads), (Place::Default, None));
    assert_eq!(config.sources[0].to.as_ref().unwrap().value.uri.path(), "/ingest/a");
    assert!(config.origin.is_none() && config.console.is_none());
}

#[test]
fn relative_paths_start_at_the_file() {
    let text = "[origin]\nmedia = 'src'\n[edge]\nlog = 'log.json'\ndisk = 'a=b=1GiB'\nbundle = 'b.json'";
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_text(&base.join("thalweg.toml"), text).unwrap();
    assert_eq!(config.origin.unwrap().media.unwrap().value, base.join("src"));
    let edge = config.edge.unwrap();
    assert_eq!(edge.log.value, LogTarget::File(base.join("log.json")));
    assert_eq!(edge.disk.unwrap().value.directory, base.join("a=b"));
    assert_eq!(edge.bundle.unwrap().value, BundleSource::File(base.join("b.json")));
    assert_eq!(edge.state.value, StateDirectory::At(base.join("thalweg-edge")));
}

#[test]
fn a_secret_may_be_in_a_file() {
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
    let told = read(wrong).unwrap_err().to_string().replace(&format!("{}/", base.display()), "");
    fs::remove_dir_all(&base).unwrap();
    expect![[r#"
        t.toml:2:14: clickhouse: not a URL such as "http://user:password@clickhouse:8123/thalweg", or @FILE
        t.toml:3:14: kafka_set: a: empty is empty
        t.toml:3:26: kafka_set: b: cannot read absent, which follows the @: No such file or directory (os error 2)
        t.toml:3:39: kafka_set: c: long is too long for a secret"#]]
    .assert_eq(&told);
}

#[test]
fn the_kernel_is_asked_for_the_congestion_control() {
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

/// Reading a section with nothing given reads each default; one that is malformed or out of bounds is a
/// fault.
#[test]
fn defaults_are_well_declared() {
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
fn the_reference_names_every_setting() {
    expect![[r#"
        [edge]
          The delivery node: an HTTP cache that relays a response to everyone while it is still arriving.

          listen                 ADDR:PORT, default 0.0.0.0:8080
              Where clients connect. Port 0 picks a free one.
          backends               [URL, …], if absent: the origin of the same file
              Where responses come from, in turn.
          hosts                  [HOST, …], if absent: any host
              The hosts that are served; requests for others are answered with 421.
          policy                 PATH, if absent: the caching rules alone
              The policy that requests run through: a file of VCL, with what it includes beside it. It can declare backends
              of its own.
          geoip                  [PATH, …], if absent: client.geo and client.as are not known
              MaxMind databases (City or Country, ASN), for client.geo and client.as of policies. A file that has changed is
              read again when a policy is loaded.
          memory                 SIZE, default 1GiB, 16MiB to 16TiB
              Memory for stored content.
          disk                   DIR=SIZE, if absent: memory alone
              Files for stored content that outlive the process, in a directory that no other process uses, and how much
              they may take.
          state                  DIR|off, default thalweg-edge
              What the edge has to know after a kill: how many responses it had begun, so that an agent can count those it was not
              told of, and its last good bundle. A directory for this edge alone; without it the edge serves as well.
          grace                  DURATION, default 0s, 0s to 720h
              For how long a stale response is served while it is refreshed behind, unless it forbids that or has a
              stale-while-revalidate of its own.
          stale_if_error         DURATION, default 0s, 0s to 720h
              For how long a stale response is served when no backend answers or one answers 500, 502, 503 or 504, unless
              it forbids that or has a stale-if-error of its own. A policy's own vcl_backend_error goes before it.
          heuristic_percent      N, default 10, 0 to 100
              A response that does not say how long it is fresh is so for this part of the time since it was last
              modified, in percent.
          heuristic_max          DURATION, default 24h, 0s to 8760h
              And for no longer than this.
          negative               DURATION, default 1s, 0s to 24h
              How long a 404 or 410 is fresh that does not say it.
          negative_max           DURATION, default 1min, 0s to 720h
              The longest that any answer with a status of 400 and above is fresh, whatever it says.
          surrogate_control      on|off, default off
              Whether Surrogate-Control is read, before Cache-Control. CDN-Cache-Control is read in any case, before both.
          request_directives     on|off, default on
              Whether Cache-Control of requests is followed, with which clients can ask past the cache.
          slice                  SIZE, default 4MiB, 0B to 64MiB
              Content that is too large for a quarter of the memory, or that is asked for this far from what has come, is
              fetched and stored in slices of this size, if the backend gives it an ETag and serves ranges. 0B: never.
          abandoned_fills        finish|half|cancel, default half
              What becomes of a response that nobody reads any more while it arrives: "finish" fetches all of it, "half" only
              if half of it has come or little is missing, "cancel" ends the fetch.
          threads                N, if absent: one for each core, 1 to 1024
              Threads, each with a runtime and a listener of its own.
          congestion_control     NAME, default system
              The congestion control of client connections; "system" leaves the kernel's choice.
          steering_size_min      SIZE, default 100kB, 0B to 1GiB
              The response from which on a steering rule or an experiment changes the congestion control, or once so much has
              been sent on a connection: most connections of players carry a playlist and go. The policy acts at once.
          bundle                 FILE|URL, if absent: the controller of the same file; without one no rules and no experiments
              The bundle of steering rules and experiments: a JSON file that may come later, and that another may replace at
              any time; it is looked at once a second. Or a server's URL, which is asked again and again, and is told which edge
              asks, by the machine's name unless the query has an edge=NAME. The last good one is kept in the state directory.
          tcp_notsent_lowat      SIZE, if absent: the kernel's: net.ipv4.tcp_notsent_lowat, 4KiB to 1GiB
              How much may wait unsent in the kernel for each client. With little, a pace or congestion control that is set
              soon takes effect and a seek leaves little behind that is sent in vain; with very little, each thread is woken
              more often. 128KiB is a good start. Without it duration and goodput of the log are those of what the kernel
              took, small content at once; with it nearly those of the wire.
          tcp_slow_start_after_idle keep|off, default keep
              "off" keeps the congestion window over a pause: segments come with pauses, and each would begin again from the
              initial window, but for BBR. It is a setting of the kernel for the whole network namespace; where it cannot be
              written, a warning says so. "keep" leaves it as it is.
          purge_from             [PREFIX, …], if absent: this machine: 127.0.0.0/8 and ::1/128
              The clients that may send PURGE.
          admin                  ADDR:PORT, default 127.0.0.1:8082
              Where the records of responses can be followed, and URLs and tags purged. Keep it on loopback.
          log                    FILE|-|off, default off
              The request log, one JSON line for each response.
          connections_max        N, default 16000, 1 to 10000000
              Client connections at a time; more are closed as they come. Each is an open file, and so is each
              to a backend.
          backend_connections_max N, default 1000, 1 to 1000000
              Connections in use to all backends, by each thread; more fetches wait for one as long as connecting
              may take, then fail.
          head_max               SIZE, default 32KiB, 1KiB to 1MiB
              The longest head of a request or a response.
          connect_timeout        DURATION, default 2s, 1ms to 1h
              The longest wait for a connection to a backend.
          first_byte_timeout     DURATION, default 15s, 1ms to 1h
              The longest wait for a backend's head, once the request is sent.
          between_bytes_timeout  DURATION, default 15s, 1ms to 1h
              The longest pause inside a backend's response.
          idle_timeout           DURATION, default 75s, 1ms to 24h
              How long a client connection is kept without a request.
          head_timeout           DURATION, default 10s, 1ms to 1h
              How long a client may take from the first byte of a request's head to its last.
          send_timeout           DURATION, default 60s, 1ms to 24h
              How long a client may take nothing of a response that is ready for it, or send nothing of the content of its
              request.

        [origin]
          The packager: HLS and DASH, just in time, from CMAF files and from live ingest.

          listen                 ADDR:PORT, default 127.0.0.1:8081
              Where edges and ingest sources connect. Port 0 picks a free one.
          media                  PATH, if absent: live channels only
              The directory of presentations: each directory in it is served as /vod/NAME/.
          window                 DURATION, default 60s, 4s to 24h
              How much of a live channel can be played back.
          segment_target         DURATION, default 2s, 200ms to 30s
              The least duration of a segment, live and in files without a segment index; random access points
              may make segments longer.
          listing_max_age        DURATION, default 1s, 0ms to 1h
              How long it may take until a changed file is noticed.
          live_memory            SIZE, default 512MiB, 16MiB to 16TiB
              Memory for the windows of all live channels.
          channels_max           N, default 64, 1 to 100000
              Live channels; a source of one more is refused.
          connections_max        N, default 4096, 1 to 10000000
              Connections at a time; more wait to be accepted.
          head_max               SIZE, default 16KiB, 1KiB to 1MiB
              The longest head of a request.

        [console]
          The web console: players, and the records of the edge in the same file as they happen.

          listen                 ADDR:PORT, default 127.0.0.1:8000
              Where browsers connect. Port 0 picks a free one.
          edge                   URL, if absent: the console's host name with the edge's port
              The edge's address as browsers reach it, if a proxy or a port mapping is between.

        [agent]
          The agent: samples of every TCP socket of the machine, whatever server has it, and the responses of edges. They are kept
          in SQLite, or go to Kafka, to ClickHouse or to files; what cannot be kept now waits in the spool.

          host                   NAME, if absent: the system's host name
              The machine's name in records.
          pop                    NAME, if absent: no name
              The site's name in records.
          period                 DURATION, default 10s, 100ms to 1h
              Between dumps of all sockets. Machines of different names dump at different moments.
          sockets                FILTER, if absent: every connection
              The sockets that are wanted, in the words of `thalweg sockets`.
          sample                 N, default 1, 1 to 1000000
              Of these one in so many, each for all of its life.
          namespaces             [NAME|PATH, …], if absent: the process's own
              Network namespaces to look into, by the name that `ip netns` has or by a file.
          edges                  [ADDR:PORT, …], if absent: the edge of the same file
              Admin addresses of edges whose responses are recorded.
          geoip                  [PATH, …], if absent: regions and autonomous systems are not known
              MaxMind databases (City or Country, ASN): they say region and autonomous system of clients.
          networks               PATH, if absent: the databases alone
              A CSV of networks, "prefix,asn,region" on each line; it goes before the databases.
          spool                  DIR=SIZE, default thalweg-spool=1GiB
              Where records wait until every sink has them, and how much may wait. What is above is lost, the oldest first,
              and counted.
          sqlite                 PATH, if absent: thalweg-telemetry.sqlite beside the spool, if no other sink is named
              A SQLite database for records and aggregates.
          keep                   DURATION, default 2h, 1min to 8760h
              How long records stay in SQLite.
          keep_aggregates        DURATION, default 840h, 1h to 87600h
              How long aggregates of five minutes stay there.
          sqlite_max             SIZE, default 4GiB, 16MiB to 16TiB
              How large the database may grow; beyond it the oldest records go before their time.
          json                   PATH, if absent: no such files
              A directory for files of JSON lines, one record on each, for log shippers. A file ends at 256 MiB or after an hour.
          json_max               SIZE, if absent: no bound, 64MiB to 1024TiB
              How much those files may take together; beyond it the oldest go. A file ends at a quarter of it, if that is less.
          parquet                PATH, if absent: no such files
              A directory for Parquet files, each written whole, of 50,000 rows or of a minute.
          parquet_max            SIZE, if absent: no bound, 64MiB to 1024TiB
              How much those files may take together; beyond it the oldest go.
          kafka                  [HOST:PORT, …], if absent: not to Kafka
              Kafka's brokers to begin with: records go to a topic there, by client network.
          kafka_topic            NAME, default thalweg.telemetry
              The topic.
          kafka_partitions       N, default 12, 0 to 10000
              Partitions of the topic, which is made if it is not there; 0: it is not made.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
              a file.
          kafka_bundles          NAME, if absent: bundles come another way
              The compacted topic over which bundles for the edges of this machine come; the controller makes it.
          bundle_file            PATH, if absent: no such file
              The file into which they go, which the edges' `bundle` names.
          clickhouse             URL|@FILE, if absent: not to ClickHouse
              A ClickHouse database that has the tables (`thalweg schema apply`), or @FILE, a file that has this URL: records go
              there without Kafka between.
          controller             URL, if absent: the controller of the same file
              A controller, which decides on what it is told. What is to be kept needs another sink.
          listen                 ADDR:PORT, if absent: nowhere
              Where Prometheus reads the agent's own figures, at /metrics.

        [consumer]
          The consumer: what agents wrote to Kafka goes into ClickHouse, each record once. As many of them as the topic has
          partitions share the work.

          kafka                  [HOST:PORT, …], required
              Kafka's brokers to begin with.
          kafka_topic            NAME, default thalweg.telemetry
              The topic.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
              a file.
          topic_wait             DURATION, default 1min, 0s to 24h
              How long the topic may be missing at the start before that is a failure.
          group                  NAME, default thalweg-clickhouse
              The group whose members share the partitions.
          clickhouse             URL|@FILE, required
              The ClickHouse database that has the tables (`thalweg schema apply`), or @FILE, a file that has this URL.
          block_rows             N, default 200000, 1 to 1000000
              A block of a partition is inserted when it has so many rows.
          block_wait             DURATION, default 1s, 0s to 1h
              Or when its first message has waited so long.
          listen                 ADDR:PORT, if absent: nowhere
              Where Prometheus reads the consumer's own figures, at /metrics.

        [controller]
          The controller: finds client networks that may gain by another congestion control, tries it there on some connections, and
          keeps it where that is shown to help. Edges ask it for their bundle.

          listen                 ADDR:PORT, default 127.0.0.1:8083
              Where agents bring records, and edges ask for their bundle. Keep it within your network.
          kafka                  [HOST:PORT, …], if absent: agents bring their records
              Kafka's brokers to begin with: records that agents write to a topic there are read, too.
          kafka_topic            NAME, default thalweg.telemetry
              The topic.
          kafka_set              [KEY=VALUE|KEY=@FILE, …], if absent: none
              Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
              a file.
          kafka_bundles          NAME, if absent: edges ask for their bundle
              A compacted topic over which bundles go to agents, beside HTTP; it is made if it is not there.
          database               PATH, default thalweg-control.sqlite
              The SQLite file in which it keeps what it knows, every round, and its bundles.
          window                 DURATION, default 5min, 1s to 24h
              Decisions are made for windows of this length.
          late                   DURATION, default 1min, 0s to 24h
              For how long after its end a window takes records.
          measure                delivery_rate|goodput, default delivery_rate
              By what networks are ranked: the kernel's delivery rate samples, or the goodput of responses.
          goodput_min            SIZE, default 100kB, 0B to 1GiB
              The least response that tells of goodput, and from which on a rule is due.
          counts_relayed         on|off, default off
              Whether responses that the backend was still sending tell of goodput as well.
          hosts_left_alone       [HOST, …], if absent: none
              Hosts that opt out: their connections decide nothing, and no rule is due for their responses.
          by_tenant              on|off, default off
              Whether each host that no [[tenant]] has is one by itself: its own responses alone decide for it. Give the edges their
              hosts then.
          connections_min        N, default 3, 1 to 1000000
              Connections that tell, in a window, before a network is ranked.
          bottom_share           SHARE, default 0.2
              The share of ranked networks that is the bottom group.
          history_windows        N, default 72, 1 to 128
              Windows of history.
          observed_windows_min   N, default 12, 1 to 128
              Windows in which a network was ranked, before anything is said of it.
          duty_enter             SHARE, default 0.6
              A network enters with at least this share of its windows in the bottom group.
          duty_leave             SHARE, default 0.3
              And leaves, as long as nothing is shown of it, with at most this one.
          flap_max               SHARE, default 0.25
              It enters with at most so many changes of group a window.
          min_rtt_min            DURATION, default 10ms, 0ms to 10s
              Networks with shorter round trips are left alone.
          left_alone             [PREFIX, …], if absent: none
              Networks that are left alone.
          congestion_control     NAME, default bbr
              What is tried, as the kernel names it.
          steered_max            N, default 500, 0 to 10000
              Networks of a PoP that are steered at once.
          entering_max           N, default 20, 0 to 10000
              Networks that enter in a round.
          changes_max            N, default 50, 0 to 10000
              Networks that enter and leave in a round; what leaves for safety comes on top.
          explored_max           N, default 100, 0 to 10000
              Networks on trial that are not slow, to find out, at once.
          exploring_max          N, default 5, 0 to 10000
              Of those, the most that enter in a round.
          holdout_trial          SHARE, default 0.5
              The share of connections held out while nothing is shown; 0: no proof, the rule of duty cycles alone.
          holdout                SHARE, default 0.1
              The share of connections held out where it is shown to help.
          false_discovery_share  SHARE, default 0.05
              Of all networks that are ever told to be helped, the share for which that is false.
          false_harm_share       SHARE, default 0.05
              The chance of each trial to be told harmful without being so.
          evidence_connections_min N, default 30, 2 to 1000000
              Connections of each arm before anything is said.
          effect_min             SHARE, default 0.05
              The least effect on log goodput that is worth a rule.
          trial_windows_max      N, default 72, 1 to 1000000
              Windows after which a trial that shows nothing ends.
          proof_windows_max      N, default 576, 1 to 1000000
              Windows after which what was shown has to be shown again.
          pooled_keep            SHARE, default 0.9
              The probability of a worthwhile effect, by what all networks show together, with which one stays after its trial.
          retransmitted_rise_max SHARE, default 0.05
              The rise of the share of bytes sent again that ends a trial.
          guardrail_rise_max     SHARE, default 0.03
              The same over all trials together, which ends all of them.
          guardrail_pause_windows N, default 12, 0 to 1000000
              Windows in which none enters after that.
          cool_off_windows       N, default 288, 1 to 1000000
              Windows in which what has left may not enter.
          canary_share           SHARE, default 0.1
              The share of edges that get a bundle before all others, one at least.
          canary_windows         N, default 1, 1 to 128
              Windows for which these are watched.
          canary_windows_max     N, default 3, 1 to 128
              Windows after which all get it though too few connections told.
          acknowledge_max        DURATION, default 2min, 1s to 24h
              For how long an edge's acknowledgement is waited for.
          canary_failed_rise_max SHARE, default 0.02
              The rise of the share of responses that fail from which on a bundle is rolled back.
          canary_retransmitted_rise_max SHARE, default 0.02
              Likewise of the share of bytes sent again.
          canary_goodput_drop_max SHARE, default 0.2
              Likewise the drop of log goodput.

        [[tenant]]  (any number)
          Hosts that the controller decides for by themselves: only their responses tell of them, and their rules are for them
          alone. What is not set is as in [controller].

          hosts                  [HOST, …], required
              The hosts. The first is the tenant's name: with another name it begins anew.
          measure                delivery_rate|goodput, if absent: that of [controller]
              By what its networks are ranked.
          goodput_min            SIZE, if absent: that of [controller], 0B to 1GiB
              The least response that tells of goodput, and from which on a rule is due.
          counts_relayed         on|off, if absent: that of [controller]
              Whether responses that the backend was still sending tell of goodput as well.
          connections_min        N, if absent: that of [controller], 1 to 1000000
              Connections that tell, in a window, before a network is ranked.
          bottom_share           SHARE, if absent: that of [controller]
              The share of ranked networks that is the bottom group.
          duty_enter             SHARE, if absent: that of [controller]
              A network enters with at least this share of its windows in the bottom group.
          duty_leave             SHARE, if absent: that of [controller]
              And leaves, as long as nothing is shown of it, with at most this one.
          flap_max               SHARE, if absent: that of [controller]
              It enters with at most so many changes of group a window.
          min_rtt_min            DURATION, if absent: that of [controller], 0ms to 10s
              Networks with shorter round trips are left alone.
          left_alone             [PREFIX, …], if absent: that of [controller]
              Networks that are left alone.
          congestion_control     NAME, if absent: that of [controller]
              What is tried, as the kernel names it.
          steered_max            N, if absent: that of [controller], 0 to 10000
              Networks of a PoP that are steered at once, of those that all may have.
          entering_max           N, if absent: that of [controller], 0 to 10000
              Networks that enter in a round, of those that all may.
          explored_max           N, if absent: that of [controller], 0 to 10000
              Networks on trial that are not slow, at once.
          exploring_max          N, if absent: that of [controller], 0 to 10000
              Of those, the most that enter in a round.
          holdout_trial          SHARE, if absent: that of [controller]
              The share of connections held out while nothing is shown.
          holdout                SHARE, if absent: that of [controller]
              The share of connections held out where it is shown to help.
          evidence_connections_min N, if absent: that of [controller], 2 to 1000000
              Connections of each arm before anything is said.
          effect_min             SHARE, if absent: that of [controller]
              The least effect on log goodput that is worth a rule.
          trial_windows_max      N, if absent: that of [controller], 1 to 1000000
              Windows after which a trial that shows nothing ends.
          retransmitted_rise_max SHARE, if absent: that of [controller]
              The rise of the share of bytes sent again that ends a trial.
          guardrail_rise_max     SHARE, if absent: that of [controller]
              The same over all of its trials together, which ends all of them.
          cool_off_windows       N, if absent: that of [controller], 1 to 1000000
              Windows in which what has left may not enter.

        [[source]]  (any number)
          A live source for demonstrations and tests: it pushes a presentation in a loop, in real time.

          media                  PATH, required
              The presentation: a directory of CMAF tracks.
          channel                NAME, if absent: `to` says where to push
              The channel, at the origin of the same file. Give this or `to`.
          to                     URL, if absent: the origin of the same file
              The publishing point of another origin. Give this or `channel`.

        Relative paths in the file start at the file's directory.
    "#]]
    .assert_eq(&reference());
}

proptest! {
    /// Whatever a file holds, it is read or refused; and every fault is one line.
    #[test]
    fn no_file_is_too_strange(key in "[a-z_]{1,12}|listen|media|memory", value in ".{0,20}", cut in 0usize..80) {
        let whole = format!("[origin]\n[edge]\n{key} = {value}\n'{value}' = '{value}'\n[[source]]\n{key} = [{value}]");
        let text: String = whole.chars().take(cut).collect();
        if let Err(faults) = Config::from_text(Path::new("f"), &text) {
            for line in faults.to_string().lines() {
                prop_assert!(line.starts_with("f:"), "{}", line);
            }
        }
    }
}
