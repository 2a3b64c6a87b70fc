//! Compiles the Lua in `vendor` with the C compiler that the allocator needs as well.

fn main() {
    println!("cargo::rerun-if-changed=vendor");
    let sources = std::fs::read_dir("vendor").expect("the sources are here");
    let mut files: Vec<_> = sources.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    cc::Build::new()
        .files(files)
        .define("LUA_USE_ULONGJMP", None) // A `longjmp` that leaves the signal mask alone.
        .opt_level(2) // Also in debug builds: the frames must fit the small stacks.
        .warnings(false)
        .compile("darter_lua");
}
