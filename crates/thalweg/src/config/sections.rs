//! Declarations of all settings: name, type, default, bounds and meaning.
//!
//! `thalweg check --settings` prints these declarations. Each command that runs a single role has a
//! flag for each setting of the role's section.

use std::net::SocketAddr;
use std::path::PathBuf;

use hyper::Uri;
use thalweg_bundle::Share;
use thalweg_cli::secret::ClickHouseUrl;
use thalweg_control::Measure;
use thalweg_edge::{AbandonedFills, BackendUrl, BundleSource, DiskPlace, LogDestination, SlowStartAfterIdle};
use thalweg_origin::{IngestToken, MediaLocation};
use thalweg_record::Prefix;
use thalweg_surface::TokenFile;
use thalweg_tcp::CongestionControl;
use thalweg_tcp::diag::Filter;
use thalweg_telemetry::collect;
use thalweg_units::{Size, Span};

use super::agent_value::{Broker, KafkaProperty};
use super::controller_value::ControllerUrl;
use super::declare::{Declared, section};
use super::edge_value::HostName;
use super::origin_value::EndpointUrl;
use super::value::{ChannelName, PublicUrl};

/// Every section, in the order of the reference.
pub(super) const SECTIONS: &[Declared] = &[
    Declared::once::<Edge>(),
    Declared::once::<Origin>(),
    Declared::once::<Console>(),
    Declared::once::<Agent>(),
    Declared::once::<Consumer>(),
    Declared::once::<Controller>(),
    Declared::many::<Tenant>(),
    Declared::many::<Source>(),
];

