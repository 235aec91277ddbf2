//! Placeholder for a missing client connection.

use thalweg_policy::Connection;
use thalweg_policy::task::{Delivered, TcpInfo};

/// Replaces the client connection on the backend side and in subroutines run outside any request.
pub(crate) struct NoConnection;

const NONE: &str = "no client connection here";

impl Connection for NoConnection {
    fn congestion_algorithm(&self) -> Option<String> {
        None
    }

    fn set_congestion_algorithm(&mut self, _name: &str) -> Result<(), String> {
        Err(NONE.into())
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn set_pace_bytes_per_s(&mut self, _pace: u64) -> Result<(), String> {
        Err(NONE.into())
    }

    fn set_cwnd(&mut self, _packets: u64) -> Result<(), String> {
        Err(NONE.into())
    }

    fn tcp_info(&self) -> Option<TcpInfo> {
        None
    }

    fn delivered(&self) -> Option<Delivered> {
        None
    }

    fn requests(&self) -> u64 {
        0
    }

    fn set_type_of_service(&mut self, _value: u8) -> Result<(), String> {
        Err(NONE.into())
    }
}
