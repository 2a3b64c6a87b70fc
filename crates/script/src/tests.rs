//! Scripts whose commands a small stand-in answers, in slices of random lengths.

use crate::{Machine, Protocol, Run, Script, Stop, Wanted};
use darter_base::Prng;
use darter_base::preempt::{Countdown, Never};

const LIMIT: usize = 64 << 20;

fn run_of(text: &str, arguments: &[&[u8]]) -> Run {
    let script = Script::new(text.as_bytes()).unwrap();
    let arguments = arguments.iter().map(|word| word.to_vec()).collect();
    Run { script, keys: Vec::new(), arguments, client: Protocol::Two }
}

/// Answers `echo` and `many`, the second in parts of seven bytes.
fn answer(machine: &mut Machine, rest: &mut Vec<u8>) {
    let words: Vec<Vec<u8>> = machine.command().iter().map(<[u8]>::to_vec).collect();
    match &*words[0] {
        b"echo" => machine.feed(&[b"+", &*words[1], b"\r\n"].concat()),
        b"many" => {
            let count: usize = std::str::from_utf8(&words[1]).unwrap().parse().unwrap();
            *rest = format!("*{count}\r\n").into_bytes();
            (0..count).for_each(|index| rest.extend(format!("$4\r\n{index:04}\r\n").into_bytes()));
            feed_part(machine, rest);
        }
        _ => machine.feed(b"-ERR no such command\r\n"),
    }
}

fn feed_part(machine: &mut Machine, rest: &mut Vec<u8>) {
    let part: Vec<u8> = rest.drain(..rest.len().min(7)).collect();
    machine.feed(&part);
}

/// Runs a script to its end; the slices are as long as `prng` says.
fn evaluate(machine: &mut Machine, run: Run, prng: &mut Prng) -> String {
    let mut rest = Vec::new();
    machine.begin(run);
    loop {
        match machine.resume(&Countdown::new(prng.below(20) as usize)) {
            Stop::Slice => {}
            Stop::Wait(Wanted::Reply) => answer(machine, &mut rest),
            Stop::Wait(Wanted::Permission) => machine.feed(b":0\r\n"),
            Stop::Wait(Wanted::More) => feed_part(machine, &mut rest),
            Stop::Ended => {
                return String::from_utf8_lossy(&machine.take_reply().concat()).into_owned();
            }
        }
    }
}

#[test]
fn replies_in_parts_and_errors_reach_the_script() {
    let mut machine = Machine::new(LIMIT).unwrap();
    let mut prng = Prng::from_seed(1);
    let mut reply = |text| evaluate(&mut machine, run_of(text, &[b"a"]), &mut prng);
    assert_eq!(reply("return redis.call('echo', ARGV[1])"), "+a\r\n");
    assert_eq!(reply("local t = redis.call('many', 300) return t[300]"), "$4\r\n0299\r\n");
    assert_eq!(reply("return redis.pcall('x')"), "-ERR no such command\r\n");
    assert_eq!(reply("return redis.acl_check_cmd('x')"), "$-1\r\n");
    assert_eq!(reply("return ({pcall(redis.call, 'x')})[2]"), "$19\r\nERR no such command\r\n");
    let error = reply("\nreturn redis.call('x')");
    assert!(error.starts_with("-ERR no such command script: "), "{error}");
    assert!(error.ends_with(", on @user_script:2.\r\n"), "{error}");
}

/// Runs the parsers on arbitrary bytes.
const PARSERS: &str = "local text, half = ARGV[1], ARGV[1]:sub(#ARGV[1] / 2)
    pcall(cjson.decode, text) pcall(cjson.encode, {text, [half] = text})
    pcall(cmsgpack.unpack, text) pcall(cmsgpack.unpack_one, text, 1)
    pcall(struct.unpack, text, half) pcall(struct.pack, text, 1, half, 2.5)
    pcall(struct.size, text) pcall(string.find, half, text) pcall(string.gsub, text, half, '%1')
    pcall(string.format, text, 1, 'a') pcall(loadstring, text) return 1";

#[test] // An error or a value; the machine stays usable.
fn cjson_and_cmsgpack_survive_any_bytes() {
    let seeds: [&[u8]; 5] = [
        br#"{"a":[1,-2.5e3,true,null,"x\u00e9\ud83d\ude00"],"b":{"c":[]}}"#,
        b"\x82\xa1a\x93\x01\xcb\x3f\xf0\0\0\0\0\0\0\xd9\x03abc\xdd\0\0\0\x02\xc0\xc3",
        b">!4i3sLc0dfbBhHxI16 c0",
        b"(%w+)%s*=%s*([%a-%%^]-)%b()%f[%A]?*.-$",
        b"return function(...) local t = {...} for i = 1, #t do t[i] = t[i] .. [==[x]==] end end",
    ];
    let mut machine = Machine::new(8 << 20).unwrap();
    let mut prng = Prng::from_seed(3);
    for _ in 0..2_000 {
        let mut bytes = seeds[prng.below(5) as usize].to_vec();
        for _ in 0..prng.below(6) {
            let at = prng.below(bytes.len() as u64) as usize;
            match prng.below(3) {
                0 => bytes[at] = prng.below(256) as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.extend_from_within(at..),
            }
            bytes.truncate(200);
        }
        machine.begin(run_of(PARSERS, &[&bytes]));
        let stop = machine.resume(&Countdown::new(5_000)); // Some patterns take for ever.
        if stop == Stop::Ended {
            assert_eq!(machine.take_reply().concat(), b":1\r\n");
        }
        assert!(machine.abandon(&Never));
    }
}

