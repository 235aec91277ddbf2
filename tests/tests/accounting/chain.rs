//! The complete chain under load: an edge, an agent with its spool, Kafka, a consumer and
//! ClickHouse are each killed and restarted, some while others are down. Every response started by
//! the edge must be stored in ClickHouse once or be counted there as lost.
//!
//! `SEED=n` changes the order and the times of the kills.

use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema;
use thalweg_tests::services;

use super::edges::{REQUESTS_IN_QUIET, Seen, backend, started_responses};
use super::program::Port;
use super::program::tables::{number, until_delivered};
use super::program::topic;
use super::*;

const GROUP: &str = "thalweg-clickhouse";
/// Makes a Kafka client notice quickly that a broker is available again.
const RECONNECTING: [&str; 2] = ["--kafka-set", "reconnect.backoff.max.ms=500"];
/// Makes a group notice quickly that a member was killed.
const MISSED_SOON: [&str; 4] =
    ["--kafka-set", "session.timeout.ms=3000", "--kafka-set", "heartbeat.interval.ms=500"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Edge,
    Agent,
    Kafka,
    Consumer,
    ClickHouse,
}

/// Parts to kill. Kafka and ClickHouse are killed less often, because they take long to restart.
const KILLS: [Part; 8] = [
    Part::Edge,
    Part::Edge,
    Part::Agent,
    Part::Agent,
    Part::Consumer,
    Part::Consumer,
    Part::Kafka,
    Part::ClickHouse,
];

/// Returns the parts to kill, in random order.
fn shuffled(random: &mut Random) -> [Part; KILLS.len()] {
    let mut parts = KILLS;
    for last in (1..parts.len()).rev() {
        parts.swap(last, random.next() as usize % (last + 1));
    }
    parts
}

/// All parts of the chain.
struct Chain {
    edge: Process,
    address: SocketAddr,
    agent: Process,
    kafka: services::Kafka,
    consumer: Process,
    clickhouse: services::ClickHouse,
    server: Server,
    backend: String,
    admin: Port,
    directory: Directory,
}

impl Chain {
    fn start() -> Self {
        let (kafka, clickhouse) = (services::Kafka::start(), services::ClickHouse::start());
        let server = Server::at(&clickhouse.url()).unwrap();
        schema::apply(&server).unwrap();
        let (directory, admin, backend) = (Directory::new(), Port::new(), format!("http://{}", backend()));
        let (edge, address) = edge_before(&backend, admin.address(), &directory.0);
        let agent = chained_agent(&kafka, admin.address(), &directory.0);
        let consumer = consumer(&kafka, &clickhouse);
        Self { edge, address, agent, kafka, consumer, clickhouse, server, backend, admin, directory }
    }

    fn kill(&mut self, part: Part) {
        match part {
            Part::Edge => self.edge.kill(),
            Part::Agent => self.agent.kill(),
            Part::Kafka => self.kafka.kill(),
            Part::Consumer => self.consumer.kill(),
            Part::ClickHouse => self.clickhouse.kill(),
        }
    }

    fn restart(&mut self, part: Part) {
        let (admin, directory) = (self.admin.address(), &self.directory.0);
        match part {
            Part::Edge => (self.edge, self.address) = edge_before(&self.backend, admin, directory),
            Part::Agent => self.agent = chained_agent(&self.kafka, admin, directory),
            Part::Kafka => self.kafka.restart(),
            Part::Consumer => self.consumer = consumer(&self.kafka, &self.clickhouse),
            Part::ClickHouse => self.clickhouse.restart(),
        }
    }

    fn state(&self) -> std::path::PathBuf {
        self.directory.0.join("edge")
    }

    fn number(&self, of: &str) -> u64 {
        number(&self.server, &format!("SELECT {of}"))
    }

    /// Waits until every started response is stored or counted as lost.
    fn wait_for_all(&self) {
        let counted = || self.number("(SELECT count() FROM responses) + (SELECT sum(records) FROM losses)");
        until_delivered("all responses are accounted for", || counted() >= started_responses(&self.state()));
    }
}

