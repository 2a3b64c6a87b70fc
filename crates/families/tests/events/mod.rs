//! The events in the log, compared with those that redis-server 7.0.15 publishes:
//! `notify-keyspace-events KEAmn`, line by line and at random, on one core and several. Events
//! newer than that server stand in a table.

use crate::common::oracle::{Oracle, Published};
use crate::common::unix_millis;
use crate::common::world::World;
use darter_base::Prng;
use darter_command::Flags;
use darter_families::TABLES;
use darter_keyspace::{Act, Reader, Wants};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long those live that are to die.
const DIES_MS: u64 = 20;

/// Commands with what they need, in order. `WAIT` lets die what dies in [`DIES_MS`]; `DB` selects.
const LINES: &[&str] = &[
    "SET k v",
    "SET k v EX 100",
    "SET k w KEEPTTL",
    "SET k v XX",
    "SET k v NX",
    "SET k v GET",
    "SET gone v NX PX 100000",
    "SETNX nx v",
    "SETNX nx w",
    "GETSET k w",
    "SETEX k 100 v",
    "PSETEX k 100000 v",
    "MSET a 1 b 2 a 3",
    "MSETNX a 1 z 2",
    "MSETNX y 1 z 2 x 3",
    "APPEND k more",
    "APPEND k ",
    "APPEND fresh text",
    "SETRANGE k 2 xx",
    "SETRANGE k 2 ",
    "SETRANGE new 3 x",
    "SETRANGE none 3 ",
    "SETRANGE long 20000 x",
    "APPEND long xyz",
    "SETRANGE long 5 abc",
    "SETBIT bits 7 1",
    "SETBIT bits 7 1",
    "SETBIT bits 7 0",
    "SETBIT bits 100 0",
    "SETBIT long 8 1",
    "SETBIT long 8 1",
    "SETBIT long 200000 0",
    "SETBIT k 5 1",
    "BITFIELD bits SET u8 0 5 INCRBY u8 #1 1",
    "BITFIELD bits SET u8 0 5 GET u8 0",
    "BITFIELD bits OVERFLOW FAIL SET u8 0 300",
    "BITFIELD bits OVERFLOW FAIL SET u8 800 300",
    "BITFIELD bits OVERFLOW FAIL SET u8 1600 300 SET u8 0 0",
    "BITFIELD fail OVERFLOW FAIL SET u8 0 300",
    "BITFIELD zero SET u8 0 0",
    "BITFIELD long SET u8 0 5 SET u8 8 6",
    "BITFIELD long GET u8 0",
    "BITOP AND k2 k bits",
    "BITOP NOT k2 k2",
    "BITOP OR k2 no no2",
    "BITOP OR k2 no no2",
    "BITOP XOR bits bits long",
    "PFADD hll a b",
    "PFADD hll a b",
    "PFADD hll",
    "PFADD hll2",
    "PFCOUNT hll",
    "PFCOUNT hll hll2 nohll",
    "PFCOUNT nohll",
    "PFMERGE hll3 hll nohll",
    "PFMERGE hll3 hll hll2",
    "PFDEBUG TODENSE hll",
    "PFADD hll c",
    "PFADD hll c",
    "PFCOUNT hll",
    "PFMERGE hll2 hll",
    "PFADD k a",
    "INCR n",
    "INCR n",
    "INCRBY n 0",
    "DECR n",
    "DECRBY n 5",
    "INCRBYFLOAT n 0.5",
    "INCRBYFLOAT f 0.25",
    "GETDEL f",
    "GETDEL f",
    "GETEX n EX 100",
    "GETEX n PERSIST",
    "GETEX n PERSIST",
    "GETEX n",
    "GETEX n PXAT 1",
    "GET n",
    "HSET h f v g w",
    "HSET h f v",
    "HMSET h f x",
    "HSETNX h f y",
    "HSETNX h i y",
    "HINCRBY h n 1",
    "HINCRBY h n 0",
    "HINCRBYFLOAT h n 0.5",
    "HINCRBYFLOAT h m 1.5",
    "HINCRBY fresh-h n 1",
    "HINCRBYFLOAT fresher-h n 1",
    "HDEL h none",
    "HDEL h f none",
    "HDEL h g i n m",
    "HDEL h g",
    "RPUSH l a b c",
    "LPUSH l d",
    "RPUSHX l e f",
    "LPUSHX l g",
    "RPUSHX no-l x",
    "LPUSHX no-l x",
    "LSET l 0 x",
    "LSET l 0 x",
    "LTRIM l 0 -1",
    "LTRIM l 1 -2",
    "LTRIM no-l 0 1",
    "LPOP l",
    "RPOP l 1",
    "RPOP l 0",
    "LPOP no-l",
    "LPOP l 2",
    "RPOP l 5",
    "RPUSH l a",
    "RPOP l",
    "RPUSH l a b",
    "LTRIM l 2 1",
    "RPUSH l a b a c",
    "LINSERT l BEFORE b x",
    "LINSERT l AFTER none x",
    "LINSERT no-l AFTER b x",
    "LREM l 0 a",
    "LREM l 0 a",
    "LREM no-l 0 a",
    "LMOVE l fresh-l LEFT RIGHT",
    "LMOVE l fresh-l RIGHT LEFT",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l l LEFT LEFT",
    "LMOVE no-l l LEFT RIGHT",
    "RPOPLPUSH l fresh-l",
    "RPOPLPUSH fresh-l fresh-l",
    "RPOPLPUSH no-l l",
    "RPUSH l a b",
    "LMPOP 2 no-l l RIGHT",
    "LMPOP 2 l fresh-l LEFT COUNT 5",
    "LMPOP 2 l fresh-l LEFT COUNT 50",
    "LMPOP 1 no-l LEFT",
    "RPUSH bl 1 2 3 4 5 6 7",
    "BLPOP no-l bl 0",
    "BRPOP bl 0",
    "BLMPOP 0 2 no-l bl LEFT COUNT 2",
    "BLMOVE bl bl-to LEFT RIGHT 0",
    "BRPOPLPUSH bl bl-to 0",
    "BLPOP bl 0",
    "RPUSH l a a",
    "LREM l 0 a",
    "SADD s 1 2 3",
    "SADD s 1 2",
    "SADD s x 4 5 6 7",
    "SREM s none",
    "SREM s 1 none",
    "SADD t 2 9",
    "SMOVE s t 3",
    "SMOVE s t 2",
    "SMOVE s t none",
    "SMOVE t t 9",
    "SMOVE s fresh-s x",
    "SINTERSTORE d s t",
    "SUNIONSTORE d s t",
    "SDIFFSTORE d t s",
    "SINTERSTORE d s none",
    "SINTERSTORE d s none",
    "SUNIONSTORE k s",
    "SADD one x",
    "SMOVE one s x",
    "SADD one x",
    "SREM one x",
    "SPOP s 100",
    "SPOP s 100",
    "SADD s x",
    "SPOP s",
    "SPOP s",
    "SADD s a b",
    "SPOP s 0",
    "ZADD zz 1 a 2 b 3 c",
    "ZADD zz 1 a",
    "ZADD zz 2 a 4 d",
    "ZADD zz NX 9 a",
    "ZADD zz XX 9 none",
    "ZADD zz CH 9 a",
    "ZADD zz GT 1 a",
    "ZADD zz INCR 1 a",
    "ZADD zz INCR 0 a",
    "ZADD zz NX INCR 1 a",
    "ZADD absent XX 1 a",
    "ZINCRBY zz 1 a",
    "ZINCRBY zz 1 new",
    "ZINCRBY zz 0 new",
    "ZINCRBY fresh-z 1 a",
    "ZREM zz none",
    "ZREM zz new none",
    "ZREM fresh-z a",
    "ZREM fresh-z a",
    "ZRANGESTORE zr zz 0 1",
    "ZRANGESTORE zr zz 5 9",
    "ZRANGESTORE zr zz 5 9",
    "ZUNIONSTORE zu 2 zz t",
    "ZINTERSTORE zi 2 zz zu",
    "ZDIFFSTORE zd 2 zu zz",
    "ZINTERSTORE zd 2 zz none",
    "ZINTERSTORE zd 2 zz none",
    "ZUNIONSTORE t 1 zz",
    "RPUSH sl 3 1 2",
    "SORT sl",
    "SORT sl STORE sd",
    "SORT sl DESC GET # GET sl-* STORE sd",
    "SORT sl LIMIT 5 1 STORE sd",
    "SORT sl LIMIT 5 1 STORE sd",
    "SORT none STORE sl",
    "RPUSH sl 3 1 2 x",
    "SORT sl STORE sd",
    "SORT t ALPHA STORE st",
    "SORT_RO t ALPHA",
    "ZPOPMIN zu",
    "ZPOPMAX zu 2",
    "ZPOPMIN zu 0",
    "ZPOPMIN zi 100",
    "ZPOPMIN zi",
    "ZMPOP 2 zi zu MIN",
    "ZMPOP 2 zi zu MAX COUNT 100",
    "ZMPOP 2 zi zu MAX",
    "GEOADD places 1 1 a 2 2 b 3 3 c",
    "GEOADD places 1 1 a",
    "GEOADD places NX 9 9 a 4 4 d",
    "GEOADD places XX 9 9 none",
    "GEOADD places CH 9 9 a",
    "GEOADD none XX 9 9 a",
    "GEOSEARCHSTORE near places FROMLONLAT 2 2 BYRADIUS 1000 km",
    "GEOSEARCHSTORE near places FROMLONLAT 50 50 BYRADIUS 1 m",
    "GEOSEARCHSTORE near places FROMLONLAT 50 50 BYRADIUS 1 m",
    "GEORADIUS places 2 2 1000 km STORE near",
    "GEORADIUS places 2 2 1000 km STOREDIST near",
    "GEORADIUS places 2 2 1000 km",
    "GEORADIUSBYMEMBER places b 1000 km STORE near",
    "GEORADIUSBYMEMBER no b 1000 km STORE near",
    "GEORADIUSBYMEMBER no b 1000 km STOREDIST near",
    "ZADD zx 1 a 2 b 3 c 4 d 5 e 6 f",
    "ZREMRANGEBYRANK zx 0 0",
    "ZREMRANGEBYRANK zx 9 9",
    "ZREMRANGEBYSCORE zx 2 3",
    "ZREMRANGEBYSCORE zx 20 30",
    "ZREMRANGEBYSCORE zx -inf inf",
    "ZADD zx 0 a 0 b 0 c",
    "ZREMRANGEBYLEX zx [a [b",
    "ZREMRANGEBYLEX zx [x [y",
    "ZREMRANGEBYLEX zx - +",
    "ZADD zx 0 a 0 b",
    "ZREMRANGEBYRANK zx 0 -1",
    "XADD x 1 f v",
    "XADD x 2 f v g w",
    "XADD x 2 f v",
    "XADD no-x NOMKSTREAM 1 f v",
    "XADD x NOMKSTREAM 3 f v",
    "XADD x MAXLEN 2 4 f v",
    "XADD x MAXLEN 9 5 f v",
    "XADD x MAXLEN ~ 1 6 f v",
    "XADD x MINID 5 7 f v",
    "XADD fresh-x MAXLEN 0 1 f v",
    "XDEL x 5 6",
    "XDEL x 5 6",
    "XDEL no-x 5",
    "XADD x 8 f v",
    "XTRIM x MAXLEN 9",
    "XTRIM x MINID 8",
    "XTRIM x MAXLEN 0",
    "XTRIM no-x MAXLEN 0",
    "XSETID x 9",
    "XSETID x 9",
    "XSETID x 10 ENTRIESADDED 10 MAXDELETEDID 3",
    "XSETID no-x 9",
    "XADD x 9 f v",
    "XADD x 11 f v",
    "XDEL x 11",
    "XADD x 12 f v",
    "XGROUP CREATE x g 0",
    "XGROUP CREATE x g 0",
    "XGROUP CREATE no-x g 0",
    "XGROUP CREATE gx g $ MKSTREAM",
    "XGROUP CREATECONSUMER x g c",
    "XGROUP CREATECONSUMER x g c",
    "XREADGROUP GROUP g d COUNT 1 STREAMS x >",
    "XREADGROUP GROUP g d STREAMS x >",
    "XREADGROUP GROUP g d STREAMS x 0",
    "XREADGROUP GROUP g e STREAMS x 0",
    "XREADGROUP GROUP g e STREAMS no-x 0",
    "XCLAIM x g h 0 12",
    "XCLAIM x g h 0 13",
    "XCLAIM no-x g h 0 13",
    "XACK x g 12",
    "XACK x g 12",
    "XACK no-x g 12",
    "XCLAIM x g j 0 12 FORCE",
    "XAUTOCLAIM x g k 0 0",
    "XAUTOCLAIM x g l 100000 0",
    "XGROUP SETID x g 0",
    "XREADGROUP GROUP g m NOACK STREAMS x >",
    "XGROUP DELCONSUMER x g k",
    "XGROUP DELCONSUMER x g k",
    "XPENDING x g",
    "XPENDING no-x g",
    "XINFO GROUPS no-x",
    "XINFO CONSUMERS no-x g",
    "XGROUP DESTROY x g",
    "XGROUP DESTROY x g",
    "XGROUP DESTROY no-x g",
    "EXPIRE s 100",
    "EXPIRE s 100 NX",
    "PEXPIRE s 100000",
    "EXPIREAT s 99999999999",
    "PEXPIREAT s 99999999999999",
    "PERSIST s",
    "PERSIST s",
    "EXPIRE none 100",
    "EXPIRE s -1",
    "SADD s a b",
    "RENAME s s",
    "RENAME s r",
    "SET o v",
    "RENAME r o",
    "RENAMENX o o",
    "SET p v",
    "RENAMENX o p",
    "RENAMENX o q",
    "COPY q qq",
    "COPY q qq",
    "COPY q qq REPLACE",
    "COPY q qq DB 1",
    "MOVE q 1",
    "SET q v",
    "MOVE q 1",
    "DB 1",
    "SET q v",
    "MOVE q 0",
    "DB 0",
    "DEL q none qq p",
    "UNLINK a b none",
    "DEL a",
    "SET m v PX 20",
    "SADD ms 1",
    "PEXPIRE ms 20",
    "WAIT",
    "EXISTS m ms",
    "SET m v PX 20",
    "WAIT",
    "SET m w",
    "SADD ms 1",
    "PEXPIRE ms 20",
    "WAIT",
    "SADD ms 2",
    "SET m v PX 20",
    "WAIT",
    "DEL m",
    "SWAPDB 0 1",
    "FLUSHDB",
    "SET k v",
    "FLUSHALL",
    "SET k v",
    "SADD s a",
    "HSET h f v",
    "GET k",
    "GET no",
    "GET s",
    "STRLEN no",
    "GETRANGE no 0 1",
    "GETBIT no 0",
    "BITCOUNT no",
    "BITPOS no 1",
    "BITFIELD no GET u8 0",
    "BITFIELD_RO no GET u8 0",
    "BITOP OR ored no k none",
    "SUBSTR no 0 1",
    "GETEX no",
    "GETEX no PERSIST",
    "GETDEL no",
    "GETSET no v",
    "SET no2 v GET",
    "SET no3 v XX",
    "SET no3 v XX GET",
    "MGET k no no s",
    "LCS k no",
    "EXISTS k no no",
    "TOUCH k no",
    "TYPE no",
    "TTL no",
    "PTTL no",
    "EXPIRETIME no",
    "PEXPIRETIME no",
    "OBJECT ENCODING no",
    "OBJECT IDLETIME no",
    "MEMORY USAGE no",
    "HGET no f",
    "HGET h none",
    "HMGET no f",
    "HLEN no",
    "HSTRLEN no f",
    "HEXISTS no f",
    "HGETALL no",
    "HKEYS no",
    "HVALS no",
    "HRANDFIELD no",
    "HRANDFIELD no 2",
    "HSCAN no 0",
    "XLEN no",
    "XRANGE no - +",
    "XREVRANGE no + -",
    "XINFO STREAM no",
    "LLEN no",
    "LINDEX no 0",
    "LRANGE no 0 -1",
    "LPOS no x",
    "LPUSHX no x",
    "LSET no 0 x",
    "LTRIM no 0 1",
    "LPOP no",
    "RPOP no 1",
    "SCARD no",
    "SISMEMBER no m",
    "SMISMEMBER no m",
    "SMEMBERS no",
    "SRANDMEMBER no",
    "SRANDMEMBER no 2",
    "SSCAN no 0",
    "SORT no",
    "SORT_RO no BY w-*",
    "RPUSH pair 2 1",
    "SORT pair ALPHA BY w-*->f GET v-* GET v-* GET #",
    "SORT pair BY nosort GET w-* STORE pairs",
    "ZSCORE no m",
    "ZMSCORE no m",
    "ZCARD no",
    "ZRANK no m",
    "ZREVRANK no m",
    "ZCOUNT no 0 1",
    "ZLEXCOUNT no - +",
    "ZRANGE no 0 1",
    "ZRANGEBYSCORE no 0 1",
    "ZRANDMEMBER no",
    "ZRANDMEMBER no 2",
    "ZSCAN no 0",
    "ZUNION 2 no s",
    "ZINTER 2 s no",
    "ZINTERCARD 2 s no",
    "ZDIFF 2 s no",
    "ZREM no a",
    "ZPOPMIN no",
    "ZMPOP 2 no none MIN",
    "ZADD bz 1 a 2 b 3 c 4 d",
    "BZPOPMIN no bz 0",
    "BZPOPMAX bz 0",
    "BZMPOP 0 2 no bz MIN COUNT 9",
    "ZREMRANGEBYRANK no 0 1",
    "ZRANGESTORE z2 no 0 1",
    "ZUNIONSTORE z3 2 no s",
    "SINTER nix s",
    "SINTER s none",
    "SUNION nix s none",
    "SDIFF s none",
    "SINTERCARD 2 s none",
    "SUNIONSTORE s2 s none",
    "SINTERSTORE s3 none s",
    "SDIFFSTORE s4 none s",
    "SMOVE none s a",
    "SREM none a",
    "SPOP none",
    "SPOP none 3",
    "HDEL none f",
    "EXPIRE none 3",
    "PERSIST none",
    "COPY none k",
    "RENAMENX none k",
    "MOVE none 1",
    "SET over v",
    "COPY k over REPLACE",
    "RENAME k over",
    "RANDOMKEY",
    "KEYS *",
    "SCAN 0",
];