section! {
    /// The delivery node: an HTTP cache that relays responses while they are still arriving.
    "edge" Edge {
        /// Address for client connections. Port 0 picks a free one.
        listen: SocketAddr = default("0.0.0.0:8080");
        /// Backends, used in turn.
        backends: Vec<BackendUrl> = unset("the origin in the same file");
        /// Hosts to serve; a request for any other host gets 421.
        hosts: Vec<HostName> = unset("any host");
        /// Policy for all requests: a VCL file, with its includes beside it. A policy can declare
        /// its own backends.
        policy: PathBuf = unset("the caching rules only");
        /// MaxMind databases (City or Country, ASN) for client.geo and client.as in policies.
        /// Changed files are reread when a policy is loaded.
        geoip: Vec<PathBuf> = unset("client.geo and client.as are unknown");
        /// Memory for stored content.
        memory: Size = default("1GiB"), within("16MiB", "16TiB");
        /// Directory for stored content that survives restarts, and the maximum total size of its
        /// files. No other process may use the directory.
        disk: DiskPlace = unset("memory only");
        /// Directory for state that must survive a crash: the last good bundle, and the number of
        /// started responses, from which an agent can count the records that it never received. No
        /// other edge may use the directory. The edge also works without it.
        state: Option<PathBuf> = default("thalweg-edge");
        /// How long a stale response is served while it is revalidated in the background, unless
        /// the response forbids it or has its own stale-while-revalidate.
        grace: Span = default("0s"), within("0s", "720h");
        /// How long a stale response is served when the backend does not respond, or responds with
        /// 500, 502, 503 or 504, unless the stale response forbids it or has its own
        /// stale-if-error. A policy's vcl_backend_error takes precedence.
        stale_if_error: Span = default("1min"), within("0s", "720h");
        /// Freshness lifetime of a response without an explicit one, as a percentage of the time
        /// since its last modification.
        heuristic_percent: usize = default("10"), within("0", "100");
        /// Maximum heuristic freshness lifetime.
        heuristic_max: Span = default("24h"), within("0s", "8760h");
        /// Freshness lifetime of a 404 or 410 without an explicit one.
        negative: Span = default("1s"), within("0s", "24h");
        /// Maximum freshness lifetime of a response with status 400 or above, even if its explicit
        /// one is longer.
        negative_max: Span = default("1min"), within("0s", "720h");
        /// Whether Surrogate-Control is honoured, with precedence over Cache-Control.
        /// CDN-Cache-Control is always honoured, with precedence over both.
        surrogate_control: bool = default("off");
        /// Whether Cache-Control in requests is honoured, which lets clients bypass the cache.
        request_directives: bool = default("on");
        /// Slice size. Content is fetched and stored in slices if it is larger than a quarter of
        /// the memory, or if a requested range starts this far beyond the bytes already received.
        /// The backend must send an ETag and support ranges. 0B disables slices.
        slice: Size = default("4MiB"), within("0B", "64MiB");
        /// What happens to a fill that has lost all its readers: "finish" completes it, "half"
        /// completes it only if half has arrived or little is missing, "cancel" ends the fetch.
        abandoned_fills: AbandonedFills = default("half");
        /// Number of threads, each with its own runtime and listener.
        threads: usize = unset("one per core"), within("1", "1024");
        /// Congestion control of client connections; "system" keeps the kernel's default.
        congestion_control: Option<CongestionControl> = default("system");
        /// Minimum response size, or number of bytes already sent on the connection, for a steering
        /// rule or an experiment to change the congestion control. This exempts short connections:
        /// most player connections fetch one playlist and close. A policy can change the congestion
        /// control at any size.
        steering_size_min: Size = default("100kB"), within("0B", "1GiB");
        /// Minimum size of a response whose delivery is measured: how much of it the client's
        /// kernel acknowledged, and when. The record of such a response is written once its last
        /// byte is acknowledged. Requires Linux 6.2 or later.
        delivery_min: Size = default("10kB"), within("0B", "1GiB");
        /// Bundle of steering rules and experiments. A JSON file is checked every second, and may
        /// be created or replaced at any time. A URL is polled, with the machine's name added as
        /// edge=NAME unless the query already has an edge. The last good bundle is kept in the
        /// state directory.
        bundle: BundleSource = unset("the controller in the same file; without a controller, no rules or experiments");
        /// File with the token that the edge presents to the bundle server. It is read for each
        /// request, so it can be replaced at any time.
        bundle_token_file: TokenFile = unset("no token");
        /// PEM file with the authorities to trust for an https:// URL of the bundle server.
        controller_ca: PathBuf = unset("the authorities that the system trusts");
        /// PEM file with the certificate that the edge presents to the bundle server, followed by
        /// those of intermediate authorities. Changed files take effect within a second.
        controller_certificate: PathBuf = unset("no client certificate");
        /// PEM file with the private key of controller_certificate.
        controller_key: PathBuf = unset("no client certificate");
        /// Maximum unsent bytes per client in the kernel. With a low value, a new pace or
        /// congestion control takes effect sooner and a seek wastes fewer bytes, but threads wake
        /// more often; 128KiB is a good first choice.
        tcp_notsent_lowat: Size = unset("the kernel's net.ipv4.tcp_notsent_lowat"), within("4KiB", "1GiB");
        /// Slow start after an idle period, such as between segments. "keep" leaves the kernel's
        /// setting unchanged; by default, the congestion window then returns to its initial size,
        /// except with BBR. "off" keeps the window, for the whole network namespace; if the
        /// kernel's setting cannot be written, a warning is logged.
        tcp_slow_start_after_idle: SlowStartAfterIdle = default("keep");
        /// Whether PUT, POST and other unsafe methods under /ingest/ are forwarded to the backend.
        /// A Thalweg origin refuses forwarded sources; "on" is for other backends with such a path.
        forward_ingest: bool = default("off");
        /// Clients that may send PURGE.
        purge_from: Vec<Option<Prefix>> = unset("this machine: 127.0.0.0/8 and ::1/128");
        /// Admin interface: response records, purges, bans, policies. Keep it on loopback.
        admin: SocketAddr = default("127.0.0.1:8082");
        /// Destination of the request log, which has one JSON line per response.
        log: LogDestination = default("off");
        /// How long response records are kept for agents that reconnect or lag. An agent that is
        /// away for longer loses the older ones, which are counted.
        records_kept: Span = default("60s"), within("1s", "1h");
        /// Approximate memory for these records. If it is full, the oldest ones are dropped
        /// earlier.
        records_kept_max: Size = default("128MiB"), within("1MiB", "1TiB");
        /// Record the responses of one client in this many. Their records carry the ratio, and
        /// queries weight them by it. Metrics count all responses.
        records_sample: usize = default("1"), within("1", "1000");
        /// Text that decides which clients are in the sample. Edges with the same text sample the
        /// same clients. Clients that know it could choose to be in the sample, so keep it secret.
        records_sample_salt: String = unset("empty");
        /// Maximum concurrent client connections; further connections are closed at once. Each
        /// client or backend connection is an open file.
        connections_max: usize = default("16000"), within("1", "10000000");
        /// Maximum backend connections in use per thread. Further fetches wait up to the connect
        /// timeout, then fail.
        backend_connections_max: usize = default("1000"), within("1", "1000000");
        /// Maximum length of a request or response head (start line and fields).
        head_max: Size = default("32KiB"), within("1KiB", "1MiB");
        /// Maximum wait for a connection to a backend.
        connect_timeout: Span = default("2s"), within("1ms", "1h");
        /// Maximum wait for a backend's response head, once the request is sent.
        first_byte_timeout: Span = default("15s"), within("1ms", "1h");
        /// Maximum pause within a backend's response.
        between_bytes_timeout: Span = default("15s"), within("1ms", "1h");
        /// How long an idle client connection is kept open.
        idle_timeout: Span = default("75s"), within("1ms", "24h");
        /// Maximum time from the first to the last byte of a request's head.
        head_timeout: Span = default("10s"), within("1ms", "1h");
        /// How long a client may stall, that is, neither accept response bytes nor send request
        /// content.
        send_timeout: Span = default("60s"), within("1ms", "24h");
    }
}

