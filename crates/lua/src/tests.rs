//! Tests of the VM through its public interface: scripts wait, are interrupted and are abandoned in
//! every place.

use crate::{Cx, Error, Outcome, Program, Progress, Start, Step, Stop, Type, Vm, Work};
use darter_base::Prng;
use darter_base::preempt::{Countdown, Never};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The host of the tests' functions. It holds the answers to `wait`, and the results of a script.
struct Host {
    answer: f64,
    waits: usize,
    result: Result<String, String>,
    drops: Rc<Cell<usize>>,
}

impl Default for Host {
    fn default() -> Self {
        Self { answer: 0.0, waits: 0, result: Ok(String::new()), drops: Rc::default() }
    }
}

/// A program that compiles and calls a text.
struct Script(&'static str);

impl Program<Host> for Script {
    fn start(&mut self, cx: &mut Cx<'_, Host>) -> Start {
        cx.lua.push_function::<Host>(handler).unwrap();
        if cx.lua.compile(self.0.as_bytes(), c"@script").unwrap() {
            return Start::Call(0);
        }
        cx.host.result = Err(text(cx));
        Start::End
    }

    fn finish(&mut self, cx: &mut Cx<'_, Host>, outcome: Outcome) -> Progress {
        cx.host.result = if outcome == Outcome::Returned { Ok(text(cx)) } else { Err(text(cx)) };
        Progress::Done(0)
    }
}

/// The value on top, as a text.
fn text(cx: &Cx<'_, Host>) -> String {
    match cx.lua.kind(-1) {
        Some(Type::Number) => cx.lua.number(-1).unwrap().to_string(),
        Some(Type::String) => String::from_utf8_lossy(cx.lua.bytes(-1).unwrap()).into_owned(),
        kind => format!("{kind:?}"),
    }
}

fn handler(_: &mut Cx<'_, Host>) -> Result<Step<Host>, Error> {
    Ok(Step::Return(1))
}

/// `wait(n)`: waits for the host, and returns n plus the host's answer.
fn wait(cx: &mut Cx<'_, Host>) -> Result<Step<Host>, Error> {
    let number = cx.lua.number(1).ok_or(Error::argument(1, "number expected"))?;
    let drops = cx.host.drops.clone();
    Ok(Step::Work(Box::new(Waiting { number, asked: false, drops })))
}

struct Waiting {
    number: f64,
    asked: bool,
    drops: Rc<Cell<usize>>,
}

impl Work<Host> for Waiting {
    fn step(&mut self, cx: &mut Cx<'_, Host>) -> Result<Progress, Error> {
        if !self.asked {
            self.asked = true;
            return Ok(Progress::Wait);
        }
        cx.lua.push_number(self.number + cx.host.answer)?;
        Ok(Progress::Done(1))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
    }
}

/// `fill(n)`: returns a table of n texts, made in portions.
fn fill(cx: &mut Cx<'_, Host>) -> Result<Step<Host>, Error> {
    let left = cx.lua.number(1).unwrap_or(0.0) as usize;
    cx.lua.push_table(0)?;
    Ok(Step::Work(Box::new(Filling { next: 1, left })))
}

struct Filling {
    next: usize,
    left: usize,
}

impl Work<Host> for Filling {
    fn step(&mut self, cx: &mut Cx<'_, Host>) -> Result<Progress, Error> {
        for _ in 0..100.min(self.left) {
            cx.lua.push_bytes(format!("key:{}", self.next).as_bytes())?;
            cx.lua.push_number(self.next as f64)?;
            cx.lua.set_pair(-3)?;
            self.next += 1;
            self.left -= 1;
        }
        Ok(if self.left == 0 { Progress::Done(1) } else { Progress::More })
    }
}

fn panics(_: &mut Cx<'_, Host>) -> Result<Step<Host>, Error> {
    panic!("a mistake of ours")
}

const MEBI: usize = 1 << 20;

fn vm(limit: usize) -> Vm<Host> {
    let mut vm = Vm::new(Host::default(), limit).unwrap();
    vm.with(|cx| {
        cx.lua.push_globals().unwrap();
        for (name, function) in
            [("wait", wait as crate::Function<Host>), ("fill", fill), ("panics", panics)]
        {
            cx.lua.push_function(function).unwrap();
            cx.lua.set(-2, name).unwrap();
        }
    });
    vm
}

/// Runs a text to its end without interruptions.
fn run(vm: &mut Vm<Host>, text: &'static str) -> Result<String, String> {
    vm.begin(Box::new(Script(text)));
    loop {
        match vm.resume(&Never) {
            Stop::Ended => return vm.host().result.clone(),
            Stop::Wait => answer(vm),
            Stop::Slice => unreachable!(),
        }
    }
}

fn answer(vm: &mut Vm<Host>) {
    vm.host().waits += 1;
    vm.host().answer = 1.0;
}

/// Scripts with their expected results, which must not depend on where they are suspended.
const SCRIPTS: &[(&str, Result<&str, &str>)] = &[
    ("return 1", Ok("1")),
    ("return wait(1) + wait(2)", Ok("5")),
    ("local ok, v = pcall(function() return wait(1) end) return v", Ok("2")),
    ("local ok, v = pcall(function() wait(1) error('x', 0) end) return v", Ok("x")),
    (
        "local t = {5, 3, 9, 1, 7} table.sort(t, function(a, b) return wait(a) < wait(b) end)
         return table.concat(t, ',')",
        Ok("1,3,5,7,9"),
    ),
    ("return (('a b c'):gsub('%a', function(c) return c .. wait(1) end))", Ok("a2 b2 c2")),
    (
        "local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(wait(i)) end end)
         return co() + co() + co()",
        Ok("9"),
    ),
    (
        "local t = setmetatable({}, {__index = function(t, k) return wait(k) end,
           __lt = function(a, b) return wait(1) == 2 end})
         return tostring(t[1] + t[2]) .. tostring(t < setmetatable({}, getmetatable(t)))",
        Ok("5true"),
    ),
    ("local n = 0 table.foreach({1, 2, 3}, function(k, v) n = n + wait(v) end) return n", Ok("9")),
    (
        "local part = 0 local f = load(function() part = part + 1 wait(1)
           return ({'return', ' 4', '2'})[part] end) return f()",
        Ok("42"),
    ),
    (
        "local ok, e = xpcall(function() error('x') end, function(e) return e .. wait(1) end)
         return e",
        Ok("script:1: x2"),
    ),
    ("local s = 0 for i = 1, 20000 do s = s + i end return s", Ok("200010000")),
    ("local t = fill(3000) local n = 0 for _ in pairs(t) do n = n + 1 end return n", Ok("3000")),
    ("local t = {} for i = 1, 5000 do t[i] = 'x' .. i end return #table.concat(t)", Ok("23893")),
    ("return #(('ab'):rep(50000):gsub('a', '%0%0'))", Ok("150000")),
    ("return wait(nil)", Err("script:1: bad argument #1 to 'wait' (number expected)")),
    ("local function f() return 1 + f() end return f()", Err("script:1: stack overflow")),
    ("return wait(1) .. nil", Err("script:1: attempt to concatenate a nil value")),
    ("x y", Err("script:1: '=' expected near 'y'")),
];

