//! Compiles the part that needs C's `long double`.

fn main() {
    println!("cargo::rerun-if-changed=src/extended.c");
    cc::Build::new().file("src/extended.c").compile("darter_extended");
}