section! {
    /// The packager: produces HLS and DASH just in time, from CMAF files and live ingest.
    "origin" Origin {
        /// Address for edges and clients. Port 0 picks a free one.
        listen: SocketAddr = default("127.0.0.1:8081");
        /// Address for live sources. Sources forwarded by a proxy are refused. Keep it on loopback,
        /// or set ingest_token.
        ingest: SocketAddr = default("127.0.0.1:8084");
        /// Token that live sources send, as "Authorization: Bearer TOKEN" or as the password in the
        /// URL; @FILE reads the token from a file.
        ingest_token: IngestToken = unset("no token, allowed only if ingest is on loopback");
        /// Address for Prometheus at /metrics and health checks at /healthz and /readyz. Keep it
        /// within your network.
        admin: SocketAddr = default("127.0.0.1:8085");
        /// Libraries of presentations: directories, buckets or web servers. Each subdirectory NAME
        /// is served as /vod/NAME/; if several libraries have one of the same name, the first one
        /// serves it.
        media: Vec<MediaLocation> = unset("live channels only");
        /// DVR window of live channels.
        window: Span = default("60s"), within("4s", "24h");
        /// Minimum segment duration, live and for files without a segment index; sparse random
        /// access points may make segments longer.
        segment_target: Span = default("2s"), within("200ms", "30s");
        /// Maximum delay before a changed file in a directory is noticed.
        listing_max_age: Span = default("1s"), within("0ms", "1h");
        /// Maximum delay before a new or changed object of a bucket or web server is noticed. A
        /// changed object is never mixed with its earlier version.
        remote_listing_max_age: Span = default("10s"), within("0ms", "24h");
        /// URL of the S3 service.
        s3_endpoint: EndpointUrl = unset("AWS");
        /// Whether the name of the bucket is in the path of URLs rather than in the host name.
        s3_path_style: bool = default("off");
        /// Region of the buckets.
        s3_region: ChannelName = unset("AWS_REGION or AWS_DEFAULT_REGION of the environment, else us-east-1");
        /// Whether requests to S3 are sent without credentials, for public buckets. Otherwise they
        /// are signed with those of the environment, a profile, a web identity or the machine.
        s3_anonymous: bool = default("off");
        /// PEM file with the authorities to trust for https:// URLs of storage.
        storage_ca: PathBuf = unset("the authorities that the system trusts");
        /// How long an idle storage connection is kept. Amazon S3 closes some after 5 s. 0s opens a
        /// connection for each request.
        storage_idle: Span = default("4s"), within("0s", "1h");
        /// Maximum connections per storage server; further requests wait for one.
        storage_connections_max: usize = default("256"), within("1", "100000");
        /// Maximum wait for one of these connections.
        storage_slot_timeout: Span = default("5s"), within("1ms", "1h");
        /// Maximum time to open a storage connection, including name resolution and TLS.
        storage_connect_timeout: Span = default("2s"), within("1ms", "1h");
        /// Maximum wait for the head of a response from storage.
        storage_first_byte_timeout: Span = default("10s"), within("1ms", "1h");
        /// Maximum pause within a response from storage.
        storage_between_bytes_timeout: Span = default("10s"), within("1ms", "1h");
        /// Memory for the DVR windows of all live channels.
        live_memory: Size = default("512MiB"), within("16MiB", "16TiB");
        /// Maximum live channels; further sources are refused.
        channels_max: usize = default("64"), within("1", "100000");
        /// Maximum concurrent connections per listener; further connections wait to be accepted.
        connections_max: usize = default("4096"), within("1", "10000000");
        /// Maximum length of a request head (request line and fields).
        head_max: Size = default("16KiB"), within("1KiB", "1MiB");
    }
}