#[test]
fn scripts_can_be_suspended_at_every_kind_of_call() {
    let mut vm = vm(64 * MEBI);
    for (text, expected) in SCRIPTS {
        let result = run(&mut vm, text);
        let result = result.as_deref().map_err(String::as_str);
        assert_eq!(result, *expected, "{text}");
    }
    assert!(vm.host().waits > 40);
}

#[test] // Many VMs take turns; some runs are abandoned.
fn vms_with_random_slices_give_the_same_results() {
    for seed in 0..20 {
        let mut prng = Prng::from_seed(seed);
        let mut vms: Vec<_> = (0..8).map(|_| vm(64 * MEBI)).collect();
        let mut running = [None; 8];
        for _ in 0..4_000 {
            let index = prng.below(8) as usize;
            let vm = &mut vms[index];
            let Some(script) = running[index] else {
                let script = prng.below(SCRIPTS.len() as u64) as usize;
                vm.begin(Box::new(Script(SCRIPTS[script].0)));
                running[index] = Some(script);
                continue;
            };
            if prng.below(40) == 0 {
                while !vm.abandon(&Countdown::new(prng.below(3) as usize)) {}
                running[index] = None;
                continue;
            }
            match vm.resume(&Countdown::new(prng.below(4) as usize)) {
                Stop::Slice => {}
                Stop::Wait => answer(vm),
                Stop::Ended => {
                    let result = vm.host().result.clone();
                    let result = result.as_deref().map_err(String::as_str);
                    let (text, expected) = SCRIPTS[script];
                    assert_eq!(result, expected, "seed {seed}: {text}");
                    running[index] = None;
                }
            }
        }
    }
}

/// Collects all garbage.
struct Collect;