/// Commands that redis-server 7.0 does not have, with the events of Redis 8 or Dragonfly.
const NEWER: &[(&str, &[&str])] = &[
    ("SET k 5", &["new", "set"]),
    ("INCREX k BYINT 2", &["incrby"]),
    ("INCREX k BYFLOAT 0.5 EX 100", &["incrbyfloat", "expire"]),
    ("DELEX k IFEQ other", &[]),
    ("DELEX k", &["del"]),
    ("MSETEX 2 a 1 b 2 EX 100", &["new", "set", "expire", "new", "set", "expire"]),
    ("HSETEX h EX 100 FIELDS 1 f v", &["new", "hset", "hexpire"]),
    ("HSETEX h FIELDS 1 g v", &["hset"]),
    ("HEXPIRE h 100 FIELDS 2 f g", &["hexpire"]),
    ("HPEXPIRE h 100000 FIELDS 1 f", &["hexpire"]),
    ("HEXPIREAT h 9999999999 FIELDS 1 f", &["hexpire"]),
    ("HPEXPIREAT h 99999999999 FIELDS 1 none", &[]),
    ("HPEXPIREAT h 9999999999999 FIELDS 1 f", &["hexpire"]),
    ("HPERSIST h FIELDS 1 f", &["hpersist"]),
    ("HGETEX h EX 100 FIELDS 1 f", &["hexpire"]),
    ("HGETEX h FIELDS 1 f", &[]),
    ("HGETEX h PERSIST FIELDS 1 f", &["hpersist"]),
    ("HEXPIRE h 0 FIELDS 1 f", &["hdel"]),
    ("HGETDEL h FIELDS 1 none", &[]),
    ("HGETDEL h FIELDS 1 g", &["hdel", "del"]),
    ("SADDEX s 100 a b", &["new", "sadd"]),
    ("FIELDEXPIRE s 50 a", &[]),
    ("HSET h f v", &["new", "hset"]),
    ("FIELDEXPIRE h 50 f", &["hexpire"]),
    ("JSON.SET j $ {\"a\":1,\"b\":[1,2],\"s\":\"x\",\"t\":true}", &["new", "json.set"]),
    ("JSON.SET j $.a 2 NX", &[]),
    ("JSON.SET j $.c 3", &["json.set"]),
    ("JSON.MERGE j $ {\"c\":null}", &["json.merge"]),
    ("JSON.NUMINCRBY j $.a 1", &["json.numincrby"]),
    ("JSON.NUMMULTBY j $.a 2", &["json.nummultby"]),
    ("JSON.STRAPPEND j $.s \"y\"", &["json.strappend"]),
    ("JSON.ARRAPPEND j $.b 3", &["json.arrappend"]),
    ("JSON.ARRINSERT j $.b 0 0", &["json.arrinsert"]),
    ("JSON.ARRPOP j $.b", &["json.arrpop"]),
    ("JSON.ARRTRIM j $.b 0 1", &["json.arrtrim"]),
    ("JSON.TOGGLE j $.t", &["json.toggle"]),
    ("JSON.TOGGLE j $.a", &[]),
    ("JSON.CLEAR j $.b", &["json.clear"]),
    ("JSON.CLEAR j $.b", &[]),
    ("JSON.DEL j $.a", &["json.del"]),
    ("JSON.FORGET j", &["json.del", "del"]),
    ("JSON.MSET j $ 1", &["new", "json.set"]),
    ("BF.RESERVE bf 0.01 100", &["new", "bf.reserve"]),
    ("BF.ADD bf x", &["bf.add"]),
    ("BF.ADD bf x", &[]),
    ("BF.MADD bf x y z", &["bf.add"]),
    ("BF.INSERT bg CAPACITY 5 ITEMS x", &["new", "bf.reserve", "bf.add"]),
    ("BF.LOADCHUNK none 2 x", &[]),
    ("CF.RESERVE cf 100", &["new", "cf.reserve"]),
    ("CF.ADD cf x", &["cf.add"]),
    ("CF.ADDNX cf x", &[]),
    ("CF.INSERT cf ITEMS x y", &["cf.add"]),
    ("CF.INSERTNX cg CAPACITY 50 ITEMS x", &["new", "cf.reserve", "cf.add"]),
    ("CF.DEL cf x", &["cf.del"]),
    ("CF.DEL cf other", &[]),
    ("CF.LOADCHUNK none 2 x", &[]),
    ("CMS.INITBYDIM cm 10 3", &["new", "cms.initbydim"]),
    ("CMS.INITBYPROB cp 0.01 0.01", &["new", "cms.initbyprob"]),
    ("CMS.INCRBY cm a 1 b 2", &["cms.incrby"]),
    ("CMS.MERGE cm 2 cm cm WEIGHTS 1 2", &["cms.merge"]),
    ("TOPK.RESERVE tk 1 10 3 1", &["new", "topk.reserve"]),
    ("TOPK.ADD tk a b", &["topk.add"]),
    ("TOPK.INCRBY tk a 2 b 3", &["topk.incrby"]),
    ("TOPK.REPLAY tk EXPEL LIST a 9", &["topk.add"]),
    ("TDIGEST.CREATE td", &["new", "tdigest.create"]),
    ("TDIGEST.ADD td 1 2 3", &["tdigest.add"]),
    ("TDIGEST.MERGE te 2 td td", &["new", "tdigest.merge"]),
    ("TDIGEST.RESET td", &["tdigest.reset"]),
    ("PREPEND p text", &["new", "prepend"]),
    ("PREPEND p more", &["prepend"]),
    ("CL.THROTTLE t 0 1 100", &["new", "set", "expire"]),
    ("CL.THROTTLE t 0 1 100", &[]),
    ("CL.THROTTLE t 3 1 100 0", &[]),
    ("CL.THROTTLE t 3 1 100 2", &["set", "expire"]),
    ("RM 0 MATCH p", &["del"]),
    ("RM 0 MATCH p", &[]),
    ("RPUSH lm 1 2 3", &["new", "rpush"]),
    ("LMOVEM lm ln LEFT RIGHT COUNT 2 BULK", &["lpop", "new", "rpush"]),
    ("BLMOVEM ln ln LEFT RIGHT 0 COUNT 1 BULK", &["lpop", "rpush"]),
    ("LMOVEM ln ln LEFT RIGHT COUNT 2 OBO", &["lpop", "rpush"]),
    ("LMOVEM lm ln LEFT LEFT EXACTLY 2 OBO", &[]),
    ("LMOVEM lm ln LEFT LEFT COUNT 9 OBO", &["lpop", "del", "lpush"]),
    ("XADD new-x 1 f v", &["new", "xadd"]),
    ("XADD new-x 2 f v", &["xadd"]),
    ("XADD new-x 3 f v", &["xadd"]),
    ("XGROUP CREATE new-x g 0", &["xgroup-create"]),
    ("XREADGROUP GROUP g c STREAMS new-x >", &["xgroup-createconsumer"]),
    ("XNACK new-x g FAIL IDS 1 1", &[]),
    ("XDELEX new-x ACKED IDS 1 1", &[]),
    ("XDELEX new-x DELREF IDS 1 1", &["xdel"]),
    ("XACKDEL new-x g IDS 1 2", &["xdel"]),
    ("XACKDEL new-x g IDS 1 2", &[]),
    ("XADD new-x MAXLEN 1 ACKED 4 f v", &["xadd"]),
    ("XTRIM new-x MAXLEN 1 DELREF", &["xtrim"]),
    ("XADD new-x IDMP p m * f v", &["xadd"]),
    ("XADD new-x IDMP p m * f v", &[]),
    ("XCFGSET new-x IDMP-MAXSIZE 5", &[]),
];

