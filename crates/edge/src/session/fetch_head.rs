//! Start of a fetch whose response head the session awaits. Interim responses (RFC 9110 §15.2) such
//! as 103 Early Hints are sent only to the client that caused the fetch, not to requests that join
//! it.

use std::sync::Arc;

use thalweg_cache::{Failure, Fill, Head, Reader};
use thalweg_http::ResponseHead;
use tokio::sync::mpsc;

use super::Session;
use crate::fetch::{self, INTERIM_MAX};
use crate::hops::via;
use crate::transport::Outgoing;

/// A fetch in progress whose response head the session awaits.
pub(super) struct Started {
    pub(super) content: Reader<Arc<Head>>,
    interim: mpsc::Receiver<ResponseHead>,
}

impl<O: Outgoing> Session<'_, O> {
    /// Starts a fetch that can outlive this session.
    pub(super) fn start(
        &self,
        fill: Fill,
        mut request: fetch::Request,
        content: Reader<Arc<Head>>,
    ) -> Started {
        let (sender, interim) = mpsc::channel(INTERIM_MAX);
        request.interim = Some(sender);
        self.worker.spawn(fetch::run(self.worker.clone(), fill, request, self.client.address.ip()));
        Started { content, interim }
    }
}

impl Started {
    /// Waits for the head. Cancel safe.
    pub(super) async fn head(&mut self, out: &mut impl Outgoing) -> Result<Arc<Head>, Failure> {
        loop {
            tokio::select! {
                biased;
                Some(head) = self.interim.recv() => send_interim(out, head).await,
                head = self.content.head() => return head,
            }
        }
    }
}

async fn send_interim(out: &mut impl Outgoing, mut interim: ResponseHead) {
    interim.fields.remove_hop_by_hop();
    interim.fields.remove("content-length");
    interim.fields.push("Via", via(interim.version));
    out.interim(&interim).await;
}
