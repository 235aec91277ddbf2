//! Viewers of live and on-demand presentations.
//!
//! - [`playhead`]: what one viewer sees, and when it stalls; pure.
//! - [`choice`]: which track it takes; pure.

pub mod choice;
pub mod playhead;
