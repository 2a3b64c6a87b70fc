//! Real input to start from: requests of every form, files and payloads written by redis-server,
//! and changes of small collections.

use darter_testkit::{Server, client};
use std::fs;

/// Requests, single and pipelined.
#[allow(clippy::unnecessary_wraps, reason = "every corpus has one face, and others can fail")]
pub(crate) fn requests() -> Result<Vec<Vec<u8>>, String> {
    let long = "x".repeat(5_000);
    Ok(vec![
        client::encode(&["PING"]),
        client::encode(&["SET", "key", "value", "EX", "10"]),
        client::encode(&["SET", "key", &long]),
        client::encode(&["GET", "a"]).repeat(20),
        client::encode(&vec!["DEL"; 500]),
        b"PING\r\nSET k 'a b'\r\nGET \"\\x00\\n\"\r\n\r\n".to_vec(),
        b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n".to_vec(),
        b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n".to_vec(),
        b"*1000000000\r\n$536870912\r\n".to_vec(),
        long.into_bytes(),
    ])
}

/// Changes of a small collection: names with a common prefix, integers, and entries that turn a
/// pack into a table.
#[allow(clippy::unnecessary_wraps, reason = "every corpus has one face, and others can fail")]
pub(crate) fn changes() -> Result<Vec<Vec<u8>>, String> {
    let adds = |kind: u8, to: u8, value: &'static [u8]| {
        let entry = move |number: u8| [&[0, kind, number, value.len() as u8 / 2], value].concat();
        (0..to).flat_map(entry).collect::<Vec<u8>>()
    };
    let removes = |kind: u8, to: u8| (0..to).flat_map(move |number| [7, kind, number, 0]);
    Ok(vec![
        adds(0, 20, b"twelve bytes"),
        adds(0, 250, b"twelve bytes"),
        adds(0, 100, b"twelve bytes").into_iter().chain(removes(0, 80)).collect(),
        adds(4, 200, b"").into_iter().chain(removes(4, 150)).collect(),
        [adds(5, 40, b""), adds(13, 20, b""), adds(29, 3, b"")].concat(),
        [adds(6, 30, b""), adds(4, 30, b""), adds(0, 3, b"v v ")].concat(),
    ])
}

/// An RDB file of every type that exists, and the payloads of its keys.
pub(crate) fn files() -> Result<Vec<Vec<u8>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let oracle = Server::oracle().map_err(text)?;
    let mut client = oracle.client().map_err(text)?;
    let mut corpus = Vec::new();
    for line in [
        "SET text hello",
        "SET number 12345",
        "SETEX later 1000 v",
        "HSET small f v g 12 h -7",
        "SADD ints 1 2 70000",
        "SADD few a b c",
        "CONFIG SET hash-max-listpack-entries 2",
        "HSET table a 1 b 2 c 3 d 4",
        "SELECT 3",
        "SADD other x y",
    ] {
        client.words(line).map_err(text)?;
    }
    client.command(&["SET", "squeezed", &"ab".repeat(300)]).map_err(text)?;
    client.words("SAVE").map_err(text)?;
    corpus.push(fs::read(oracle.folder().join("dump.rdb")).map_err(text)?);
    client.words("SELECT 0").map_err(text)?;
    for key in ["text", "number", "small", "ints", "few", "table"] {
        let payload = client.command(&["DUMP", key]).map_err(text)?;
        corpus.push(payload.text().ok_or("no payload")?.to_vec());
    }
    corpus.extend(hand_made());
    Ok(corpus)
}

/// Files of other versions that announce many items but contain few.
fn hand_made() -> Vec<Vec<u8>> {
    vec![
        b"REDIS0001\x00\x01k\x01v\xff".to_vec(),
        b"REDIS0005\xff".to_vec(),
        b"REDIS0012\xfa\x03abc\x03def\xfe\x00\xfb\x02\x00\xff".to_vec(),
        b"VALKEY080\xfe\x00\x00\x01k\x01v\xff".to_vec(),
        b"REDIS0010\x00\x01k\x80\xff\xff\xff\xff".to_vec(),
        b"REDIS0010\x04\x01h\x81\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
    ]
}

/// Strings, and operations of BITFIELD on them, a line each.
#[allow(clippy::unnecessary_wraps, reason = "every corpus has one face, and others can fail")]
pub(crate) fn bitfields() -> Result<Vec<Vec<u8>>, String> {
    let all = [
        "\nSET u8 0 255\nINCRBY u8 0 1\nINCRBY u8 0 -1 SAT\nGET i8 0",
        "some bytes of a string\nGET i64 3\nINCRBY i64 3 9223372036854775807 FAIL\nSET i5 #7 -17 SAT",
        "xyz\nSET u63 #2 -1\nGET u1 0\nINCRBY i1 1 1\nINCRBY u63 #2 9223372036854775807 SAT",
        "abc\nSET i8 100 -9223372036854775808\nSET u8 12 -1 FAIL\nINCRBY u12 #9 4095 WRAP",
    ];
    Ok(all.map(|text| text.as_bytes().to_vec()).to_vec())
}
