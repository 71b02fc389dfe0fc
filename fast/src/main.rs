//! `ri2n-fast`.

fn main() {}
