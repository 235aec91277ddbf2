//! Telemetry over TLS with passwords, as an operator runs it: an agent writes to Kafka, a consumer
//! moves the records to ClickHouse, and a controller reads them, with passwords in files. A wrong
//! password and an untrusted certificate must each be reported by one clear error.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod program;

use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use thalweg_tests::services::{self, USER};

use program::tables::until_delivered;
use program::{Directory, Process, metrics, thalweg, until};

/// Message if the broker refuses the password.
const LOGIN_REFUSED: &str = "login refused (check sasl.username, sasl.password and sasl.mechanism)";
/// Message if the broker's certificate is not trusted.
const UNTRUSTED: &str = "TLS failed (check ssl.ca.location)";
/// Time within which every role tries again to connect to Kafka.
const RETRY: Duration = Duration::from_secs(12);

/// Returns the values of `kafka_set` for a user whose password is in a file.
fn properties(certificate: &str, password: &str) -> [String; 5] {
    [
        "security.protocol=SASL_SSL".to_owned(),
        "sasl.mechanism=SCRAM-SHA-512".to_owned(),
        format!("sasl.username={USER}"),
        format!("sasl.password=@{password}"),
        format!("ssl.ca.location={certificate}"),
    ]
}

/// Returns the output of a command that fails.
fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn records_pass_through_secure_services() {
    let (kafka, clickhouse) = (services::Kafka::start_secure(), services::ClickHouse::start_secure());
    let directory = Directory::new();
    let url = format!("@{}", directory.file("url", &clickhouse.url()));
    let secure = |command: &mut Command| {
        command.env("SSL_CERT_FILE", clickhouse.certificate());
    };
    let mut apply = thalweg();
    secure(apply.args(["schema", "apply", "--clickhouse", &url]));
    assert!(apply.status().unwrap().success());

    directory.file("password", &format!("{}\n", services::PASSWORD));
    let (brokers, certificate) = (kafka.secure_brokers(), kafka.certificate().display().to_string());
    let (_, port) = brokers.split_once(':').unwrap();
    let shared = format!("kafka = \"{brokers}\"\nkafka_set = {:?}", properties(&certificate, "password"));
    let file = directory.file(
        "thalweg.toml",
        &format!(
            "[agent]\nsockets = 'sport {port}'\nperiod = '1s'\nlisten = '127.0.0.1:0'\n{shared}\n\
             [consumer]\nclickhouse = '@url'\nblock_wait = '100ms'\n{shared}\n\
             [controller]\nlisten = '127.0.0.1:0'\n{shared}\n"
        ),
    );
    let mut up = thalweg();
    secure(up.args(["up", "--config", &file]).current_dir(&directory.0));
    let process = Process::start(&mut up);
    let controller = process.wait_for_log("controller listening").parse().unwrap();
    until_delivered("the controller has read records", || {
        let text = metrics(controller);
        let records = text.lines().find_map(|line| line.strip_prefix("thalweg_controller_records_total "));
        records.unwrap().parse::<u64>().unwrap() > 0
    });
    until("ClickHouse has records", || {
        let mut query = thalweg();
        secure(query.args(["query", "delivery_rate", "--since", "1h", "--json", "--clickhouse", &url]));
        let output = query.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        !output.stdout.is_empty()
    });
    process.stop();
}

#[test]
fn wrong_password_and_untrusted_certificate_are_reported_once() {
    let kafka = services::Kafka::start_secure();
    let directory = Directory::new();
    let wrong = directory.file("wrong", "wrong-password\n");
    let right = directory.file("right", services::PASSWORD);
    let own = kafka.certificate().display().to_string();
    let other = services::ClickHouse::start_secure();
    let foreign = other.certificate().display().to_string();
    let mut processes = Vec::new();
    for (name, certificate, password, expected) in
        [("login", &own, &wrong, LOGIN_REFUSED), ("tls", &foreign, &right, UNTRUSTED)]
    {
        let properties = properties(certificate, password).map(|one| format!("--kafka-set={one}"));
        let brokers = kafka.secure_brokers();
        let own_directory = directory.0.join(name);
        fs::create_dir(&own_directory).unwrap();
        let mut start = |arguments: &[&str]| {
            let mut command = thalweg();
            command.args(arguments).args(["--kafka", &brokers]).args(&properties);
            processes.push((Process::start(command.current_dir(&own_directory)), expected));
        };
        start(&["agent", "--period", "1s"]);
        start(&["consumer", "--clickhouse", "http://127.0.0.1:1"]);
        start(&["controller", "run", "--listen", "127.0.0.1:0"]);
    }
    for (process, expected) in &processes {
        process.wait_for_log(expected);
    }
    thread::sleep(RETRY); // the absence of a line is no event
    for (process, _) in processes {
        assert_eq!(process.last_lines_with(&["SSL", "SASL"]), Vec::<String>::new());
    }
}

#[test]
fn clickhouse_login_and_certificate_are_checked() {
    let clickhouse = services::ClickHouse::start_secure();
    let directory = Directory::new();
    let apply = |url: &str| {
        let mut command = thalweg();
        command.args(["schema", "apply", "--clickhouse", &format!("@{}", directory.file("url", url))]);
        command
    };
    let wrong = clickhouse.url().replace(services::PASSWORD, "wrong-password");
    let refused = failure(apply(&wrong).env("SSL_CERT_FILE", clickhouse.certificate()));
    assert!(refused.contains("Authentication failed") && refused.lines().count() == 1, "{refused}");
    let other = services::Kafka::start_secure();
    let untrusted = failure(apply(&clickhouse.url()).env("SSL_CERT_FILE", other.certificate()));
    assert!(untrusted.contains("certificate") && untrusted.lines().count() == 1, "{untrusted}");
    assert!(!refused.contains("wrong-password") && !untrusted.contains(services::PASSWORD));
}