/// Our side: cores whose logs are read.
struct Ours {
    world: World,
    readers: Vec<Reader>,
    now: u64,
}

impl Ours {
    fn new(cores: usize, seed: u64) -> Self {
        let now = unix_millis();
        let world = World::new(cores, now, seed);
        let readers = world.cores.iter().map(|tx| tx.home().shard.join(Wants::ALL)).collect();
        Self { world, readers, now }
    }

    /// Runs a command. Returns its events: database, event, key.
    fn run(&mut self, words: &[&[u8]]) -> Vec<Published> {
        self.world.run(words);
        self.told()
    }

    fn wait(&mut self) -> Vec<Published> {
        self.now += DIES_MS;
        self.world.set_now(self.now);
        self.world.cores.iter().for_each(|tx| while tx.home().shard.reap(64) {});
        self.told()
    }

    fn told(&self) -> Vec<Published> {
        let mut told = Vec::new();
        for tx in &self.world.cores {
            for record in tx.home().shard.take_records() {
                let (Act::Key(key, _) | Act::Miss(key)) = &record.act else { continue };
                let of = |name: &str| (record.database, name.to_owned(), key.to_vec());
                told.extend(record.events.iter().map(|event| of(event.name)));
            }
        }
        told
    }
}

/// Both servers, and the values to compare them by.
struct Both {
    ours: Ours,
    oracle: Oracle,
    cores: usize,
}