section! {
    /// The web console: players, and live records from the edge that is configured in the same
    /// file.
    "console" Console {
        /// Address for browsers. Port 0 picks a free one.
        listen: SocketAddr = default("127.0.0.1:8000");
        /// Edge URL for browsers that reach the edge through a proxy or a port mapping.
        edge: PublicUrl = unset("the console's host name with the edge's port");
    }
}

section! {
    /// The agent: samples every TCP socket of the machine, whichever server owns it, and records
    /// the responses of edges. Records are sent to SQLite, Kafka, ClickHouse, a controller or
    /// files, and wait in the spool while a sink is unavailable.
    "agent" Agent {
        /// Name of the machine in records.
        host: ChannelName = unset("the system's host name");
        /// Name of the site (PoP) in records.
        pop: ChannelName = unset("no name");
        /// Interval between dumps of all sockets. Dumps of different hosts are staggered by host
        /// name.
        period: Span = default("10s"), within("100ms", "1h");
        /// Sockets to record, in the filter syntax of `thalweg sockets`.
        sockets: Filter = unset("every connection");
        /// Record one in this many sockets, each for its whole life.
        sample: usize = default("1"), within("1", "1000000");
        /// Network namespaces to sample, by `ip netns` name or by path.
        namespaces: Vec<collect::Namespace> = unset("the process's own");
        /// Admin addresses of the edges whose responses are recorded.
        edges: Vec<SocketAddr> = unset("the edge in the same file");
        /// MaxMind databases (City or Country, ASN) for the region and autonomous system of
        /// clients.
        geoip: Vec<PathBuf> = unset("regions and autonomous systems are unknown");
        /// CSV file of networks, one "prefix,asn,region" per line; takes precedence over the
        /// databases.
        networks: PathBuf = unset("the databases only");
        /// Directory in which records wait until every sink has stored them, and the maximum total
        /// size of its files. Above this size, the oldest records are dropped and counted.
        spool: DiskPlace = default("thalweg-spool=1GiB");
        /// SQLite database for records and aggregates.
        sqlite: PathBuf = unset("thalweg-telemetry.sqlite beside the spool, if no other sink is named");
        /// How long records stay in SQLite.
        keep: Span = default("2h"), within("1min", "8760h");
        /// How long five-minute aggregates stay in SQLite.
        keep_aggregates: Span = default("840h"), within("1h", "87600h");
        /// Maximum size of the database; above it, the oldest records are deleted early.
        sqlite_max: Size = default("4GiB"), within("16MiB", "16TiB");
        /// Directory for JSON lines files, one record per line, for log shippers. A file is closed
        /// at 256 MiB or after an hour.
        json: PathBuf = unset("no JSON files");
        /// Maximum total size of the JSON lines files; above it, the oldest are deleted. If set, a
        /// file is closed at a quarter of this size, or at 256 MiB if that is less.
        json_max: Size = unset("no limit"), within("64MiB", "1024TiB");
        /// Directory for Parquet files. A file is written atomically, after 50,000 rows or one
        /// minute of records.
        parquet: PathBuf = unset("no Parquet files");
        /// Maximum total size of the Parquet files; above it, the oldest are deleted.
        parquet_max: Size = unset("no limit"), within("64MiB", "1024TiB");
        /// Kafka bootstrap brokers. Records are sent to a topic, partitioned by client network.
        kafka: Vec<Broker> = unset("no Kafka");
        /// Kafka topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// Number of partitions if the agent creates the topic. With 0, it never does.
        kafka_partitions: usize = default("12"), within("0", "10000");
        /// librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
        /// value from a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// ClickHouse database with the tables of `thalweg schema apply`: a URL, or @FILE to read
        /// the URL from a file. Records are inserted directly, without Kafka.
        clickhouse: ClickHouseUrl = unset("no ClickHouse");
        /// Controller that receives records for its decisions. It does not store records; use
        /// another sink to keep them.
        controller: ControllerUrl = unset("the controller in the same file");
        /// File with the token that the agent presents to the controller. It is read for each
        /// request, so it can be replaced at any time.
        controller_token_file: TokenFile = unset("no token");
        /// PEM file with the authorities to trust for an https:// URL of the controller.
        controller_ca: PathBuf = unset("the authorities that the system trusts");
        /// PEM file with the certificate that the agent presents to the controller, followed by
        /// those of intermediate authorities. Changed files take effect within a second.
        controller_certificate: PathBuf = unset("no client certificate");
        /// PEM file with the private key of controller_certificate.
        controller_key: PathBuf = unset("no client certificate");
        /// Address for Prometheus: the agent's own metrics, at /metrics.
        listen: SocketAddr = unset("no metrics listener");
    }
}

