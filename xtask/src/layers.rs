//! The direction of imports, as a table and a check over `cargo tree`.
//!
//! ```text
//! base <- structs, resp, rdb, runtime, lua <- keyspace <- tx <- command <- families, script <- persist <- server <- tools <- darter
//! ```
//! A crate may use those of a lower rank and none of its own. Tests and tools are outside: they
//! talk to the server by its socket, and may use `base` and each other, unless listed.

use std::path::Path;
use std::process::Command;

#[rustfmt::skip] // A table.
const RANKS: &[(&str, u8)] = &[
    ("darter-base",     0),
    ("darter-structs",  1), ("darter-resp", 1), ("darter-rdb", 1), ("darter-runtime", 1),
    ("darter-lua",      1),
    ("darter-keyspace", 2),
    ("darter-tx",       3),
    ("darter-command",  4),
    ("darter-families", 5), ("darter-script", 5),
    ("darter-persist",  6),
    ("darter-server",   7),
    ("darter-tools",    8),
    ("darter",          9),
];

/// Packages outside the layers that call the crates' functions directly, and why.
#[rustfmt::skip] // A table.
const INSIDERS: &[(&str, &str)] = &[
    ("darter-fuzz", "targets are plain functions of bytes"),
    ("darter-scripts", "it runs the interpreter alone, in slices of random lengths"),
    ("darter-simulation",  "it drives `Core::turn` in one thread"),
];

/// A package of the workspace, and its direct dependencies.
#[derive(Debug, PartialEq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) uses: Vec<String>,
}

/// Every edge in the wrong direction, as a sentence.
pub(crate) fn faults(packages: &[Package]) -> Vec<String> {
    let workspace: Vec<&str> = packages.iter().map(|package| &*package.name).collect();
    let mut faults = Vec::new();
    for package in packages {
        for used in package.uses.iter().filter(|used| workspace.contains(&used.as_str())) {
            if !allowed(&package.name, used) {
                faults.push(format!("{} must not use {used}", package.name));
            }
        }
    }
    faults
}

fn rank(name: &str) -> Option<u8> {
    RANKS.iter().find(|(known, _)| *known == name).map(|(_, rank)| *rank)
}

fn allowed(from: &str, to: &str) -> bool {
    let insider = INSIDERS.iter().any(|(name, _)| *name == from);
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => to < from,
        (Some(_), None) => false,
        (None, Some(to)) => insider || to == 0,
        (None, None) => true,
    }
}

/// The workspace as cargo sees it: normal, build and test dependencies alike.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--depth", "1", "--prefix", "depth", "--no-dedupe"])
        .args(["--edges", "normal,build,dev", "--all-features"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines are `0name v1 (path)` for a package and `1name …` for what it uses.
fn parse(tree: &str) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for line in tree.lines() {
        let Some((depth, rest)) = line.split_at_checked(1) else { continue };
        let name = rest.split(' ').next().unwrap_or_default().to_owned();
        match depth {
            "0" => packages.push(Package { name, uses: Vec::new() }),
            "1" => {
                if let Some(package) = packages.last_mut() {
                    package.uses.push(name);
                }
            }
            _ => {}
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_this_workspace_point_downwards() {
        let packages = packages(&crate::root()).unwrap();
        for (name, _) in RANKS {
            assert!(packages.iter().any(|package| package.name == *name), "{name} is gone");
        }
        assert_eq!(faults(&packages), Vec::<String>::new());
    }

    #[test] // Upwards, sideways, or of internals by a test.
    fn imports_against_the_layering_are_found() {
        let tree = "0darter-resp v0.1.0 (/x)\n1darter-server v0.1.0 (/x)\n1darter-base v0\n\
                    0darter-runtime v0\n1darter-resp v0\n0darter-server v0\n0darter-base v0\n\
                    0darter-limits v0\n1darter-server v0\n1darter-base v0\n1rustix v1\n";
        let found = faults(&parse(tree));
        assert_eq!(
            found,
            [
                "darter-resp must not use darter-server",
                "darter-runtime must not use darter-resp",
                "darter-limits must not use darter-server",
            ]
        );
    }
}