impl Both {
    fn new(name: &str, cores: usize) -> Self {
        let mut oracle = Oracle::start(name);
        oracle.run(&[b"CONFIG", b"SET", b"notify-keyspace-events", b"KEAmn"]);
        oracle.subscribe();
        Self { ours: Ours::new(cores, 7), oracle, cores }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (found, wanted) = match words[0] {
            b"WAIT" => {
                std::thread::sleep(Duration::from_millis(2 * DIES_MS));
                (self.ours.wait(), Vec::new())
            }
            b"DB" => {
                self.ours.world.db = line[3..].parse().unwrap();
                self.oracle.run(&[b"SELECT", words[1]]);
                return;
            }
            _ => {
                let found = self.ours.run(&words);
                self.oracle.run(&words);
                (found, self.oracle.published())
            }
        };
        self.compare(line, found, wanted);
    }

    /// With several cores only the events of one key are in order, and the oracle reports a move
    /// between two keys first. A key that dies during a wait is reported at once by the oracle when
    /// it looks at it, or before.
    fn compare(&mut self, line: &str, mut found: Vec<Published>, mut wanted: Vec<Published>) {
        let is_death = |told: &Published| told.1 == "expired";
        found.retain(|told| !is_death(told));
        wanted.retain(|told| !is_death(told));
        let names = ["SMOVE", "LMOVE", "BLMOVE", "RPOPLPUSH", "BRPOPLPUSH", "MOVE", "RENAME"];
        let moves = names.iter().any(|name| line.starts_with(name));
        if self.cores > 1 || moves {
            found.sort_by(|one, other| (one.0, &one.2).cmp(&(other.0, &other.2)));
            wanted.sort_by(|one, other| (one.0, &one.2).cmp(&(other.0, &other.2)));
        }
        assert_eq!(found, wanted, "{line} on {} cores", self.cores);
    }
}

