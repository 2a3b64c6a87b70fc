//! Where io_uring is forbidden, as in container runtimes, the choice falls on epoll and says why.

use darter_runtime::net::{BackendChoice, Net, Wait, Waker};

/// Makes the kernel refuse system call `number` to the calling thread with EPERM, for good.
fn forbid(number: libc::c_long) {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_WORD, 0, 0, 0), // The system call's number is the first word that a filter sees.
        step(JUMP_IF_EQUAL, 0, 1, u32::try_from(number).unwrap()),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: it takes numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `filter` points to `program`, and both live for the call, which copies them.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) }, 0);
}

/// The result of `Auto` in a separate thread where `number` is forbidden.
fn fall_back_without(number: libc::c_long) -> String {
    let fall_back = move || {
        let waker = Waker::new().unwrap();
        forbid(number);
        assert!(Net::open(BackendChoice::Uring, &waker).is_err());
        let (mut net, reason) = Net::open(BackendChoice::Auto, &waker).unwrap();
        assert_eq!(net.back_name(), "epoll");
        waker.wake();
        let mut woken = 0;
        net.poll(Wait::Forever, &mut |_| woken += 1).unwrap();
        assert_eq!(woken, 1);
        reason.unwrap()
    };
    std::thread::spawn(fall_back).join().unwrap()
}

#[test] // Docker's default profile refuses it; some kernels lack the ring of buffers.
fn a_refused_io_uring_falls_back_to_epoll_with_a_reason() {
    let reason = fall_back_without(libc::SYS_io_uring_setup);
    assert!(reason.starts_with("io_uring_setup: "), "{reason}");
    if Net::open(BackendChoice::Uring, &Waker::new().unwrap()).is_ok() {
        let reason = fall_back_without(libc::SYS_io_uring_register);
        assert!(reason.starts_with("io_uring_register (buffer ring): "), "{reason}");
    }
}

#[test]
fn requested_epoll_is_used_without_a_reason() {
    let (net, reason) = Net::open(BackendChoice::Epoll, &Waker::new().unwrap()).unwrap();
    assert_eq!((net.back_name(), reason), ("epoll", None));
}
