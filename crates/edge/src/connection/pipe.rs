//! A connection handed through: after `return (pipe)` nothing more is understood of it.
//!
//! The request goes to the backend as it is, with `Connection: close`, and from then on bytes go both ways until one side
//! has ended.

use thalweg_cache::Failure;
use thalweg_http::cache_status::Forward;
use thalweg_http::{Fields, write};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;
use tokio::io::AsyncWriteExt;

use super::policed::Turn;
use super::{Connection, Next};
use crate::answer::Refusal;
use crate::backend::Wanted;
use crate::now_ms;
use crate::policy::{Heads, Instead, Transaction};
use crate::sent::Sent;

impl Connection {
    /// `vcl_pipe`, and the connection handed through.
    pub(super) async fn pipe(&mut self, transaction: &mut Transaction, out: &mut Vec<u8>) -> Turn {
        let mut bereq = transaction.req.clone();
        bereq.fields.remove_hop_by_hop();
        bereq.fields.push("Connection", "close");
        let heads = Heads { bereq: Some(&mut bereq), ..Heads::default() };
        let action = transaction.run(Sub::Pipe, heads, &self.stream, &self.worker);
        if action != Action::Pipe {
            return self.instead(transaction, Instead::Action(action), Next::Close, out).await;
        }
        let connected = match transaction.fetching(true).route(&mut bereq, self.worker.cache()) {
            Some(route) => self.worker.connect(&route, Wanted::New).await,
            None => Err(Failure::Backend("no backend is healthy".into())),
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(failure) => {
                let refusal = Refusal::failed(&failure, Forward::Bypass);
                return self.instead(transaction, refusal.into(), Next::Close, out).await;
            }
        };
        let mut fields = Fields::new();
        fields.push("Host", bereq.authority.as_str());
        for (name, value) in bereq.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            fields.push(name, value);
        }
        let mut head = Vec::new();
        write::write_request_head(&mut head, bereq.method_str(), bereq.target.as_str(), &fields);
        head.extend_from_slice(&self.requests.take());
        let begun_ms = now_ms();
        let piped = async {
            connection.stream.write_all(&head).await?;
            tokio::io::copy_bidirectional(&mut self.stream, &mut connection.stream).await
        };
        let bytes = match piped.await {
            Ok((_, from_backend)) => from_backend,
            Err(error) => {
                tracing::debug!(%error, duration_ms = now_ms() - begun_ms, "a pipe ended");
                0
            }
        };
        let cache = CacheResult::Pipe;
        let (first_byte, cut, next) = (None, None, Next::Close);
        Turn::Sent(Sent { status: 200, cache, bytes, first_byte, cut, next })
    }
}
