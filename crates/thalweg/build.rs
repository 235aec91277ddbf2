//! Rebuilds the program when the console's pages change, because the embedding macro misses new
//! files.

fn main() {
    println!("cargo::rerun-if-changed=../../console/dist");
}