#[test] // At whatever point they are abandoned.
fn abandoned_scripts_leave_no_memory() {
    let text = "local t = {} for i = 1, 200 do t[i] = {i, tostring(i)} end
        while true do
          local s = cjson.encode(t) t = cjson.decode(s)
          t = cmsgpack.unpack(cmsgpack.pack(t)) redis.sha1hex(s)
          table.sort(t, function(a, b) redis.call('echo', 'x') return a[1] < b[1] end)
          redis.call('many', 50)
        end";
    let mut machine = Machine::new(LIMIT).unwrap();
    let mut prng = Prng::from_seed(5);
    evaluate(&mut machine, run_of("return 1", &[]), &mut prng);
    let mut used = [0, 0];
    for (round, used) in used.iter_mut().enumerate() {
        for _ in 0..300 {
            machine.begin(run_of(text, &[]));
            let mut rest = Vec::new();
            for _ in 0..prng.below(60) {
                match machine.resume(&Countdown::new(prng.below(40) as usize)) {
                    Stop::Slice => {}
                    Stop::Wait(Wanted::More) => feed_part(&mut machine, &mut rest),
                    Stop::Wait(_) => answer(&mut machine, &mut rest),
                    Stop::Ended => panic!("it is endless"),
                }
            }
            while !machine.abandon(&Countdown::new(2)) {}
        }
        machine.begin_collection();
        assert_eq!(machine.resume(&Never), Stop::Ended, "round {round}");
        *used = machine.used_bytes();
    }
    assert!(used[1] <= used[0] + 8192, "{used:?}");
}

#[test] // The machine stays usable.
fn the_error_of_a_killed_script_names_its_line() {
    let mut machine = Machine::new(LIMIT).unwrap();
    let run = run_of("local x = 0\nwhile true do x = x + 1 end", &[]);
    let name = run.script.name.clone();
    machine.begin(run);
    for _ in 0..100 {
        assert_eq!(machine.resume(&Countdown::new(3)), Stop::Slice);
    }
    let line = String::from_utf8(machine.killed(&name)).unwrap();
    assert!(line.starts_with("ERR Script killed by user with SCRIPT KILL... script: "), "{line}");
    assert!(line.ends_with(", on @user_script:2."), "{line}");
    assert!(machine.abandon(&Never));
}

#[test] // An error is the reply.
fn script_load_compiles_without_running() {
    let mut machine = Machine::new(LIMIT).unwrap();
    for (text, expected) in [
        ("while true do end", ""),
        (
            "x y",
            "-ERR Error compiling script (new function): user_script:1: '=' expected near 'y'\r\n",
        ),
    ] {
        machine.begin_check(Script::new(text.as_bytes()).unwrap());
        assert_eq!(machine.resume(&Never), Stop::Ended);
        assert_eq!(String::from_utf8(machine.take_reply().concat()).unwrap(), expected);
    }
}

#[test] // The script continues.
fn long_log_messages_are_truncated() {
    const MOST: usize = (1 << 20) - 2 * 64;
    let mut machine = Machine::new(LIMIT).unwrap();
    let text = "redis.log(3, 'short') redis.log(3, string.rep('x', 2000000), 'y')
        redis.log(3, 'z') return 1";
    assert_eq!(evaluate(&mut machine, run_of(text, &[]), &mut Prng::from_seed(1)), ":1\r\n");
    let lens: Vec<usize> = machine.take_log().iter().map(|(_, line)| line.len()).collect();
    assert_eq!(lens, [5, MOST - 5]);
}

#[test]
fn log_messages_and_the_replication_target_are_reported() {
    let mut machine = Machine::new(LIMIT).unwrap();
    let mut prng = Prng::from_seed(1);
    let text = "redis.log(redis.LOG_NOTICE, 'a', 1.5, nil, 'b') redis.set_repl(redis.REPL_AOF)";
    evaluate(&mut machine, run_of(text, &[]), &mut prng);
    assert_eq!(machine.take_log(), [(2, b"a 1.5 b".to_vec())]);
    assert_eq!(machine.replication(), 1);
}