#[test] // Their keys and their order, too.
fn keyspace_events_equal_those_of_redis() {
    for cores in [1, 3] {
        let mut both = Both::new(&format!("events-{cores}"), cores);
        LINES.iter().for_each(|line| both.line(line));
    }
}

#[test] // By the sweeper, or by a write to the expired entry.
fn expired_is_published_once_per_key() {
    let deaths = |told: &[Published]| told.iter().filter(|told| told.1 == "expired").count();
    let words = |line: &'static str| line.split(' ').map(str::as_bytes).collect::<Vec<_>>();
    for over in
        ["SET k w", "SADD k m", "DEL k", "RENAME other k", "SUNIONSTORE k set", "APPEND k x"]
    {
        let mut ours = Ours::new(1, 3);
        ours.run(&words("SET other v"));
        ours.run(&words("SADD set m"));
        ours.run(&words("SET k v PX 20"));
        ours.now += DIES_MS;
        ours.world.set_now(ours.now);
        let told = ours.run(&words(over));
        let first = told.iter().find(|told| told.2 == b"k").map(|told| told.1.as_str());
        assert_eq!((deaths(&told), first), (1, Some("expired")), "{over}: {told:?}");
        assert_eq!(deaths(&ours.wait()), 0, "{over}");
        ours.run(&words("SET k v PX 20"));
        assert_eq!(deaths(&ours.wait()), 1, "swept");
    }
}

