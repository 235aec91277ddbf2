//! The edge over real sockets, one file a subject. One program, so that it is linked once.

mod abandoned;
mod backends;
mod bundle;
mod cache_status;
mod caching;
mod conditions;
mod connection;
mod disk;
mod faults;
mod hops;
mod interim;
mod methods;
mod policy;
mod purge;
mod ranges;
mod relay;
mod resume;
mod rules;
mod shipped;
mod slices;
mod steering;
mod stop;
mod support;
mod trailers;
