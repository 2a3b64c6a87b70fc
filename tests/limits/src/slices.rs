//! The longest slice that a server reports after a check's work. A slice is measured by the core's
//! own CPU time, so other processes do not count; but a host that takes the processor away does, and
//! so do interrupts. So a check whose slices were too long runs again: what is really done in one
//! step is so each time, and what the machine did to it hardly ever is.

use crate::{Check, Stage, ensure, text};
use darter_testkit::Client;

/// Some ten times a slice's limit, for debug builds: what was done in one step took more.
pub(crate) const SLICE_MAX_US: u64 = 6_000;
/// How many times a check runs. In one of the runs all slices must be short.
const TRIES: usize = 3;
/// The beginning of the error after which a check runs again.
const TOO_LONG: &str = "a slice of ";

/// Checks that the server's longest slice is within the bound. Otherwise the error holds INFO's
/// lines on slices.
pub(crate) fn are_short(client: &mut Client) -> Result<(), String> {
    let info = client.words("INFO slices").map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let longest = info.lines().find_map(|line| line.strip_prefix("slice_max_us:"));
    let longest: u64 = longest
        .and_then(|us| us.trim().parse().ok())
        .ok_or_else(|| format!("no slices: {info}"))?;
    ensure(longest < SLICE_MAX_US, || format!("{TOO_LONG}{longest} us: {info}"))
}

/// Runs a check, and runs it again if only its slices were too long.
pub(crate) fn run((_, _, check): Check, stage: &Stage) -> Result<(), String> {
    for _ in 1..TRIES {
        match check(stage) {
            Err(why) if why.starts_with(TOO_LONG) => {}
            result => return result,
        }
    }
    check(stage)
}