#[test]
fn newer_commands_publish_the_documented_events() {
    let mut ours = Ours::new(1, 5);
    for (line, wanted) in NEWER {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let told: Vec<String> = ours.run(&words).into_iter().map(|(_, event, _)| event).collect();
        assert_eq!(told, *wanted, "{line}");
    }
}

#[test] // The key is removed with its last field.
fn expired_fields_publish_hexpired_as_in_redis_7_4() {
    let mut ours = Ours::new(1, 5);
    ours.run(&[b"HSET", b"h", b"f", b"v", b"g", b"w"]);
    ours.run(&[b"HPEXPIRE", b"h", b"20", b"FIELDS", b"1", b"f"]);
    let events = |told: Vec<Published>| told.into_iter().map(|told| told.1).collect::<Vec<_>>();
    assert_eq!(events(ours.wait()), ["hexpired"]);
    ours.run(&[b"HPEXPIRE", b"h", b"20", b"FIELDS", b"1", b"g"]);
    assert_eq!(events(ours.wait()), ["hexpired", "del"]);
}

#[test]
fn commands_in_slices_publish_the_same_events() {
    let mut both = Both::new("events-large", 1);
    let names = |from: usize, count: usize, width: usize| -> String {
        let name = |at: usize| format!(" name-{at}").repeat(width);
        (from..from + count).map(name).collect()
    };
    let scored = |from: usize, count: usize| -> String {
        (from..from + count).map(|at| format!(" {} name-{at}", at % 100)).collect()
    };
    let placed = |from: usize, count: usize| -> String {
        (from..from + count).map(|at| format!(" {} {} name-{at}", at % 180, at % 77)).collect()
    };
    let text = "x".repeat(300_000);
    for line in [
        format!("HSET h{}", names(0, 2_000, 2)),
        format!("HSET h{}", names(1_000, 300, 2)),
        format!("HDEL h{}", names(100, 400, 1)),
        format!("HDEL h{}", names(5_000, 400, 1)),
        format!("HDEL h{}", names(0, 2_000, 1)),
        format!("SADD s{}", names(0, 2_000, 1)),
        format!("SADD s{}", names(1_000, 700, 1)),
        format!("SREM s{}", names(100, 400, 1)),
        format!("SREM s{}", names(5_000, 400, 1)),
        format!("ZADD z{}", scored(0, 2_000)),
        format!("ZADD z{}", scored(1_000, 700)),
        format!("ZREM z{}", names(100, 400, 1)),
        format!("ZREM z{}", names(5_000, 400, 1)),
        format!("GEOADD geo{}", placed(0, 2_000)),
        format!("GEOADD geo{}", placed(1_000, 700)),
        "GEOSEARCHSTORE near geo FROMLONLAT 0 0 BYRADIUS 20000 km".into(),
        "ZUNIONSTORE y 2 z s WEIGHTS 2 1".into(),
        "ZINTERSTORE x 2 y z".into(),
        "ZRANGESTORE w z 100 -100".into(),
        "ZPOPMAX w 1000".into(),
        "ZREMRANGEBYRANK z 100 -100".into(),
        format!("ZREM y{}", names(0, 2_000, 1)),
        format!("APPEND k {text}"),
        format!("APPEND k {text}"),
        format!("SETRANGE k 1000000 {text}"),
        format!("BITFIELD bits{}", " SET u8 #3 1 INCRBY u16 9 5".repeat(400)),
        format!("BITFIELD bits{}", " GET u8 #3".repeat(800)),
        format!("BITFIELD bits{}", " OVERFLOW FAIL SET u8 #900 300".repeat(600)),
        format!("BITFIELD nobits{}", " GET u8 #3".repeat(800)),
        "BITOP NOT k k".to_owned(),
        format!("MSET{}", names(0, 400, 2)),
        format!("DEL{}", names(0, 400, 1)),
        format!("XADD t 1{}", names(0, 2_000, 2)),
        format!("XADD t MAXLEN 1 2{}", names(0, 2_000, 2)),
        format!("XADD t 3{}", names(0, 2_000, 2)),
        format!("XDEL t{}", (0..2_000).map(|at| format!(" {at}")).collect::<String>()),
        format!("XDEL t{}", (0..2_000).map(|at| format!(" {at}")).collect::<String>()),
        format!("RPUSH l{}", names(0, 2_000, 1)),
        format!("LPUSH l{}", names(0, 400, 1)),
        "LPOP l 1000".to_owned(),
        "LREM l 0 name-1500".to_owned(),
        "LREM l 0 none".to_owned(),
        "LINSERT l BEFORE name-1800 x".to_owned(),
        "RPOP l 5000".to_owned(),
        "SUNIONSTORE d s".to_owned(),
        format!("SREM s{}", names(0, 2_000, 1)),
    ] {
        both.line(&line);
    }
    both.line(&format!("SADD p{}", names(0, 3_000, 1)));
    for count in [3, 50, 100, 1_900, 2_000] {
        both.line(&format!("SPOP p {count}"));
    }
}

