//! Every setting there is: name, type, default, bounds and meaning, each declared here once.
//!
//! `thalweg check --settings` prints this file as a table; `thalweg edge` and `thalweg origin` have a flag
//! for each setting of their section.

use std::net::SocketAddr;
use std::path::PathBuf;

use thalweg_edge::{BackendUrl, BundleSource};

use super::agent_value::{Broker, ClickHouseUrl, KafkaProperty, Namespace, SocketFilter};
use super::controller_value::{ClientNetwork, ControllerUrl, Part, RankedBy, TriedControl};
use super::declare::section;
use super::edge_value::{
    Abandoned, Congestion, DiskTier, HostName, LogTarget, PurgeFrom, SlowStart, StateDirectory,
};
use super::value::{ChannelName, Count, IngestUrl, PublicUrl, Switch};
use thalweg_record::units::{Size, Span};

section! {
    /// The delivery node: an HTTP cache that relays a response to everyone while it is still arriving.
    "edge" Edge {
        /// Where clients connect. Port 0 picks a free one.
        listen: SocketAddr = default("0.0.0.0:8080");
        /// Where responses come from, in turn.
        backends: Vec<BackendUrl> = unset("the origin of the same file");
        /// The hosts that are served; requests for others are answered with 421.
        hosts: Vec<HostName> = unset("any host");
        /// The policy that requests run through: a file of VCL, with what it includes beside it. It can declare backends
        /// of its own.
        policy: PathBuf = unset("the caching rules alone");
        /// MaxMind databases (City or Country, ASN), for client.geo and client.as of policies. A file that has changed is
        /// read again when a policy is loaded.
        geoip: Vec<PathBuf> = unset("client.geo and client.as are not known");
        /// Memory for stored content.
        memory: Size = default("1GiB"), within("16MiB", "16TiB");
        /// Files for stored content that outlive the process, in a directory that no other process uses, and how much
        /// they may take.
        disk: DiskTier = unset("memory alone");
        /// What the edge has to know after a kill: how many responses it had begun, so that an agent can count those it was not
        /// told of, and its last good bundle. A directory for this edge alone; without it the edge serves as well.
        state: StateDirectory = default("thalweg-edge");
        /// For how long a stale response is served while it is refreshed behind, unless it forbids that or has a
        /// stale-while-revalidate of its own.
        grace: Span = default("0s"), within("0s", "720h");
        /// For how long a stale response is served when no backend answers or one answers 500, 502, 503 or 504, unless
        /// it forbids that or has a stale-if-error of its own. A policy's own vcl_backend_error goes before it.
        stale_if_error: Span = default("0s"), within("0s", "720h");
        /// A response that does not say how long it is fresh is so for this part of the time since it was last
        /// modified, in percent.
        heuristic_percent: Count = default("10"), within("0", "100");
        /// And for no longer than this.
        heuristic_max: Span = default("24h"), within("0s", "8760h");
        /// How long a 404 or 410 is fresh that does not say it.
        negative: Span = default("1s"), within("0s", "24h");
        /// The longest that any answer with a status of 400 and above is fresh, whatever it says.
        negative_max: Span = default("1min"), within("0s", "720h");
        /// Whether Surrogate-Control is read, before Cache-Control. CDN-Cache-Control is read in any case, before both.
        surrogate_control: Switch = default("off");
        /// Whether Cache-Control of requests is followed, with which clients can ask past the cache.
        request_directives: Switch = default("on");
        /// Content that is too large for a quarter of the memory, or that is asked for this far from what has come, is
        /// fetched and stored in slices of this size, if the backend gives it an ETag and serves ranges. 0B: never.
        slice: Size = default("4MiB"), within("0B", "64MiB");
        /// What becomes of a response that nobody reads any more while it arrives: "finish" fetches all of it, "half" only
        /// if half of it has come or little is missing, "cancel" ends the fetch.
        abandoned_fills: Abandoned = default("half");
        /// Threads, each with a runtime and a listener of its own.
        threads: Count = unset("one for each core"), within("1", "1024");
        /// The congestion control of client connections; "system" leaves the kernel's choice.
        congestion_control: Congestion = default("system");
        /// The response from which on a steering rule or an experiment changes the congestion control, or once so much has
        /// been sent on a connection: most connections of players carry a playlist and go. The policy acts at once.
        steering_size_min: Size = default("100kB"), within("0B", "1GiB");
        /// The bundle of steering rules and experiments: a JSON file that may come later, and that another may replace at
        /// any time; it is looked at once a second. Or a server's URL, which is asked again and again, and is told which edge
        /// asks, by the machine's name unless the query has an edge=NAME. The last good one is kept in the state directory.
        bundle: BundleSource = unset("the controller of the same file; without one no rules and no experiments");
        /// How much may wait unsent in the kernel for each client. With little, a pace or congestion control that is set
        /// soon takes effect and a seek leaves little behind that is sent in vain; with very little, each thread is woken
        /// more often. 128KiB is a good start. Without it duration and goodput of the log are those of what the kernel
        /// took, small content at once; with it nearly those of the wire.
        tcp_notsent_lowat: Size = unset("the kernel's: net.ipv4.tcp_notsent_lowat"), within("4KiB", "1GiB");
        /// "off" keeps the congestion window over a pause: segments come with pauses, and each would begin again from the
        /// initial window, but for BBR. It is a setting of the kernel for the whole network namespace; where it cannot be
        /// written, a warning says so. "keep" leaves it as it is.
        tcp_slow_start_after_idle: SlowStart = default("keep");
        /// The clients that may send PURGE.
        purge_from: Vec<PurgeFrom> = unset("this machine: 127.0.0.0/8 and ::1/128");
        /// Where the records of responses can be followed, and URLs and tags purged. Keep it on loopback.
        admin: SocketAddr = default("127.0.0.1:8082");
        /// The request log, one JSON line for each response.
        log: LogTarget = default("off");
        /// Client connections at a time; more are closed as they come. Each is an open file, and so is each
        /// to a backend.
        connections_max: Count = default("16000"), within("1", "10000000");
        /// Connections in use to all backends, by each thread; more fetches wait for one as long as connecting
        /// may take, then fail.
        backend_connections_max: Count = default("1000"), within("1", "1000000");
        /// The longest head of a request or a response.
        head_max: Size = default("32KiB"), within("1KiB", "1MiB");
        /// The longest wait for a connection to a backend.
        connect_timeout: Span = default("2s"), within("1ms", "1h");
        /// The longest wait for a backend's head, once the request is sent.
        first_byte_timeout: Span = default("15s"), within("1ms", "1h");
        /// The longest pause inside a backend's response.
        between_bytes_timeout: Span = default("15s"), within("1ms", "1h");
        /// How long a client connection is kept without a request.
        idle_timeout: Span = default("75s"), within("1ms", "24h");
        /// How long a client may take from the first byte of a request's head to its last.
        head_timeout: Span = default("10s"), within("1ms", "1h");
        /// How long a client may take nothing of a response that is ready for it, or send nothing of the content of its
        /// request.
        send_timeout: Span = default("60s"), within("1ms", "24h");
    }
}

