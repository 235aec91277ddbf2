//! Controller configuration and startup errors.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thalweg_control::Settings;
use thalweg_kafka::Cluster;
use thalweg_surface::KeyPair;

use crate::access::Limits;
use crate::store::StoreError;

/// Controller configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Listen address for agents, edges and operators.
    pub listen: SocketAddr,
    /// TLS settings. Without them, connections are not encrypted.
    pub tls: Option<Tls>,
    /// File that lists the identities that may use the controller. Without this file, `listen` must
    /// be a loopback address.
    pub identities: Option<PathBuf>,
    /// Limits that apply to each agent.
    pub limits: Limits,
    /// Kafka cluster from which records are read, in addition to those posted by agents.
    pub kafka: Option<Cluster>,
    /// SQLite file that stores the controller's state.
    pub database: PathBuf,
    /// Decision settings.
    pub settings: Settings,
}

/// Files for TLS. Changed files take effect for new connections.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The controller's certificate and key.
    pub pair: KeyPair,
    /// Certificate authorities for client certificates. If set, every client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

/// Failure to start a controller.
#[derive(Debug)]
pub enum BindError {
    /// The address cannot be bound.
    Listen(SocketAddr, io::Error),
    /// The address is reachable from other machines, but no identities file is configured.
    Unprotected(SocketAddr),
    /// The identities file is unusable.
    Identities(String),
    /// The files for TLS are unusable.
    Tls(String),
    /// The database cannot be used.
    Store(StoreError),
    /// Kafka cannot be used as configured.
    Kafka(thalweg_kafka::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(addr, cause) => write!(f, "cannot listen on {addr}: {cause}"),
            Self::Unprotected(addr) => write!(
                f,
                "{addr} is reachable from other machines, so anyone could steer: set identities, or use a loopback address"
            ),
            Self::Identities(fault) | Self::Tls(fault) => f.write_str(fault),
            Self::Store(error) => error.fmt(f),
            Self::Kafka(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kafka(error) => error.source(),
            Self::Listen(..) | Self::Unprotected(_) | Self::Identities(_) | Self::Tls(_) | Self::Store(_) => {
                None
            }
        }
    }
}