#[test]
fn commands_on_many_pending_entries_publish_the_same_events() {
    let mut both = Both::new("events-large-groups", 1);
    (1..=700).for_each(|at| both.line(&format!("XADD u {at} f v")));
    let ids = |from: usize, to: usize| (from..to).map(|id| format!(" {id}")).collect::<String>();
    for line in [
        "XGROUP CREATE u g 0".to_owned(),
        "XREADGROUP GROUP g a STREAMS u >".to_owned(),
        "XREADGROUP GROUP g a STREAMS u 0".to_owned(),
        format!("XACK u g{}", ids(1, 300)),
        format!("XCLAIM u g b 0{}", ids(200, 650)),
        "XAUTOCLAIM u g c 0 0 COUNT 300".to_owned(),
        "XPENDING u g".to_owned(),
        "XPENDING u g IDLE 100000 - + 10".to_owned(),
        "XGROUP DELCONSUMER u g c".to_owned(),
    ] {
        both.line(&line);
    }
}

#[test] // The keys are looked up in cuts.
fn each_missing_key_of_a_huge_request_publishes_a_miss() {
    for cores in [1, 3] {
        let mut both = Both::new(&format!("events-misses-{cores}"), cores);
        both.line("MSET name-3 v name-600 w");
        let names: String = (0..700).map(|at| format!(" name-{at}")).collect();
        for command in ["EXISTS", "TOUCH", "MGET"] {
            both.line(&format!("{command}{names}"));
        }
    }
}