section! {
    /// The packager: HLS and DASH, just in time, from CMAF files and from live ingest.
    "origin" Origin {
        /// Where edges and ingest sources connect. Port 0 picks a free one.
        listen: SocketAddr = default("127.0.0.1:8081");
        /// The directory of presentations: each directory in it is served as /vod/NAME/.
        media: PathBuf = unset("live channels only");
        /// How much of a live channel can be played back.
        window: Span = default("60s"), within("4s", "24h");
        /// The least duration of a segment, live and in files without a segment index; random access points
        /// may make segments longer.
        segment_target: Span = default("2s"), within("200ms", "30s");
        /// How long it may take until a changed file is noticed.
        listing_max_age: Span = default("1s"), within("0ms", "1h");
        /// Memory for the windows of all live channels.
        live_memory: Size = default("512MiB"), within("16MiB", "16TiB");
        /// Live channels; a source of one more is refused.
        channels_max: Count = default("64"), within("1", "100000");
        /// Connections at a time; more wait to be accepted.
        connections_max: Count = default("4096"), within("1", "10000000");
        /// The longest head of a request.
        head_max: Size = default("16KiB"), within("1KiB", "1MiB");
    }
}

section! {
    /// The web console: players, and the records of the edge in the same file as they happen.
    "console" Console {
        /// Where browsers connect. Port 0 picks a free one.
        listen: SocketAddr = default("127.0.0.1:8000");
        /// The edge's address as browsers reach it, if a proxy or a port mapping is between.
        edge: PublicUrl = unset("the console's host name with the edge's port");
    }
}

