//! Controller role, and the commands that query a running controller or create its tokens.

mod settings;
mod token;

use clap::Subcommand;
use thalweg_cli::controller::{self, ControllerArgs, ExplainArgs};
use thalweg_cli::simulate::SimulateFlags;
use thalweg_controller::{BindError, Config, Controller, Limits};

use crate::agent::cluster;
use crate::config::{self, Fault, Flags};

/// Subcommands of `thalweg controller`.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Try another congestion control on client networks, and keep it where a gain is shown
    #[command(after_help = "\
Example: two machines with edges and agents, and a third that decides for both
  thalweg controller run --listen 10.0.0.5:8083 --identities identities.toml
  thalweg agent --edge 127.0.0.1:8082 --pop fra1 --controller http://10.0.0.5:8083 \\
    --controller-token-file agent.token
  thalweg edge --backend http://origin:8081 --bundle 'http://10.0.0.5:8083/bundle?pop=fra1' \\
    --bundle-token-file edge.token

On an address other than loopback, the controller needs a file of identities. Create their tokens:
  thalweg controller token edge --pop fra1 --name edge-1 --token-file edge.token >> identities.toml

Decisions are made separately for each PoP, once per window (five minutes). To see them and their
reasons:
  thalweg controller status
  thalweg controller explain 203.0.113.7

To decide separately for some hosts, use a config file with [controller] and [[tenant]] sections:
  thalweg up --config FILE

Stops cleanly on SIGINT (Ctrl-C) and SIGTERM; the state is kept in the database.")]
    Run(Flags<config::Controller>),

    /// Show the measurements of a client network, and why it is or is not steered
    #[command(after_help = controller::EXPLAIN_HELP)]
    Explain(ExplainArgs),

    /// Create a token, and print the identity to add to the controller's identities file
    #[command(after_help = token::HELP)]
    Token(token::TokenArgs),

    /// List the sites of a running controller, with their edges
    Status(ControllerArgs),

    /// Simulate a day with known effects, and compare the controller with other policies
    #[command(after_help = "\
Examples:
  thalweg controller simulate                                  seconds
  thalweg controller simulate --pops 10 --prefixes 50000       minutes
  thalweg controller simulate --holdout-trial 0.1 --seed 2 --json

Assumptions and results: docs/explanation/control.md")]
    Simulate(SimulateFlags),
}

pub(crate) use token::create as create_token;

/// Opens the configured resources.
///
/// # Errors
///
/// Returns a fault located at the setting if its value is unusable.
pub(crate) fn bind(settings: &config::Controller, tenants: &[config::Tenant]) -> Result<Controller, Fault> {
    let kafka = settings
        .kafka
        .as_ref()
        .map(|brokers| cluster(&brokers.value, &settings.kafka_topic.value, settings.kafka_set.as_ref()));
    let config = Config {
        listen: settings.listen.value,
        tls: settings.tls()?,
        identities: settings.identities.as_ref().map(|path| path.value.clone()),
        limits: Limits {
            records_per_s_max: settings.agent_records_max.value,
            prefixes_max: settings.agent_networks_max.value,
        },
        kafka,
        database: settings.database.value.clone(),
        settings: settings.settings(tenants),
    };
    Controller::bind(&config).map_err(|failure| match (&failure, &settings.kafka_set, &settings.kafka) {
        (BindError::Listen(..) | BindError::Unprotected(_), ..) => settings.listen.unusable(failure),
        (BindError::Identities(_), ..) => match &settings.identities {
            Some(set) => set.unusable(failure),
            None => settings.listen.unusable(failure),
        },
        (BindError::Tls(_), ..) => match &settings.tls_certificate {
            Some(set) => set.unusable(failure),
            None => settings.listen.unusable(failure),
        },
        (BindError::Kafka(_), Some(set), _) => set.unusable(failure),
        (BindError::Kafka(_), None, Some(set)) => set.unusable(failure),
        (BindError::Kafka(_) | BindError::Store(_), ..) => settings.database.unusable(failure),
    })
}
