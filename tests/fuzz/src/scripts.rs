//! Arbitrary bytes passed to scripts: JSON, MessagePack, formats, patterns, code.

use darter_base::preempt::{Countdown, Never};
use darter_rdb::functions::{LibraryText, begin_library};
use darter_rdb::lzf::Packer;
use darter_script::{Library, Machine, Protocol, Registry, Run, Script, Source, Stop};
use std::sync::Arc;

const SCRIPT: &str = "local text, half = ARGV[1], ARGV[1]:sub(#ARGV[1] / 2)
    pcall(cjson.decode, text) pcall(cjson.encode, {text, [half] = text})
    pcall(cmsgpack.unpack, text) pcall(cmsgpack.unpack_one, text, 1)
    pcall(struct.unpack, text, half) pcall(struct.pack, text, 1, half, 2.5)
    pcall(struct.size, text) pcall(string.find, half, text) pcall(string.gsub, text, half, '%1')
    pcall(string.format, text, 1, 'a') pcall(loadstring, text) return 1";

/// One of each.
pub(crate) fn corpus() -> Result<Vec<Vec<u8>>, String> {
    Ok(vec![
        br#"{"a":[1,-2.5e3,true,null,"x\u00e9\ud83d\ude00"],"b":{"c":[]}}"#.to_vec(),
        b"\x82\xa1a\x93\x01\xcb\x3f\xf0\0\0\0\0\0\0\xd9\x03abc\xdd\0\0\0\x02\xc0\xc3".to_vec(),
        b">!4i3sLc0dfbBhHxI16 c0".to_vec(),
        b"(%w+)%s*=%s*([%a-%%^]-)%b()%f[%A]?*.-$".to_vec(),
        b"return function(...) local t = {...} for i = 1, #t do t[i] = t[i] .. [==[x]==] end end"
            .to_vec(),
    ])
}

/// Runs a script: it returns a value or an error, or does not end.
pub(crate) fn fuzz_scripts(input: &[u8]) {
    let mut machine = Machine::new(16 << 20).expect("there is memory for a stack");
    let script = Script::new(SCRIPT.as_bytes()).expect("it has no first line of its own");
    let arguments = vec![input[..input.len().min(4096)].to_vec()];
    machine.begin(Run { script, keys: Vec::new(), arguments, client: Protocol::Three });
    if machine.resume(&Countdown::new(2_000)) == Stop::Ended {
        assert_eq!(machine.take_reply().concat(), b":1\r\n");
    }
    assert!(machine.abandon(&Never));
}

/// Records of FUNCTION DUMP, packed and not.
pub(crate) fn libraries() -> Result<Vec<Vec<u8>>, String> {
    let texts = [
        "#!lua name=a\nredis.register_function('f', function(keys, args) return #args end)",
        "#!lua name=b\nlocal r = redis.register_function r{function_name = 'g', callback = r,
            flags = {'no-writes', 'allow-oom'}, description = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'}",
        "#!lua \"name=c\"\r\nfor i = 1, 9 do redis.register_function('h' .. i, redis.log) end",
    ];
    let mut packer = Packer::default();
    Ok([true, false]
        .map(|packs| {
            let mut records = Vec::new();
            for text in texts {
                let packer = packs.then_some(&mut packer);
                let rest = begin_library(&mut records, text.as_bytes(), packer);
                records.extend_from_slice(rest);
            }
            records
        })
        .to_vec())
}

/// Loads libraries: they load, are refused, or do not end.
pub(crate) fn fuzz_libraries(input: &[u8]) {
    let mut machine = Machine::for_functions(16 << 20).expect("there is memory for a stack");
    let (mut registry, mut records) = (Registry::default(), input);
    while !records.is_empty() {
        let Ok((mut text, after)) = LibraryText::first(records) else { return };
        let is_whole = loop {
            match text.step(100) {
                Ok(false) => {}
                Ok(true) => break true,
                Err(_) => break false,
            }
        };
        let Some(source) = is_whole.then(|| Source::read(text.into_text()).ok()).flatten() else {
            return;
        };
        let source = Arc::new(source);
        machine.begin_load(Arc::clone(&source));
        if machine.resume(&Countdown::new(500)) != Stop::Ended {
            assert!(machine.abandon(&Never));
            return;
        }
        let Ok(functions) = machine.take_loaded() else { return };
        let library = Arc::new(Library { source, functions });
        if registry.library(&library.source.name).is_none() {
            let mut next = Ok(Some(0));
            while let Ok(Some(index)) = next {
                next = registry.link(&library, index);
            }
        }
        assert!(registry.len() <= registry.functions_len());
        records = after;
    }
}
