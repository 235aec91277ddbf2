//! The controller: as a role, and what can be asked of a running one.

mod ask;
mod settings;

use std::net::SocketAddr;

use clap::Subcommand;
use thalweg_controller::{BindError, Config, Controller};

use crate::agent::{cluster, with_causes};
use crate::config::{self, Fault, Flags};
use crate::simulate::SimulateFlags;
pub(crate) use ask::{explain, status};

/// What is done with the controller.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Decide for whom another congestion control is tried, and keep it where that is shown to help
    #[command(after_help = "\
Example: two machines with edges and agents, and one that decides for both
  thalweg controller run --listen 10.0.0.5:8083
  thalweg agent --edge 127.0.0.1:8082 --pop fra1 --controller http://10.0.0.5:8083
  thalweg edge --backend http://origin:8081 --bundle 'http://10.0.0.5:8083/bundle?pop=fra1'

Decisions are made for each PoP by itself, every window (five minutes). What is decided, and why:
  thalweg controller status
  thalweg controller explain 203.0.113.7

Hosts that are decided for by themselves are [[tenant]] sections of a file: with
[controller] alone beside them, thalweg up --config FILE is a controller as well.

Stops cleanly on SIGINT (Ctrl-C) and SIGTERM; what it knows is in its database.")]
    Run(Flags<config::Controller>),

    /// Say of a client network what was seen, and why it is or is not steered
    #[command(after_help = "\
Examples:
  thalweg controller explain 203.0.113.0/24
  thalweg controller explain 2001:db8:7::1 --pop fra1 --json
  thalweg controller explain 203.0.113.7 --tenant video.example")]
    Explain {
        /// A network of clients (/24, /56), or an address in it
        #[arg(value_name = "PREFIX|ADDRESS")]
        prefix: String,
        /// The site; may be left out if there is one
        #[arg(long, value_name = "NAME")]
        pop: Option<String>,
        /// The tenant, by any of its hosts; without it, hosts that no tenant has
        #[arg(long, value_name = "HOST")]
        tenant: Option<String>,
        /// The controller's address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8083")]
        controller: SocketAddr,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// List the sites that a running controller decides for, with their edges
    Status {
        /// The controller's address
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8083")]
        controller: SocketAddr,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// A synthetic day whose truth is known: what the decision finds of it, beside other ways to decide
    #[command(after_help = "\
Examples:
  thalweg controller simulate                                  seconds
  thalweg controller simulate --pops 10 --prefixes 50000       minutes
  thalweg controller simulate --holdout-trial 0.1 --seed 2 --json

What is assumed of networks, and what was seen: docs/control.md")]
    Simulate(SimulateFlags),
}

/// Opens what the settings name.
///
/// # Errors
/// The setting whose value cannot be used.
pub(crate) fn bind(settings: &config::Controller, tenants: &[config::Tenant]) -> Result<Controller, Fault> {
    let of_topic = |topic| {
        let brokers = settings.kafka.as_ref()?;
        Some(cluster(&brokers.value, topic, settings.kafka_set.as_ref()))
    };
    let kafka = of_topic(&settings.kafka_topic.value);
    let kafka_bundles = settings.kafka_bundles.as_ref().and_then(|topic| of_topic(&topic.value));
    let config = Config {
        listen: settings.listen.value,
        kafka,
        kafka_bundles,
        database: settings.database.value.clone(),
        settings: settings.settings(tenants),
    };
    Controller::bind(&config).map_err(|failure| {
        let message = with_causes(&failure);
        match (&failure, &settings.kafka_set, &settings.kafka) {
            (BindError::Listen(..), ..) => settings.listen.fault(message),
            (BindError::Kafka(_), Some(set), _) => set.fault(message),
            (BindError::Kafka(_), None, Some(set)) => set.fault(message),
            (BindError::Kafka(_) | BindError::Store(_), ..) => settings.database.fault(message),
        }
    })
}