section! {
    /// The consumer: moves records from Kafka to ClickHouse, each exactly once. Up to as many
    /// consumers as the topic has partitions share the work.
    "consumer" Consumer {
        /// Kafka bootstrap brokers.
        kafka: Vec<Broker> = required();
        /// Kafka topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
        /// value from a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// How long to wait for a missing topic at startup before failing.
        topic_wait: Span = default("1min"), within("0s", "24h");
        /// Consumer group that shares the partitions.
        group: ChannelName = default("thalweg-clickhouse");
        /// ClickHouse database with the tables of `thalweg schema apply`: a URL, or @FILE to read
        /// the URL from a file.
        clickhouse: ClickHouseUrl = required();
        /// Number of rows at which a partition's block is inserted.
        block_rows: usize = default("200000"), within("1", "1000000");
        /// Maximum time from a block's first message to its insertion.
        block_wait: Span = default("1s"), within("0s", "1h");
        /// Address for Prometheus: the consumer's own metrics, at /metrics.
        listen: SocketAddr = unset("no metrics listener");
    }
}

section! {
    /// The controller: finds client networks that may gain from another congestion control, tries
    /// it there on a share of connections, and keeps it where it shows a gain. Edges fetch their
    /// bundles from the controller.
    "controller" Controller {
        /// Address for agents, which send records, and edges, which fetch their bundles. Keep it on
        /// loopback, or set identities.
        listen: SocketAddr = default("127.0.0.1:8083");
        /// File of the edges, agents and operators that may use the controller: TOML with the
        /// [[identity]] tables that `thalweg controller token` prints, or with the names in client
        /// certificates. Changes take effect within a second; a faulty file changes nothing.
        identities: PathBuf = unset("anyone, allowed only if listen is on loopback");
        /// PEM file with the controller's certificate, followed by those of intermediate
        /// authorities. The controller then speaks TLS only. Changed files take effect for new
        /// connections; unusable ones change nothing.
        tls_certificate: PathBuf = unset("clear text");
        /// PEM file with the private key of tls_certificate.
        tls_key: PathBuf = unset("clear text");
        /// PEM file with the authorities of client certificates. Every client, including a health
        /// check, then needs a certificate.
        tls_client_ca: PathBuf = unset("no client certificates");
        /// Maximum records of an agent per second, averaged over a minute.
        agent_records_max: usize = default("50000"), within("1", "10000000");
        /// Maximum client networks of an agent in a window; records of further ones are dropped.
        agent_networks_max: usize = default("50000"), within("1", "200000");
        /// Kafka bootstrap brokers: the controller also reads the records that agents write to a
        /// topic.
        kafka: Vec<Broker> = unset("agents send records directly");
        /// Kafka topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// librdkafka properties, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" reads the
        /// value from a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// SQLite file for the controller's state, rounds and bundles.
        database: PathBuf = default("thalweg-control.sqlite");
        /// Length of a decision window.
        window: Span = default("5min"), within("1s", "24h");
        /// How long a window still accepts records after its end.
        late: Span = default("1min"), within("0s", "24h");
        /// Measure that ranks networks: the kernel's delivery rate samples, or the goodput of
        /// responses.
        measure: Measure = default("delivery_rate");
        /// Minimum size of responses that count for goodput and to which steering rules apply.
        goodput_min: Size = default("100kB"), within("0B", "1GiB");
        /// Hosts that opt out: their connections are not counted, and no rule applies to their
        /// responses.
        hosts_left_alone: Vec<HostName> = unset("none");
        /// Whether the controller decides separately for each host without a [[tenant]], from the
        /// responses of that host alone. Requires hosts to be set on the edges.
        by_tenant: bool = default("off");
        /// Minimum measured connections in a window for a network to be ranked.
        connections_min: usize = default("3"), within("1", "1000000");
        /// Share of ranked networks that forms the bottom group.
        bottom_share: Share = default("0.2");
        /// Windows of history to keep.
        history_windows: usize = default("72"), within("1", "128");
        /// Minimum windows in which a network was ranked before it is considered.
        observed_windows_min: usize = default("12"), within("1", "128");
        /// Minimum duty cycle (share of windows in the bottom group) for a network to enter.
        duty_enter: Share = default("0.6");
        /// Duty cycle at or below which a network leaves if there is no evidence either way.
        duty_leave: Share = default("0.3");
        /// Maximum flap rate (group changes per window) for a network to enter.
        flap_max: Share = default("0.25");
        /// Networks with a shorter minimum RTT are tried only for exploration.
        min_rtt_min: Span = default("10ms"), within("0ms", "10s");
        /// Networks that are never steered.
        left_alone: Vec<Prefix> = unset("none");
        /// Congestion control to try, by its kernel name.
        congestion_control: CongestionControl = default("bbr");
        /// Maximum networks steered at once per PoP.
        steered_max: usize = default("500"), within("0", "10000");
        /// Maximum networks that enter per round.
        entering_max: usize = default("20"), within("0", "10000");
        /// Maximum networks that enter and leave per round; safety withdrawals are not limited.
        changes_max: usize = default("50"), within("0", "10000");
        /// Maximum networks on trial at once for exploration, that is, although they are not slow.
        explored_max: usize = default("100"), within("0", "10000");
        /// Maximum networks that enter for exploration per round.
        exploring_max: usize = default("5"), within("0", "10000");
        /// Share of clients held out during a trial. With 0, there are no trials, and the duty
        /// cycle alone decides.
        holdout_trial: Share = default("0.5");
        /// Share of clients held out after a gain has been shown for the network as a whole.
        holdout: Share = default("0.1");
        /// Maximum probability that a trial without effect makes its network promising.
        false_promise_share: Share = default("0.05");
        /// Length of the blocks in which a promising network is steered as a whole or not at all,
        /// in windows. The first window of each block is left out.
        switchback_block_windows: usize = default("3"), within("2", "1000");
        /// Windows after which a promising network leaves if no gain as a whole has been shown. At
        /// least two blocks, at most 2,000.
        switchback_windows_max: usize = default("288"), within("1", "1000000");
        /// Maximum expected share of false discoveries among all networks ever declared helped.
        false_discovery_share: Share = default("0.05");
        /// Maximum probability that a harmless trial is declared harmful.
        false_harm_share: Share = default("0.05");
        /// Minimum outcomes per arm before any conclusion: of clients in a trial, of connections on
        /// a canary.
        evidence_connections_min: usize = default("30"), within("2", "1000000");
        /// Minimum effect on log goodput that is worth a rule.
        effect_min: Share = default("0.05");
        /// Windows after which an inconclusive trial ends.
        trial_windows_max: usize = default("72"), within("1", "1000000");
        /// Windows after which a gain must be shown again.
        proof_windows_max: usize = default("576"), within("1", "1000000");
        /// Minimum probability of a worthwhile effect, pooled over all networks, for a network to
        /// stay after its trial.
        pooled_keep: Share = default("0.9");
        /// Maximum number of windows after its trial for which a network kept by pooled_keep stays
        /// without proof.
        likely_windows_max: usize = default("288"), within("0", "1000000");
        /// Rise in the share of retransmitted bytes that ends a trial.
        retransmitted_rise_max: Share = default("0.05");
        /// Rise in the share of retransmitted bytes, across all trials, that ends the trials that
        /// may have caused it.
        guardrail_rise_max: Share = default("0.03");
        /// Windows without new entries after the guardrail has ended trials.
        guardrail_pause_windows: usize = default("12"), within("0", "1000000");
        /// Windows before a withdrawn network may enter again.
        cool_off_windows: usize = default("288"), within("1", "1000000");
        /// Share of edges that get a bundle first; at least one edge.
        canary_share: Share = default("0.1");
        /// Windows during which the canary edges are watched.
        canary_windows: usize = default("1"), within("1", "128");
        /// Windows after which all edges get the bundle even if too few connections were measured.
        canary_windows_max: usize = default("3"), within("1", "128");
        /// How long to wait for an edge's acknowledgement.
        acknowledge_max: Span = default("2min"), within("1s", "24h");
        /// Share of the PoP's live edges with traffic that must refuse a bundle, or not acknowledge
        /// it, to roll it back; at least two edges, unless only one is live. A single edge is
        /// excluded and reported.
        canary_quorum: Share = default("0.25");
        /// Rise in the share of failed responses that rolls a bundle back.
        canary_failed_rise_max: Share = default("0.02");
        /// Rise in the share of retransmitted bytes that rolls a bundle back.
        canary_retransmitted_rise_max: Share = default("0.02");
        /// Drop in log goodput that rolls a bundle back.
        canary_goodput_drop_max: Share = default("0.2");
    }
}

