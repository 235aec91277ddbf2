//! A client's connection as a policy sees it.

use std::os::fd::AsFd;

use thalweg_policy::Connection;
use thalweg_policy::task::TcpInfo;
use thalweg_tcp::congestion;
use tokio::net::TcpStream;

/// The socket of a client's connection.
pub(super) struct ClientSocket<'a> {
    pub(super) stream: &'a TcpStream,
}

impl Connection for ClientSocket<'_> {
    fn congestion_algorithm(&self) -> Option<String> {
        congestion::get(self.stream.as_fd()).ok().map(|name| name.to_string())
    }

    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String> {
        let name = name.parse().map_err(|error| format!("{error}"))?;
        congestion::set(self.stream.as_fd(), name).map_err(|error| error.to_string())
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

    fn requests(&self) -> u64 {
        1
    }

    fn set_type_of_service(&mut self, _value: u8) -> Result<(), String> {
        Err(NONE.into())
    }
}

/// Where there is no client: on the backend's side, and while a policy is loaded.
pub(super) struct NoConnection;

const NONE: &str = "there is no client here";

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

    fn requests(&self) -> u64 {
        0
    }

    fn set_type_of_service(&mut self, _value: u8) -> Result<(), String> {
        Err(NONE.into())
    }
}