#[test]
fn misses_are_published_only_to_subscribers_of_misses() {
    let mut ours = Ours::new(1, 5);
    ours.world.cores[0].home().shard.set_wants(ours.readers[0], Wants::CHANGES);
    assert_eq!(ours.run(&[b"GET", b"k"]), []);
    ours.world.cores[0].home().shard.set_wants(ours.readers[0], Wants::ALL);
    assert_eq!(ours.run(&[b"GET", b"k"]), [(0, "keymiss".to_owned(), b"k".to_vec())]);
}

#[test]
fn commands_in_random_order_publish_the_same_events_as_redis() {
    let lasting = |line: &&&str| {
        let word = line.split(' ').next().unwrap();
        let may_wait = ["BL", "BR", "BZ"].iter().any(|begin| word.starts_with(begin));
        // Random choices and deaths would make the two differ; and a blocking command in a random
        // order would find nothing.
        !["SPOP", "WAIT", "DB", "SWAPDB"].contains(&word) && !line.contains(" 20") && !may_wait
    };
    let lines: Vec<&str> = LINES.iter().filter(lasting).copied().collect();
    let mut prng = Prng::from_seed(12);
    let mut both = Both::new("events-random", 1);
    for _ in 0..4_000 {
        let line = lines[usize::try_from(prng.below(lines.len() as u64)).unwrap()];
        if !line.starts_with("FLUSH") || prng.chance(10) {
            both.line(line);
        }
    }
}

#[test]
fn every_write_command_is_in_an_event_table() {
    let lines = LINES.iter().copied().chain(NEWER.iter().map(|(line, _)| *line));
    // A line names a command, or a subcommand.
    let names = |line: &str| {
        let words: Vec<_> = line.to_lowercase().split(' ').map(str::to_owned).collect();
        [words[0].clone(), words[..words.len().min(2)].join("|")]
    };
    let told: BTreeSet<String> = lines.flat_map(names).collect();
    let rows = TABLES.iter().copied().flatten().filter(|row| row.flags.has(Flags::WRITE));
    let forgotten: Vec<&str> =
        rows.map(|row| row.name).filter(|name| !told.contains(*name)).collect();
    assert_eq!(forgotten, Vec::<&str>::new());
}
