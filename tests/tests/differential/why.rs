//! Why a peer may differ from ours, each with its source.
