//! Flag for an edge's admin address.

use std::net::SocketAddr;

/// Default address of an edge's admin interface.
pub const ADMIN_DEFAULT: &str = "127.0.0.1:8082";

/// Edge to query.
#[derive(Debug, clap::Args)]
pub struct EdgeAdmin {
    /// The edge's admin address
    #[arg(long, value_name = "ADDR:PORT", default_value = ADMIN_DEFAULT)]
    pub(crate) admin: SocketAddr,
}