section! {
    /// Hosts for which the controller decides separately, from the responses of these hosts alone
    /// and with rules for them alone. Unset keys are taken from [controller].
    "tenant" Tenant {
        /// Hosts of the tenant. The first host names the tenant; renaming it starts the tenant from
        /// scratch.
        hosts: Vec<HostName> = required();
        /// Measure that ranks networks: the kernel's delivery rate samples, or the goodput of
        /// responses.
        measure: Measure = unset("as in [controller]");
        /// Minimum size of responses that count for goodput and to which steering rules apply.
        goodput_min: Size = unset("as in [controller]"), within("0B", "1GiB");
        /// Minimum measured connections in a window for a network to be ranked.
        connections_min: usize = unset("as in [controller]"), within("1", "1000000");
        /// Share of ranked networks that forms the bottom group.
        bottom_share: Share = unset("as in [controller]");
        /// Minimum duty cycle (share of windows in the bottom group) for a network to enter.
        duty_enter: Share = unset("as in [controller]");
        /// Duty cycle at or below which a network leaves if there is no evidence either way.
        duty_leave: Share = unset("as in [controller]");
        /// Maximum flap rate (group changes per window) for a network to enter.
        flap_max: Share = unset("as in [controller]");
        /// Networks with a shorter minimum RTT are tried only for exploration.
        min_rtt_min: Span = unset("as in [controller]"), within("0ms", "10s");
        /// Networks that are never steered.
        left_alone: Vec<Prefix> = unset("as in [controller]");
        /// Congestion control to try, by its kernel name.
        congestion_control: CongestionControl = unset("as in [controller]");
        /// Maximum networks of the tenant steered at once per PoP, within the limit for all hosts.
        steered_max: usize = unset("as in [controller]"), within("0", "10000");
        /// Maximum networks of the tenant that enter per round, within the limit for all hosts.
        entering_max: usize = unset("as in [controller]"), within("0", "10000");
        /// Maximum networks on trial at once for exploration.
        explored_max: usize = unset("as in [controller]"), within("0", "10000");
        /// Maximum networks that enter for exploration per round.
        exploring_max: usize = unset("as in [controller]"), within("0", "10000");
        /// Share of clients held out during a trial.
        holdout_trial: Share = unset("as in [controller]");
        /// Share of clients held out after a gain has been shown for the network as a whole.
        holdout: Share = unset("as in [controller]");
        /// Minimum outcomes per arm before any conclusion: of clients in a trial, of connections on
        /// a canary.
        evidence_connections_min: usize = unset("as in [controller]"), within("2", "1000000");
        /// Minimum effect on log goodput that is worth a rule.
        effect_min: Share = unset("as in [controller]");
        /// Windows after which an inconclusive trial ends.
        trial_windows_max: usize = unset("as in [controller]"), within("1", "1000000");
        /// Rise in the share of retransmitted bytes that ends a trial.
        retransmitted_rise_max: Share = unset("as in [controller]");
        /// Rise in the share of retransmitted bytes, across the tenant's trials, that ends those
        /// that may have caused it.
        guardrail_rise_max: Share = unset("as in [controller]");
        /// Windows before a withdrawn network may enter again.
        cool_off_windows: usize = unset("as in [controller]"), within("1", "1000000");
    }
}

section! {
    /// A live source for demonstrations and tests: pushes a presentation in a loop, in real time.
    "source" Source {
        /// Presentation to push: a directory of CMAF tracks.
        media: PathBuf = required();
        /// Channel at the origin in the same file. Set either `channel` or `to`.
        channel: ChannelName = unset("`to` names the publishing point");
        /// Publishing point at another origin. Set either `channel` or `to`.
        to: Uri = unset("the origin in the same file");
        /// Ingest token of the other origin; @FILE reads the token from a file.
        token: IngestToken = unset("none");
    }
}
