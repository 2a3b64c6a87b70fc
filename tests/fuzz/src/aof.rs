//! The targets of the append-only folder. Any bytes as a manifest are refused, or are read back from
//! their own text. Any bytes as an increment, fed in pieces, are judged as in one piece; what is good
//! is whole, and memory does not follow announced lengths. With repaired checksums, too.

use darter_persist::aof::annotation::{Annotation, Checksum, Head, TAG};
use darter_persist::aof::check::{Checker, Verdict};
use darter_persist::aof::manifest::Manifest;
use darter_persist::aof::reader::{Item, Reader};

/// Manifests.
pub(crate) fn manifests() -> Result<Vec<Vec<u8>>, String> {
    let texts = [
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n",
        "# c\nfile \"a b\\x01\" seq 7 type h\nSEQ 3 Type i startoffset 5 FILE x\n",
    ];
    Ok(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
}

/// The target of manifests; see the module's documentation.
pub(crate) fn fuzz_manifests(input: &[u8]) {
    match Manifest::parse(input) {
        Ok(manifest) => {
            let text = manifest.to_bytes();
            // An escaped name may make a line longer than Redis reads.
            if !text.is_empty() && text.split(|byte| *byte == b'\n').all(|line| line.len() < 1_024)
            {
                assert_eq!(Manifest::parse(&text).as_ref(), Ok(&manifest), "its own text");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An increment of Darter and one of Redis.
pub(crate) fn files() -> Result<Vec<Vec<u8>>, String> {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n";
    let multi = b"*1\r\n$5\r\nMULTI\r\n";
    let exec = b"*1\r\n$4\r\nEXEC\r\n";
    let bodies = [&b""[..], set, &[&multi[..], set, set, exec].concat(), set, &[0; 40]];
    let (mut ours, mut last) = (Vec::new(), None::<Annotation>);
    for body in bodies {
        let offset = last.map_or(9, |last| last.end());
        let head = Head {
            run: 0xabc,
            batch: last.map_or(1, |last| last.head.batch + 1),
            offset,
            bytes: body.len() as u64,
            stable: offset - offset % 50,
            unix_ms: 1_795_310_400_000,
            previous: last.map_or(0, |last| last.link()),
        };
        let annotation = head.seal([body]);
        annotation.write(&mut ours);
        ours.extend_from_slice(body);
        last = Some(annotation);
    }
    let theirs = [b"#TS:1795310400\r\n", &set[..], multi, set, exec, b"#TS:1795310401\r\n", set];
    let padded = [&ours[..], &[0; 200]].concat();
    Ok(vec![ours.clone(), theirs.concat(), padded, [&ours[..], &theirs.concat()].concat()])
}

/// The target of increments; see the module's documentation.
pub(crate) fn fuzz_files(input: &[u8]) {
    let piece = usize::from(input.last().copied().unwrap_or(0)) % 97 + 1;
    for bytes in [input, &repaired(input)] {
        let whole = judge(bytes, bytes.len().max(1));
        assert_eq!(whole, judge(bytes, piece), "pieces of {piece} matter");
        read(bytes, piece);
        let good = usize::try_from(whole.0).expect("within the input");
        let again = judge(&bytes[..good], piece);
        assert_eq!((again.0, again.1), (whole.0, String::new()), "a file that was cut is whole");
    }
}

/// The number of good bytes, the fault, and whether it is damage.
fn judge(bytes: &[u8], piece: usize) -> (u64, String, bool) {
    let mut checker = Checker::new(0, None);
    bytes.chunks(piece).for_each(|part| checker.feed(part));
    let checked = checker.finish();
    let good = usize::try_from(checked.good).expect("within the input");
    let Some((fault, offset, verdict)) = checked.fault else {
        assert!(bytes[good..].iter().all(|byte| *byte == 0), "only zeros follow");
        return (checked.good, String::new(), false);
    };
    assert!(checked.good <= offset && offset <= bytes.len() as u64);
    let is_damage = match verdict {
        Verdict::Torn => false,
        Verdict::Damaged => true,
        Verdict::Depends(mut search) => {
            bytes[good..].chunks(piece).for_each(|part| search.feed(part));
            search.is_damage()
        }
    };
    (checked.good, format!("{fault} at {offset}"), is_damage)
}

/// Reads the bytes as commands and lines. Items are next to each other.
fn read(bytes: &[u8], piece: usize) {
    let (mut reader, mut end) = (Reader::new(0), 0);
    for mut part in bytes.chunks(piece) {
        while !part.is_empty() {
            let Ok((taken, item)) = reader.next(part) else { return };
            assert!(taken > 0 || item.is_some(), "the reader makes progress");
            part = &part[taken..];
            if let Some(item) = item {
                let first = bytes[usize::try_from(end).expect("within the input")];
                assert_eq!(first, if item == Item::Line { b'#' } else { b'*' });
                end = reader.offset();
            }
            assert!(reader.good() <= end);
        }
    }
}

/// The bytes with right checksums, as far as lines can be read.
fn repaired(input: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), input);
    let mut last = None::<Annotation>;
    while rest.starts_with(TAG) {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let (line, body) = rest.split_at(end);
        let Ok(Annotation { mut head, .. }) = Annotation::parse(line) else { break };
        let taken = body.len().min(usize::try_from(head.bytes).unwrap_or(usize::MAX));
        head.previous = last.map_or(head.previous, |last| last.link());
        let mut sum = Checksum::new(&head);
        sum.update(&body[..taken]);
        let annotation = Annotation { head, sum: sum.value() };
        annotation.write(&mut out);
        out.extend_from_slice(&body[..taken]);
        (last, rest) = (Some(annotation), &body[taken..]);
    }
    out.extend_from_slice(rest);
    out
}