#[test]
fn buffers_of_long_commands_and_replies_are_freed() {
    const MOST: usize = 64 << 10;
    let mut machine = Machine::new(LIMIT).unwrap();
    let mut prng = Prng::from_seed(1);
    let text = "return #redis.call('many', 9999, ('x'):rep(1e6))";
    evaluate(&mut machine, run_of(text, &[]), &mut prng);
    assert!(machine.buffered_bytes() > 1_000_000);
    machine.release_buffers(MOST);
    assert!(machine.buffered_bytes() <= 2 * MOST, "{}", machine.buffered_bytes());
    assert_eq!(evaluate(&mut machine, run_of("return 1", &[]), &mut prng), ":1\r\n");
}

#[test]
fn a_script_beyond_the_memory_limit_fails() {
    let mut machine = Machine::new(4 << 20).unwrap();
    let mut prng = Prng::from_seed(1);
    for text in [
        "local s = 'x' while true do s = s .. s end",
        "return redis.call('many', 9999) and cjson.encode({('x'):rep(3e6)})",
        "local t = {('x'):rep(1e6)} for i = 1, 24 do t = {t, t} end return t",
    ] {
        let reply = evaluate(&mut machine, run_of(text, &[]), &mut prng);
        assert!(reply.ends_with("not enough memory\r\n"), "{text}: {reply:.80}");
        assert!(machine.used_bytes() < 8 << 20);
    }
    assert_eq!(evaluate(&mut machine, run_of("return 1", &[]), &mut prng), ":1\r\n");
}

#[test] // `pairs` gives the order of tables that grew word by word.
fn keys_and_argv_tables_keep_luas_own_order() {
    let text = "KEYS[#KEYS + 2] = 'x' KEYS.y = 1 local t = {#KEYS, #ARGV}
        for k, v in pairs(KEYS) do t[#t + 1] = k .. '=' .. v end
        for k, v in pairs(ARGV) do t[#t + 1] = k .. '=' .. v end return t";
    for (keys, arguments) in (0..10).flat_map(|keys| [0, 1, 2, 3, 5, 8].map(|more| (keys, more))) {
        let words = |count| (0..count).map(|at: usize| format!("w{at}").into_bytes()).collect();
        let (keys, arguments): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (words(keys), words(arguments));
        let mut replies = Vec::new();
        for is_short in [false, true, false, true] {
            let mut machine = Machine::new(LIMIT).unwrap();
            let mut run = run_of(text, &[]);
            if is_short {
                let slices = |words: &'_ [Vec<u8>]| words.to_vec();
                let (keys, arguments) = (slices(&keys), slices(&arguments));
                let taken = machine.take_words(
                    keys.iter().map(Vec::as_slice),
                    arguments.iter().map(Vec::as_slice),
                );
                assert!(taken);
            } else {
                (run.keys, run.arguments) = (keys.clone(), arguments.clone());
            }
            replies.push(evaluate(&mut machine, run, &mut Prng::from_seed(3)));
        }
        assert!(replies.windows(2).all(|two| two[0] == two[1]), "{replies:?}");
    }
}

#[test]
fn a_run_abandoned_before_its_start_frees_its_arguments() {
    let mut machine = Machine::new(LIMIT).unwrap();
    for _ in 0..2 {
        assert!(machine.take_words([&b"k"[..]].into_iter(), [&b"a"[..]].into_iter()));
        machine.begin(run_of("return {KEYS[1], ARGV[1]}", &[]));
        while !machine.abandon(&Never) {}
        let reply =
            evaluate(&mut machine, run_of("return ARGV[1]", &[b"b"]), &mut Prng::from_seed(5));
        assert_eq!(reply, "$1\r\nb\r\n");
    }
}

// A request too large for a machine leaves nothing, and the memory of short replies is used again.
#[test]
fn arguments_and_replies_leave_no_memory() {
    let mut machine = Machine::new(4 << 20).unwrap();
    let long = vec![b'x'; 8 << 20];
    assert!(!machine.take_words([&*long].into_iter(), [].into_iter()));
    let mut prng = Prng::from_seed(4);
    let mut reply =
        |machine: &mut Machine, text| evaluate(machine, run_of(text, &[b"a"]), &mut prng);
    assert_eq!(reply(&mut machine, "return {#KEYS, ARGV[1]}"), "*2\r\n:0\r\n$1\r\na\r\n");
    machine.begin(run_of("return {'x', 1}", &[]));
    assert_eq!(machine.resume(&Never), Stop::Ended);
    assert_eq!(machine.short_reply(), Some(&b"*2\r\n$1\r\nx\r\n:1\r\n"[..]));
    machine.begin(run_of("return {'x', redis.error_reply('y')}", &[]));
    assert_eq!((machine.resume(&Never), machine.short_reply()), (Stop::Ended, None));
    assert_eq!(machine.take_reply().concat(), b"*2\r\n$1\r\nx\r\n-ERR y\r\n");
}
