//! What scripts do with bytes that anyone may send: JSON, MessagePack, formats, patterns, code.

use darter_base::preempt::{Countdown, Never};
use darter_script::{Machine, Protocol, Run, Script, Stop};

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

/// A value, an error, or no end.
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
