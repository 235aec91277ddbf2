//! What a bundle wants for a connection: its rules and experiments as wishes.
//!
//! Both are asked before the first content byte of a response, and each once a connection: who is held out, and who is in
//! an arm that changes nothing, is so from the response on for which the others are changed. So records of the one and
//! the other can be compared.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use thalweg_bundle::Bundle;
use thalweg_record::{Decider, Steered};

use super::{Common, Steering, Wish, chain};

/// The response that a bundle is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) client: SocketAddr,
    /// The host of its request, without a port or a final dot.
    pub(crate) host: &'a str,
    /// The length of its content, if it is known.
    pub(crate) bytes: Option<u64>,
}

impl Steering {
    /// Does what `bundle` says, as far as it is due. What the kernel refuses has been counted and told.
    pub(crate) fn follow(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &Common,
    ) {
        // The stronger one first: what it decides the other leaves alone.
        self.follow_experiment(fd, bundle, response, common);
        self.follow_rule(fd, bundle, response, common);
    }

    /// What a bundle has had to do with the connection.
    pub(crate) fn steered(&self) -> Option<&Steered> {
        self.steered.as_deref()
    }

    fn follow_experiment(
        &mut self,
        fd: BorrowedFd<'_>,
        bundle: &Bundle,
        response: Response<'_>,
        common: &Common,
    ) {
        if !self.is_due(Decider::Experiment, response.bytes, common.size_bytes_min) {
            return;
        }
        let Some(experiment) = bundle.experiment(response.host) else { return };
        let arm = experiment.arm(response.client);
        let algorithm = arm.congestion_control.as_deref();
        if self.wish_of_bundle(fd, (Decider::Experiment, algorithm, None), response.bytes, common) {
            let steered = self.steered.get_or_insert_default();
            steered.bundle = bundle.content().number;
            (steered.experiment, steered.arm) = (Some(experiment.name.clone()), Some(arm.name.clone()));
        }
    }

    fn follow_rule(&mut self, fd: BorrowedFd<'_>, bundle: &Bundle, response: Response<'_>, common: &Common) {
        // Asked first: after the first large response of a connection there is nothing to look up any more.
        if !self.is_open_to(Decider::Rule) {
            return;
        }
        let Some(rule) = bundle.rule(response.client.ip(), response.host) else { return };
        if !self.is_due(Decider::Rule, response.bytes, rule.size_bytes_min.unwrap_or(common.size_bytes_min)) {
            return;
        }
        let is_holdout = rule.holds_out(response.client);
        let algorithm = (!is_holdout).then_some(rule.congestion_control.as_str());
        let wish = (Decider::Rule, algorithm, rule.size_bytes_min);
        if self.wish_of_bundle(fd, wish, response.bytes, common) {
            let steered = self.steered.get_or_insert_default();
            steered.bundle = bundle.content().number;
            (steered.rule, steered.is_holdout) = (Some(rule.prefix.to_string()), is_holdout);
        }
    }

    /// Whether it was due, whatever came of it; a refusal is noted.
    fn wish_of_bundle(
        &mut self,
        fd: BorrowedFd<'_>,
        (by, algorithm, size_bytes_min): (Decider, Option<&str>, Option<u64>),
        response_bytes: Option<u64>,
        common: &Common,
    ) -> bool {
        // A bundle's names have the form of the kernel's.
        let algorithm = algorithm.and_then(|name| name.parse().ok());
        let size_bytes_min = size_bytes_min.unwrap_or(common.size_bytes_min);
        let wish = Wish { by, algorithm, response_bytes, size_bytes_min };
        match self.grant(fd, wish, common) {
            Ok(is_due) => is_due,
            Err(error) => {
                self.steered.get_or_insert_default().refused = Some(chain(&error));
                true
            }
        }
    }
}