section! {
    /// The agent: samples of every TCP socket of the machine, whatever server has it, and the responses of edges. They are kept
    /// in SQLite, or go to Kafka, to ClickHouse or to files; what cannot be kept now waits in the spool.
    "agent" Agent {
        /// The machine's name in records.
        host: ChannelName = unset("the system's host name");
        /// The site's name in records.
        pop: ChannelName = unset("no name");
        /// Between dumps of all sockets. Machines of different names dump at different moments.
        period: Span = default("10s"), within("100ms", "1h");
        /// The sockets that are wanted, in the words of `thalweg sockets`.
        sockets: SocketFilter = unset("every connection");
        /// Of these one in so many, each for all of its life.
        sample: Count = default("1"), within("1", "1000000");
        /// Network namespaces to look into, by the name that `ip netns` has or by a file.
        namespaces: Vec<Namespace> = unset("the process's own");
        /// Admin addresses of edges whose responses are recorded.
        edges: Vec<SocketAddr> = unset("the edge of the same file");
        /// MaxMind databases (City or Country, ASN): they say region and autonomous system of clients.
        geoip: Vec<PathBuf> = unset("regions and autonomous systems are not known");
        /// A CSV of networks, "prefix,asn,region" on each line; it goes before the databases.
        networks: PathBuf = unset("the databases alone");
        /// Where records wait until every sink has them, and how much may wait. What is above is lost, the oldest first,
        /// and counted.
        spool: DiskTier = default("thalweg-spool=1GiB");
        /// A SQLite database for records and aggregates.
        sqlite: PathBuf = unset("thalweg-telemetry.sqlite beside the spool, if no other sink is named");
        /// How long records stay in SQLite.
        keep: Span = default("2h"), within("1min", "8760h");
        /// How long aggregates of five minutes stay there.
        keep_aggregates: Span = default("840h"), within("1h", "87600h");
        /// How large the database may grow; beyond it the oldest records go before their time.
        sqlite_max: Size = default("4GiB"), within("16MiB", "16TiB");
        /// A directory for files of JSON lines, one record on each, for log shippers. A file ends at 256 MiB or after an hour.
        json: PathBuf = unset("no such files");
        /// How much those files may take together; beyond it the oldest go. A file ends at a quarter of it, if that is less.
        json_max: Size = unset("no bound"), within("64MiB", "1024TiB");
        /// A directory for Parquet files, each written whole, of 50,000 rows or of a minute.
        parquet: PathBuf = unset("no such files");
        /// How much those files may take together; beyond it the oldest go.
        parquet_max: Size = unset("no bound"), within("64MiB", "1024TiB");
        /// Kafka's brokers to begin with: records go to a topic there, by client network.
        kafka: Vec<Broker> = unset("not to Kafka");
        /// The topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// Partitions of the topic, which is made if it is not there; 0: it is not made.
        kafka_partitions: Count = default("12"), within("0", "10000");
        /// Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
        /// a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// The compacted topic over which bundles for the edges of this machine come; the controller makes it.
        kafka_bundles: ChannelName = unset("bundles come another way");
        /// The file into which they go, which the edges' `bundle` names.
        bundle_file: PathBuf = unset("no such file");
        /// A ClickHouse database that has the tables (`thalweg schema apply`), or @FILE, a file that has this URL: records go
        /// there without Kafka between.
        clickhouse: ClickHouseUrl = unset("not to ClickHouse");
        /// A controller, which decides on what it is told. What is to be kept needs another sink.
        controller: ControllerUrl = unset("the controller of the same file");
        /// Where Prometheus reads the agent's own figures, at /metrics.
        listen: SocketAddr = unset("nowhere");
    }
}

section! {
    /// The consumer: what agents wrote to Kafka goes into ClickHouse, each record once. As many of them as the topic has
    /// partitions share the work.
    "consumer" Consumer {
        /// Kafka's brokers to begin with.
        kafka: Vec<Broker> = required();
        /// The topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
        /// a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// How long the topic may be missing at the start before that is a failure.
        topic_wait: Span = default("1min"), within("0s", "24h");
        /// The group whose members share the partitions.
        group: ChannelName = default("thalweg-clickhouse");
        /// The ClickHouse database that has the tables (`thalweg schema apply`), or @FILE, a file that has this URL.
        clickhouse: ClickHouseUrl = required();
        /// A block of a partition is inserted when it has so many rows.
        block_rows: Count = default("200000"), within("1", "1000000");
        /// Or when its first message has waited so long.
        block_wait: Span = default("1s"), within("0s", "1h");
        /// Where Prometheus reads the consumer's own figures, at /metrics.
        listen: SocketAddr = unset("nowhere");
    }
}