/// Starts an agent that follows the edge and sends only its responses to Kafka.
fn chained_agent(kafka: &services::Kafka, edge: SocketAddr, directory: &Path) -> Process {
    let spool = format!("{}=64MiB", directory.join("spool").display());
    let brokers = kafka.brokers();
    let own = ["--spool", &spool, "--kafka", &brokers, "--kafka-partitions", "4"];
    agent(edge, directory, &[&NO_SOCKETS[..], &own, &RECONNECTING].concat()).0
}

fn consumer(kafka: &services::Kafka, clickhouse: &services::ClickHouse) -> Process {
    let mut command = thalweg();
    command.args(["consumer", "--kafka", &kafka.brokers(), "--clickhouse", &clickhouse.url()]);
    Process::start(command.args(["--block-wait", "100ms"]).args(RECONNECTING).args(MISSED_SOON))
}

#[test]
fn started_responses_reach_clickhouse_once_or_are_counted() {
    let seed = std::env::var("SEED").map_or(SEED, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut random = Random(seed);
    let (mut chain, seen) = (Chain::start(), Seen::default());
    chain.agent.wait_for_log(FOLLOWING);
    // Responses before the first one in the agent's spool are not accounted for, so wait until the
    // spool contains a response.
    seen.send_quiet_requests(chain.address);
    chain.wait_for_all();

    let mut away = Vec::new();
    for (life, victims) in shuffled(&mut random).split(|part| *part == Part::Edge).enumerate() {
        seen.under_load(chain.address, life as u64, || {
            for &victim in victims {
                seen.until_more(&mut random);
                if away.contains(&victim) {
                    away.drain(..).for_each(|part| chain.restart(part));
                }
                println!("{victim:?} after {} responses, {away:?} away", seen.complete.load(SeqCst));
                chain.kill(victim);
                away.push(victim);
                // Half of the time, the parts stay down until the next kill.
                if random.next().is_multiple_of(2) {
                    seen.until_more(&mut random);
                    away.drain(..).for_each(|part| chain.restart(part));
                }
            }
            seen.until_more(&mut random);
            println!("Edge after {} responses, {away:?} away", seen.complete.load(SeqCst));
            chain.kill(Part::Edge);
        });
        chain.restart(Part::Edge);
    }
    away.into_iter().for_each(|part| chain.restart(part));
    chain.wait_for_all();
    seen.send_quiet_requests(chain.address);
    chain.wait_for_all();
    let started = started_responses(&chain.state());
    chain.kill(Part::Agent);
    until_delivered("the topic is read to its end", || {
        topic::is_read(&chain.kafka.brokers(), thalweg_kafka::DEFAULT_TOPIC, GROUP)
    });

    let [kept, lost] = ["count() FROM responses", "sum(records) FROM losses"].map(|of| chain.number(of));
    println!("{started} started, {kept} stored, {lost} lost");
    assert_eq!(kept + lost, started, "started = stored + counted losses");
    let (complete, cut) = (seen.complete.load(SeqCst), seen.cut.load(SeqCst));
    assert!((complete..=complete + cut).contains(&started), "{complete} {cut} {started}");
    assert!(kept >= 2 * REQUESTS_IN_QUIET);
    assert_eq!(chain.number("count() FROM losses WHERE stage NOT IN ('edge', 'follow')"), 0);
    assert_eq!(chain.number("uniqExact(path) FROM responses"), kept, "no response may appear twice");
    assert_eq!(chain.number("sum(responses) FROM responses_5m"), kept);
    // Each number assigned by the spool must appear once.
    let all = "(SELECT epoch, number FROM responses UNION ALL SELECT epoch, number FROM losses)";
    let rows = chain.number(&format!("count() FROM {all}"));
    for of in ["uniqExact(number)", "max(number) + 1"] {
        assert_eq!(chain.number(&format!("{of} FROM {all}")), rows, "{of}");
    }
    assert_eq!(chain.number("uniqExact(epoch) FROM responses"), 1);
    assert_eq!(chain.number("count() FROM refused"), 0);
}
