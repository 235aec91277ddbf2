//! A proxy between the edges and the controller that damages each bundle on its way, as a faulty
//! middlebox would.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use super::parts::{CONTROLLER, TUNED};

/// Address of the proxy.
pub(super) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8084);
const READ_BYTES_MAX: usize = 64 << 10;

/// Forwards connections until the future is dropped.
///
/// # Errors
///
/// Returns an error if the address is in use, or the listener fails.
pub(super) async fn forward() -> anyhow::Result<Infallible> {
    let listener = TcpListener::bind(ADDRESS).await.with_context(|| ADDRESS.to_string())?;
    loop {
        let (edge, _) = listener.accept().await.context("accepting an edge")?;
        // An edge retries a failed request.
        tokio::spawn(async move { connection(edge).await.ok() });
    }
}

async fn connection(mut edge: TcpStream) -> std::io::Result<()> {
    let mut controller = TcpStream::connect(CONTROLLER).await?;
    let (mut from_edge, mut to_edge) = edge.split();
    let (mut from_controller, mut to_controller) = controller.split();
    let damaged = async {
        let mut bytes = vec![0; READ_BYTES_MAX];
        loop {
            let length = from_controller.read(&mut bytes).await?;
            if length == 0 {
                return to_edge.shutdown().await;
            }
            damage(&mut bytes[..length]);
            to_edge.write_all(&bytes[..length]).await?;
        }
    };
    tokio::select! {
        sent = damaged => sent,
        requested = copy(&mut from_edge, &mut to_controller) => requested.map(drop),
    }
}

/// Changes the name of the algorithm, so that the bundle no longer matches its checksum.
fn damage(bytes: &mut [u8]) {
    let name = TUNED.tried.as_bytes();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(name.len()).position(|found| found == name) {
        from += at + name.len();
        bytes[from - 1] = b'_';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_changed() {
        let mut bytes = b"bbr, \"bbr\" and cubic".to_vec();
        damage(&mut bytes);
        assert_eq!(bytes, b"bb_, \"bb_\" and cubic");
    }
}
