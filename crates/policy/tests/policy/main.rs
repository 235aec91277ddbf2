//! Tests of the policy language as a whole: compiling, evaluating, and the messages of both.
#![allow(unreachable_pub, reason = "the fixture's items are public within the program")]

mod any;
mod common;
mod corpus;
mod evaluation;
mod faults;
mod idioms;
mod published;
mod tables;
