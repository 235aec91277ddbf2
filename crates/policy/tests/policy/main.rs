//! Tests of the complete policy language: compilation, evaluation, and the messages of both.
#![allow(unreachable_pub, reason = "the fixture's items are public within the program")]

mod any;
mod common;
mod corpus;
mod evaluation;
mod faults;
mod idioms;
mod published;
mod tables;