section! {
    /// The controller: finds client networks that may gain by another congestion control, tries it there on some connections, and
    /// keeps it where that is shown to help. Edges ask it for their bundle.
    "controller" Controller {
        /// Where agents bring records, and edges ask for their bundle. Keep it within your network.
        listen: SocketAddr = default("127.0.0.1:8083");
        /// Kafka's brokers to begin with: records that agents write to a topic there are read, too.
        kafka: Vec<Broker> = unset("agents bring their records");
        /// The topic.
        kafka_topic: ChannelName = default("thalweg.telemetry");
        /// Properties of librdkafka, such as "sasl.mechanism=PLAIN"; "sasl.password=@FILE" takes the value from
        /// a file.
        kafka_set: Vec<KafkaProperty> = unset("none");
        /// A compacted topic over which bundles go to agents, beside HTTP; it is made if it is not there.
        kafka_bundles: ChannelName = unset("edges ask for their bundle");
        /// The SQLite file in which it keeps what it knows, every round, and its bundles.
        database: PathBuf = default("thalweg-control.sqlite");
        /// Decisions are made for windows of this length.
        window: Span = default("5min"), within("1s", "24h");
        /// For how long after its end a window takes records.
        late: Span = default("1min"), within("0s", "24h");
        /// By what networks are ranked: the kernel's delivery rate samples, or the goodput of responses.
        measure: RankedBy = default("delivery_rate");
        /// The least response that tells of goodput, and from which on a rule is due.
        goodput_min: Size = default("100kB"), within("0B", "1GiB");
        /// Whether responses that the backend was still sending tell of goodput as well.
        counts_relayed: Switch = default("off");
        /// Hosts that opt out: their connections decide nothing, and no rule is due for their responses.
        hosts_left_alone: Vec<HostName> = unset("none");
        /// Whether each host that no [[tenant]] has is one by itself: its own responses alone decide for it. Give the edges their
        /// hosts then.
        by_tenant: Switch = default("off");
        /// Connections that tell, in a window, before a network is ranked.
        connections_min: Count = default("3"), within("1", "1000000");
        /// The share of ranked networks that is the bottom group.
        bottom_share: Part = default("0.2");
        /// Windows of history.
        history_windows: Count = default("72"), within("1", "128");
        /// Windows in which a network was ranked, before anything is said of it.
        observed_windows_min: Count = default("12"), within("1", "128");
        /// A network enters with at least this share of its windows in the bottom group.
        duty_enter: Part = default("0.6");
        /// And leaves, as long as nothing is shown of it, with at most this one.
        duty_leave: Part = default("0.3");
        /// It enters with at most so many changes of group a window.
        flap_max: Part = default("0.25");
        /// Networks with shorter round trips are left alone.
        min_rtt_min: Span = default("10ms"), within("0ms", "10s");
        /// Networks that are left alone.
        left_alone: Vec<ClientNetwork> = unset("none");
        /// What is tried, as the kernel names it.
        congestion_control: TriedControl = default("bbr");
        /// Networks of a PoP that are steered at once.
        steered_max: Count = default("500"), within("0", "10000");
        /// Networks that enter in a round.
        entering_max: Count = default("20"), within("0", "10000");
        /// Networks that enter and leave in a round; what leaves for safety comes on top.
        changes_max: Count = default("50"), within("0", "10000");
        /// Networks on trial that are not slow, to find out, at once.
        explored_max: Count = default("100"), within("0", "10000");
        /// Of those, the most that enter in a round.
        exploring_max: Count = default("5"), within("0", "10000");
        /// The share of connections held out while nothing is shown; 0: no proof, the rule of duty cycles alone.
        holdout_trial: Part = default("0.5");
        /// The share of connections held out where it is shown to help.
        holdout: Part = default("0.1");
        /// Of all networks that are ever told to be helped, the share for which that is false.
        false_discovery_share: Part = default("0.05");
        /// The chance of each trial to be told harmful without being so.
        false_harm_share: Part = default("0.05");
        /// Connections of each arm before anything is said.
        evidence_connections_min: Count = default("30"), within("2", "1000000");
        /// The least effect on log goodput that is worth a rule.
        effect_min: Part = default("0.05");
        /// Windows after which a trial that shows nothing ends.
        trial_windows_max: Count = default("72"), within("1", "1000000");
        /// Windows after which what was shown has to be shown again.
        proof_windows_max: Count = default("576"), within("1", "1000000");
        /// The probability of a worthwhile effect, by what all networks show together, with which one stays after its trial.
        pooled_keep: Part = default("0.9");
        /// The rise of the share of bytes sent again that ends a trial.
        retransmitted_rise_max: Part = default("0.05");
        /// The same over all trials together, which ends all of them.
        guardrail_rise_max: Part = default("0.03");
        /// Windows in which none enters after that.
        guardrail_pause_windows: Count = default("12"), within("0", "1000000");
        /// Windows in which what has left may not enter.
        cool_off_windows: Count = default("288"), within("1", "1000000");
        /// The share of edges that get a bundle before all others, one at least.
        canary_share: Part = default("0.1");
        /// Windows for which these are watched.
        canary_windows: Count = default("1"), within("1", "128");
        /// Windows after which all get it though too few connections told.
        canary_windows_max: Count = default("3"), within("1", "128");
        /// For how long an edge's acknowledgement is waited for.
        acknowledge_max: Span = default("2min"), within("1s", "24h");
        /// The rise of the share of responses that fail from which on a bundle is rolled back.
        canary_failed_rise_max: Part = default("0.02");
        /// Likewise of the share of bytes sent again.
        canary_retransmitted_rise_max: Part = default("0.02");
        /// Likewise the drop of log goodput.
        canary_goodput_drop_max: Part = default("0.2");
    }
}

