//! Rebuilds the program when the console's pages change, because the embedding macro does not
//! detect added files.

fn main() {
    println!("cargo::rerun-if-changed=../../console/dist");
}
