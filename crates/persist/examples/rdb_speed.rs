//! How fast is a hash of ten million UUIDs written, and read again, without a keyspace?
//!
//! `cargo run --release -p darter-persist --example rdb_speed -- FILE [FIELDS]` writes `FILE`
//! unless it exists, then reads it in chunks of 1 MiB and prints the time.

use darter_base::Prng;
use darter_families::TYPES;
use darter_families::hash::Hash;
use darter_keyspace::Typed;
use darter_rdb::{Event, Item, Limits, Reader, Survey, Writer};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

const CHUNK_BYTES: usize = 1 << 20;
const SEED: u64 = 1;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "rdb_speed.rdb".to_string());
    let fields = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    if !std::path::Path::new(&path).exists() {
        let started = Instant::now();
        write(File::create(&path)?, fields)?;
        report("written", fields, started);
    }
    let started = Instant::now();
    let (items, bytes, digest) = read(File::open(&path)?)?;
    report("read", items, started);
    let rate = bytes as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("{bytes} bytes, {rate:.0} MB/s, digest {digest:016x}");
    Ok(())
}

fn report(act: &str, items: u64, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!("{items} fields {act} in {seconds:.2} s, {:.2} M/s", items as f64 / seconds / 1e6);
}

/// A random UUID of version 4.
fn uuid(prng: &mut Prng) -> String {
    let (high, low) = (prng.next_u64(), prng.next_u64());
    let variant = 0x8000 | (low >> 48 & 0x3fff);
    let (first, second, third) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let last = low & 0xffff_ffff_ffff;
    format!("{first:08x}-{second:04x}-4{third:03x}-{variant:04x}-{last:012x}")
}

/// An item with a text as its field, and the same value and deadline for all.
fn item(text: &str) -> Item<'_> {
    Item::Pair { name: text.as_bytes(), value: b"a reason: 12", deadline_ms: None }
}

fn write(mut file: File, fields: u64) -> io::Result<()> {
    let mut survey = Survey::new(Hash::TYPE.rdb);
    let mut prng = Prng::from_seed(SEED);
    for _ in 0..fields {
        survey.item(item(&uuid(&mut prng)));
    }
    let (mut writer, mut out) = (Writer::new(), Vec::new());
    writer.start(10, &mut out);
    writer.select_db(0, &mut out);
    writer.resize_db(1, 0, &mut out);
    writer.key(b"big", None, survey.plan(), &mut out);
    let mut prng = Prng::from_seed(SEED);
    for _ in 0..fields {
        writer.item(item(&uuid(&mut prng)), &mut out);
        if out.len() >= CHUNK_BYTES {
            file.write_all(&out)?;
            out.clear();
        }
    }
    writer.end_of_key(&mut out);
    writer.eof(&mut out);
    file.write_all(&out)
}

/// Fields, bytes, and a digest that keeps the work from being optimised away.
fn read(mut file: File) -> io::Result<(u64, u64, u64)> {
    let mut reader = Reader::new(TYPES.kinds(), Limits::default());
    let (mut items, mut digest) = (0_u64, 0_u64);
    loop {
        match reader.next().map_err(io::Error::other)? {
            Some(Event::Item(Item::Pair { name, value, .. })) => {
                items += 1;
                let byte = u64::from(name.last().copied().unwrap_or(0));
                digest = digest.rotate_left(1) ^ byte ^ value.len() as u64;
            }
            Some(Event::Eof { .. }) => break,
            Some(_) => {}
            None => {
                let count = file.read(reader.space(CHUNK_BYTES))?;
                reader.filled(count);
                if count == 0 {
                    reader.finish();
                }
            }
        }
    }
    Ok((items, reader.offset(), digest))
}
