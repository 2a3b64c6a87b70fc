//! The toy type of docs/adding-a-type.md passes through payloads and digests without code of its
//! own.

use crate::heap::{HEAP, Heap};
use darter_base::preempt::Never;
use darter_command::{Args, Cx, Flow, Refusal, Step};
use darter_families::TYPES;
use darter_keyspace::{Key, Shard, Types, types};
use darter_persist::commands::{dump, restore_as, sizer};
use darter_persist::digest::{Digester, Sum};
use darter_resp as resp;
use std::sync::Arc;

static TOYS: Types = types![&HEAP];

/// Runs a command to its end, whatever portions it takes.
fn call(
    shard: &mut Shard,
    parts: &[&[u8]],
    run: impl Fn(&mut Cx<'_>, Args<'_>) -> Result<Flow, Refusal>,
) -> Result<Vec<u8>, Refusal> {
    let request = Arc::new(resp::Request::from_args(parts.iter().copied()));
    let mut out = resp::Output::default();
    let mut flow = run(&mut cx(shard, &mut out), Args::new(resp::Args::owned(&request), 1))?;
    loop {
        match flow {
            Flow::Done => return Ok(out.flatten()),
            Flow::Stream(mut stream) => {
                while stream.pump(&mut resp::Reply::new(&mut out, false)) {}
                flow = Flow::Done;
            }
            Flow::Job(mut job) => {
                flow = loop {
                    if let Step::Done(flow) = job.step(&mut cx(shard, &mut out))? {
                        break flow;
                    }
                };
            }
        }
    }
}

fn cx<'a>(shard: &'a mut Shard, out: &'a mut resp::Output) -> Cx<'a> {
    let (db, prng, stats) = shard.parts(0);
    Cx { db, reply: resp::Reply::new(out, false), now: 1_000, prng, stats, preempt: &Never }
}

fn heap(shard: &Shard, key: &[u8]) -> Option<Vec<u64>> {
    Some(shard.db(0).value::<Heap>(&Key::new(key)).unwrap()?.0.clone())
}

fn digest(shard: &Shard, key: &[u8]) -> Sum {
    let found = shard.db(0).get(&Key::new(key)).unwrap();
    let mut digester = Digester::new(Sum::default(), found.kind(), found.items(1_000));
    loop {
        if let Some(sum) = digester.step() {
            return sum;
        }
    }
}

#[test] // Small and large ones; other types refuse its payload.
fn a_value_of_a_new_type_is_dumped_and_restored() {
    let mut shard = Shard::new(1, 1);
    for count in [1, 200, 100_000] {
        let numbers: Vec<u64> = (0..count).map(|at| at * 7).collect();
        shard
            .db_mut(0)
            .edit::<Heap, _>(&Key::new(b"from"), true, |edit| {
                while edit.pop().is_some() {}
                numbers.iter().for_each(|number| edit.push(*number));
            })
            .unwrap();
        let reply = call(&mut shard, &[b"DUMP", b"from"], dump).unwrap();
        let start = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let payload = &reply[start..reply.len() - 2];
        let mut sizer = sizer(&shard.db(0).get(&Key::new(b"from")).unwrap(), 1_000);
        assert_eq!(sizer(usize::MAX), Some(payload.len() as u64), "{count}");

        let parts: [&[u8]; 5] = [b"RESTORE", b"to", b"0", payload, b"REPLACE"];
        let among = |types| move |cx: &mut Cx<'_>, args: Args<'_>| restore_as(types, cx, args);
        assert_eq!(call(&mut shard, &parts, among(TOYS)).unwrap(), b"+OK\r\n");
        assert_eq!(heap(&shard, b"to"), Some(numbers), "{count}");
        assert_eq!(digest(&shard, b"to"), digest(&shard, b"from"), "{count}");
        let refused = call(&mut shard, &parts, among(TYPES)).unwrap_err();
        assert_eq!(&refused.text()[..], b"ERR Bad data format");
    }
    shard.db(0).check_invariants();
}

#[test]
fn the_digest_of_an_ordered_type_depends_on_the_order() {
    let mut shard = Shard::new(1, 1);
    for (key, numbers) in [(b"one", [1, 2]), (b"two", [2, 1])] {
        let edit = shard.db_mut(0).edit::<Heap, _>(&Key::new(key), true, |edit| {
            numbers.into_iter().for_each(|number| edit.push(number));
        });
        edit.unwrap();
    }
    assert_ne!(digest(&shard, b"one"), digest(&shard, b"two"));
}