impl Program<Host> for Collect {
    fn start(&mut self, cx: &mut Cx<'_, Host>) -> Start {
        for _ in 0..2 {
            while !cx.lua.collect_step() {}
        }
        Start::End
    }

    fn finish(&mut self, _: &mut Cx<'_, Host>, _: Outcome) -> Progress {
        Progress::Done(0)
    }
}

fn collect(vm: &mut Vm<Host>) -> usize {
    vm.begin(Box::new(Collect));
    assert_eq!(vm.resume(&Never), Stop::Ended);
    vm.used_bytes()
}

#[test] // Thousands of them.
fn abandoned_runs_leave_no_memory_and_no_work() {
    let mut vm = vm(64 * MEBI);
    let mut prng = Prng::from_seed(1);
    let text = "local t = {} for i = 1, 300 do t[i] = {i, 'x' .. i} end
        local co = coroutine.wrap(function() pcall(function()
            table.sort(t, function(a, b) if wait(1) == 7 then return 1 end return a[1] > b[1] end)
        end) end) co() return 1";
    run(&mut vm, "return 1").unwrap();
    let before = collect(&mut vm);
    let mut waits = 0;
    for _ in 0..3_000 {
        vm.begin(Box::new(Script(text)));
        for _ in 0..prng.below(12) {
            match vm.resume(&Countdown::new(prng.below(6) as usize)) {
                Stop::Slice => {}
                Stop::Wait => {
                    waits += 1;
                    answer(&mut vm);
                }
                Stop::Ended => panic!("it is longer"),
            }
        }
        assert!(vm.abandon(&Never));
        assert!(vm.is_idle());
    }
    assert!(waits > 1_000, "{waits}");
    let after = collect(&mut vm);
    assert!(after <= before + 4096, "{before} bytes before, {after} after");
    assert!(vm.host().drops.get() + 2 >= waits, "{} of {waits}", vm.host().drops.get());
}

#[test] // A running parser holds memory outside the collector.
fn abandoned_parsers_leave_no_memory() {
    let mut vm = vm(64 * MEBI);
    let before = collect(&mut vm);
    for _ in 0..200 {
        vm.begin(Box::new(Script(
            "local n = 0 load(function() n = n + 1 if n > 20 then wait(1) end
               return n == 1 and 'return \"' or ('x'):rep(1000) end)",
        )));
        while vm.resume(&Never) != Stop::Wait {}
        assert!(vm.abandon(&Never));
    }
    let after = collect(&mut vm);
    assert!(after <= before + 4096, "{before} bytes before, {after} after");
}

/// Loops that never end, each in a different part of Lua.
const ENDLESS: &[&str] = &[
    "while true do end",
    "local function f() return f() end f()",
    "while true do pcall(error, 'x') end",
    "local t = {} for i = 1, 100 do t[i] = i end
     table.sort(t, function(a, b) while true do end end)",
    "coroutine.wrap(function() while true do end end)()",
    "while true do pcall(wait, 1) end",
    "local s = ('a'):rep(20000) s:find('.-.-b')",
    "local s = ('a'):rep(500000) s:find(('a'):rep(250000) .. 'b', 1, true)",
    "while true do local t = {} for i = 1, 2000 do t[i] = {} end end",
    "while true do local s = '' for i = 1, 200 do s = s .. i end end",
    "while true do collectgarbage() end",
    "while true do loadstring(('x = 1 '):rep(1000)) end",
];

#[test] // Repeatedly, and the run can be abandoned.
fn endless_loops_are_interrupted() {
    let mut vm = vm(64 * MEBI);
    for text in ENDLESS {
        vm.begin(Box::new(Script(text)));
        for _ in 0..200 {
            match vm.resume(&Countdown::new(1)) {
                Stop::Slice => {}
                Stop::Wait => answer(&mut vm),
                Stop::Ended => panic!("{text}: {:?}", vm.host().result),
            }
        }
        while !vm.abandon(&Countdown::new(10)) {}
    }
    assert_eq!(run(&mut vm, "return 1"), Ok("1".into()));
}

#[test]
fn a_suspended_script_reports_its_line() {
    let mut vm = vm(64 * MEBI);
    vm.begin(Box::new(Script("local x = 1\nwhile true do x = x + 1 end")));
    while vm.location().is_none() {
        assert_eq!(vm.resume(&Countdown::new(0)), Stop::Slice);
    }
    let place = vm.location().unwrap();
    assert_eq!((&*place.source, place.line), (&b"@script"[..], 2));
    assert!(vm.abandon(&Never));
    vm.begin(Box::new(Script("\n\nreturn wait(1)")));
    while vm.resume(&Never) != Stop::Wait {}
    assert_eq!(vm.location().unwrap().line, 3);
}