section! {
    /// Hosts that the controller decides for by themselves: only their responses tell of them, and their rules are for them
    /// alone. What is not set is as in [controller].
    "tenant" Tenant {
        /// The hosts. The first is the tenant's name: with another name it begins anew.
        hosts: Vec<HostName> = required();
        /// By what its networks are ranked.
        measure: RankedBy = unset("that of [controller]");
        /// The least response that tells of goodput, and from which on a rule is due.
        goodput_min: Size = unset("that of [controller]"), within("0B", "1GiB");
        /// Whether responses that the backend was still sending tell of goodput as well.
        counts_relayed: Switch = unset("that of [controller]");
        /// Connections that tell, in a window, before a network is ranked.
        connections_min: Count = unset("that of [controller]"), within("1", "1000000");
        /// The share of ranked networks that is the bottom group.
        bottom_share: Part = unset("that of [controller]");
        /// A network enters with at least this share of its windows in the bottom group.
        duty_enter: Part = unset("that of [controller]");
        /// And leaves, as long as nothing is shown of it, with at most this one.
        duty_leave: Part = unset("that of [controller]");
        /// It enters with at most so many changes of group a window.
        flap_max: Part = unset("that of [controller]");
        /// Networks with shorter round trips are left alone.
        min_rtt_min: Span = unset("that of [controller]"), within("0ms", "10s");
        /// Networks that are left alone.
        left_alone: Vec<ClientNetwork> = unset("that of [controller]");
        /// What is tried, as the kernel names it.
        congestion_control: TriedControl = unset("that of [controller]");
        /// Networks of a PoP that are steered at once, of those that all may have.
        steered_max: Count = unset("that of [controller]"), within("0", "10000");
        /// Networks that enter in a round, of those that all may.
        entering_max: Count = unset("that of [controller]"), within("0", "10000");
        /// Networks on trial that are not slow, at once.
        explored_max: Count = unset("that of [controller]"), within("0", "10000");
        /// Of those, the most that enter in a round.
        exploring_max: Count = unset("that of [controller]"), within("0", "10000");
        /// The share of connections held out while nothing is shown.
        holdout_trial: Part = unset("that of [controller]");
        /// The share of connections held out where it is shown to help.
        holdout: Part = unset("that of [controller]");
        /// Connections of each arm before anything is said.
        evidence_connections_min: Count = unset("that of [controller]"), within("2", "1000000");
        /// The least effect on log goodput that is worth a rule.
        effect_min: Part = unset("that of [controller]");
        /// Windows after which a trial that shows nothing ends.
        trial_windows_max: Count = unset("that of [controller]"), within("1", "1000000");
        /// The rise of the share of bytes sent again that ends a trial.
        retransmitted_rise_max: Part = unset("that of [controller]");
        /// The same over all of its trials together, which ends all of them.
        guardrail_rise_max: Part = unset("that of [controller]");
        /// Windows in which what has left may not enter.
        cool_off_windows: Count = unset("that of [controller]"), within("1", "1000000");
    }
}

section! {
    /// A live source for demonstrations and tests: it pushes a presentation in a loop, in real time.
    "source" Source {
        /// The presentation: a directory of CMAF tracks.
        media: PathBuf = required();
        /// The channel, at the origin of the same file. Give this or `to`.
        channel: ChannelName = unset("`to` says where to push");
        /// The publishing point of another origin. Give this or `channel`.
        to: IngestUrl = unset("the origin of the same file");
    }
}
