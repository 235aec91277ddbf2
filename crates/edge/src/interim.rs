//! Interim responses (RFC 9110 §15.2), 103 Early Hints among them: from the fetch to the client that caused it, while
//! that client waits for the head. Who joins a fetch does not get them, nor who speaks HTTP/1.0.

use std::net::IpAddr;
use std::sync::Arc;

use thalweg_cache::{Failure, Fill, Head, Reader};
use thalweg_http::{ResponseHead, Version, write};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::fetch;
use crate::hops::via;
use crate::send::Sender;
use crate::worker::Worker;

/// Interim responses to one request. With more the backend's response counts as malformed.
pub(crate) const INTERIM_MAX: usize = 8;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) ip: IpAddr,
    pub(crate) stream: &'a TcpStream,
}

impl Asker<'_> {
    /// Sends an interim response. One that could not be sent whole is the last thing on its connection: what came after
    /// it would be read as part of it.
    pub(crate) async fn tell(&self, worker: &Worker, interim: &[u8]) {
        if Sender::new(self.stream, worker.timeouts().send_stall).bytes(interim, false).await.is_err() {
            let _ = socket2::SockRef::from(self.stream).shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Starts a fetch, at once, and waits for its head; what comes before goes to the client.
///
/// Not an `async fn`: its future would have room for fill and request, in every idle connection.
pub(crate) fn head_of<'a>(
    worker: &'a Arc<Worker>,
    fill: Fill,
    mut request: fetch::Request,
    content: &'a mut Reader<Arc<Head>>,
    asker: Asker<'a>,
) -> impl Future<Output = Result<Arc<Head>, Failure>> + Send + 'a {
    let (tell, mut told) = mpsc::channel(INTERIM_MAX);
    request.interim = (request.head.version == Version::Http11).then_some(tell);
    worker.spawn(fetch::run(worker.clone(), fill, request, asker.ip));
    async move {
        loop {
            tokio::select! {
                biased;
                Some(interim) = told.recv() => Box::pin(pass_on(worker, interim, asker)).await,
                head = content.head() => return head,
            }
        }
    }
}

async fn pass_on(worker: &Worker, mut interim: ResponseHead, asker: Asker<'_>) {
    interim.fields.remove_hop_by_hop();
    interim.fields.remove("content-length");
    interim.fields.push("Via", via(interim.version));
    let mut out = Vec::new();
    write::write_response_head(&mut out, interim.status, &interim.fields);
    asker.tell(worker, &out).await;
}