#[test]
fn a_new_run_reports_no_line_of_the_previous_run() {
    let mut vm = vm(1 << 20);
    vm.begin(Box::new(Script("coroutine.wrap(function() while true do end end)()")));
    while vm.location().is_none() {
        assert_eq!(vm.resume(&Countdown::new(1)), Stop::Slice);
    }
    assert!(vm.abandon(&Never));
    vm.begin(Box::new(Script("return 1")));
    assert!(vm.location().is_none());
}

#[test] // pcall sees it, and the VM stays usable.
fn exceeding_the_memory_limit_raises_a_lua_error() {
    let mut vm = vm(8 * MEBI);
    let cases = [
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e9)",
        "return fill(1e7)",
    ];
    for text in cases {
        assert_eq!(run(&mut vm, text), Err("not enough memory".into()), "{text}");
        assert!(vm.used_bytes() < 16 * MEBI, "{text}: {}", vm.used_bytes());
    }
    assert_eq!(
        run(&mut vm, "local ok, e = pcall(function() return ('x'):rep(1e9) end) return e"),
        Ok("not enough memory".into())
    );
    // Garbage alone must not cause the error.
    let text = "for i = 1, 200 do local s = ('x'):rep(500000) end return 1";
    assert_eq!(run(&mut vm, text), Ok("1".into()));
}

#[test]
fn the_deepest_recursion_fits_the_stack() {
    let mut vm = vm(64 * MEBI);
    let nested = [
        "local function f(n) return (('x'):gsub('x', function() return f(n + 1) end)) end f(1)",
        "local function f(n) table.sort({1, 2}, function() f(n + 1) end) end f(1)",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() local ok, e = pcall(f) if not ok then error(e, 0) end end f()",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "local function f(n) return string.format('%s', (('x'):gsub('(((((x)))))', f))) end f(1)",
    ];
    for text in nested {
        let error = run(&mut vm, text).unwrap_err();
        assert!(error.contains("stack overflow") || error.contains("table:"), "{text}: {error}");
    }
    let text = "return ('a'):rep(200000):find(('a?'):rep(200000))";
    assert_eq!(run(&mut vm, text), Err("script:1: pattern too complex".into()));
    let text = "return (('a'):rep(1900):find(('a?'):rep(1900)))";
    assert_eq!(run(&mut vm, text), Ok("1".into()));
}

#[test] // Across Lua's frames.
fn a_panic_in_a_host_function_reaches_the_caller() {
    let mut vm = vm(64 * MEBI);
    vm.begin(Box::new(Script("pcall(function() panics() end)")));
    let result = catch_unwind(AssertUnwindSafe(|| vm.resume(&Never)));
    assert_eq!(*result.unwrap_err().downcast_ref::<&str>().unwrap(), "a mistake of ours");
    assert_eq!(run(&mut vm, "return 1"), Ok("1".into()));
}

#[test]
fn a_vm_with_an_unfinished_run_can_be_dropped() {
    for portions in 0..50 {
        let mut vm = vm(64 * MEBI);
        vm.begin(Box::new(Script("local t = fill(20000) while true do t[#t + 1] = wait(1) end")));
        let _ = vm.resume(&Countdown::new(portions));
    }
}

#[test] // Bytecode, ranges, long brackets.
fn known_vulnerabilities_of_lua_are_closed() {
    let mut vm = vm(64 * MEBI);
    let text = "return select(2, loadstring(string.dump(function() end)))";
    let error = run(&mut vm, text).unwrap();
    assert!(error.contains("unexpected symbol near 'char(27)'"), "{error}");
    for text in ["return {unpack({}, 1, 1e8)}", "return {unpack({}, -2147483648, 2147483647)}"] {
        assert_eq!(run(&mut vm, text), Err("script:1: too many results to unpack".into()));
    }
    let text = "return select(2, loadstring('return ' .. '[' .. ('='):rep(100000)))";
    let error = run(&mut vm, text).unwrap();
    assert!(error.contains("invalid long string delimiter"), "{error}");
    let text = "local s = ('x'):rep(1e5) collectgarbage('setpause', 1)
        for i = 1, 100 do loadstring('return 1', '@' .. i .. s) end return 1";
    assert_eq!(run(&mut vm, text), Ok("1".into()));
}
