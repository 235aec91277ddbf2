//! Builds again when the console's pages were built: the embedding alone does not see new files.

fn main() {
    println!("cargo::rerun-if-changed=../../console/dist");
}
