//! What a policy costs a request.
fn main() {}
