//! The only module of the bench that speaks to the kernel without std in between.
//!
//! Everything here is a thin, safe face over one system call, with the error left as the kernel gave it.

#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Set once somebody pressed Ctrl-C or asked us to end: loops look at it and unwind, so that guards kill the contenders.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

pub fn catch_interrupts() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler does one atomic store, which is async-signal-safe.
        unsafe { libc::signal(signal, handler) };
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[derive(Debug)]
pub struct Epoll(OwnedFd);

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub token: u64,
    pub flags: u32,
}

impl Epoll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn add(&self, fd: &impl AsRawFd, token: u64, flags: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), token, flags)
    }

    pub fn change(&self, fd: &impl AsRawFd, token: u64, flags: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), token, flags)
    }

    pub fn remove(&self, fd: &impl AsRawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, token: u64, flags: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags, u64: token };
        // SAFETY: `event` lives through the call, and the kernel only reads it.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) }).map(drop)
    }

    /// Moves what is pending into `events` and returns without waiting longer than `timeout_ms`.
    pub fn wait(&self, events: &mut Vec<Event>, timeout_ms: i32) -> io::Result<()> {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; 256];
        // SAFETY: `raw` has room for the 256 events that the kernel may write.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), raw.as_mut_ptr(), 256, timeout_ms) };
        events.clear();
        match check(count) {
            Ok(count) => {
                events.extend(raw[..count as usize].iter().map(|e| Event { token: e.u64, flags: e.events }));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Epoll {
    /// As `wait`, and wakes up to the microsecond.
    pub fn wait_for(&self, events: &mut Vec<Event>, time: std::time::Duration) -> io::Result<()> {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; 256];
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(time.subsec_nanos()),
        };
        let (set, size) = (std::ptr::null::<libc::sigset_t>(), mem::size_of::<libc::sigset_t>());
        // SAFETY: `raw` has room for the 256 events that the kernel may write, `time` lives through the call, and no
        // set of signals is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                raw.as_mut_ptr(),
                256,
                &raw const time,
                set,
                size,
            )
        };
        events.clear();
        match check(count as libc::c_int) {
            Ok(count) => {
                events.extend(raw[..count as usize].iter().map(|e| Event { token: e.u64, flags: e.events }));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Lets the timers of this thread fire when they are due, and not 50 µs later.
pub fn wake_up_in_time() {
    // SAFETY: no pointers are passed; the kernel keeps its default if it does not know the option.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Lets all other threads run before this one: whoever wakes up takes the core from it at once.
pub fn yield_to_others() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a value that outlives the call; without success the thread runs as before.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
}

fn raw_addr(addr: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*addr.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

const ADDR_LEN: libc::socklen_t = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;

fn socket(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd =
        check(unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) }).map(drop)
}

fn bind(fd: &OwnedFd, addr: SocketAddrV4) -> io::Result<()> {
    let addr = raw_addr(addr);
    // SAFETY: pointer and length describe `addr`, which lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), ADDR_LEN) }).map(drop)
}

fn connect(fd: &OwnedFd, addr: SocketAddrV4) -> io::Result<()> {
    let addr = raw_addr(addr);
    // SAFETY: pointer and length describe `addr`, which lives through the call.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), ADDR_LEN) }) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

/// Listens with a deep queue, so that bursts of connections wait there and are not retransmitted a second later.
pub fn tcp_listen(addr: SocketAddrV4) -> io::Result<OwnedFd> {
    let fd = socket(libc::SOCK_STREAM)?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    bind(&fd, addr)?;
    // SAFETY: no pointers are passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), 4096) })?;
    Ok(fd)
}

/// Begins to connect; the socket is writable once it has.
pub fn tcp_connect(addr: SocketAddrV4) -> io::Result<OwnedFd> {
    let fd = socket(libc::SOCK_STREAM)?;
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    connect(&fd, addr)?;
    Ok(fd)
}

pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers tell the kernel that the peer's address is not wanted.
    let fd = check(unsafe {
        libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
    })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    Ok(fd)
}

/// The address that an accepted connection came to.
pub fn local_ip(fd: &OwnedFd) -> io::Result<Ipv4Addr> {
    let mut addr = raw_addr(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    let mut len = ADDR_LEN;
    // SAFETY: `addr` has `len` bytes of room, and both live through the call.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut addr).cast(), &mut len) })?;
    Ok(Ipv4Addr::from(u32::from_be(addr.sin_addr.s_addr)))
}

fn roomy(fd: &OwnedFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20)
}

/// What the kernel keeps of either direction.
pub fn set_buffers(fd: &OwnedFd, bytes: usize) -> io::Result<()> {
    // It doubles them.
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes as libc::c_int / 2)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes as libc::c_int / 2)
}

pub fn udp_bind(addr: SocketAddrV4) -> io::Result<OwnedFd> {
    let fd = socket(libc::SOCK_DGRAM)?;
    roomy(&fd)?;
    bind(&fd, addr)?;
    Ok(fd)
}

pub fn udp_connect(addr: SocketAddrV4) -> io::Result<OwnedFd> {
    let fd = socket(libc::SOCK_DGRAM)?;
    connect(&fd, addr)?;
    Ok(fd)
}

pub fn recv(fd: &OwnedFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `buf`.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), 0) })
}

/// Takes up to `len` bytes off a TCP stream without copying them anywhere (tcp(7), MSG_TRUNC).
pub fn recv_and_drop(fd: &OwnedFd, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes to no buffer, so a null pointer is never followed.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) })
}

pub fn send(fd: &OwnedFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `buf`, which the kernel only reads.
    check_len(unsafe { libc::send(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len(), libc::MSG_NOSIGNAL) })
}

/// Room for a batch of datagrams with their senders, so that one call moves many.
pub struct Datagrams {
    payloads: Vec<[u8; Self::SIZE]>,
    senders: Vec<libc::sockaddr_in>,
    lens: Vec<usize>,
}

impl Datagrams {
    pub const BATCH: usize = 64;
    pub const SIZE: usize = 2048;

    pub fn new() -> Self {
        Self {
            payloads: vec![[0; Self::SIZE]; Self::BATCH],
            senders: vec![raw_addr(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)); Self::BATCH],
            lens: vec![0; Self::BATCH],
        }
    }

    pub fn payload(&mut self, index: usize) -> &mut [u8] {
        &mut self.payloads[index][..self.lens[index]]
    }

    /// Reads a batch and returns how many datagrams it holds.
    pub fn receive(&mut self, fd: &OwnedFd) -> io::Result<usize> {
        self.lens.fill(Self::SIZE);
        let (mut headers, _vectors) = self.headers(Self::BATCH);
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: every header points into `self` and `_vectors`, both alive and unmoved until after the call.
        let count = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as u32,
                flags as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        for (len, header) in self.lens.iter_mut().zip(&headers[..count]) {
            *len = header.msg_len as usize;
        }
        Ok(count)
    }

    /// Sends the first `count` datagrams back to whom they came from.
    pub fn answer(&mut self, fd: &OwnedFd, count: usize) -> io::Result<usize> {
        let (mut headers, _vectors) = self.headers(count);
        // SAFETY: every header points into `self` and `_vectors`, both alive and unmoved until after the call.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as u32, 0) };
        check(sent).map(|sent| sent as usize)
    }

    fn headers(&mut self, count: usize) -> (Vec<libc::mmsghdr>, Vec<libc::iovec>) {
        let mut vectors: Vec<libc::iovec> = self.payloads[..count]
            .iter_mut()
            .zip(&self.lens)
            .map(|(payload, len)| libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: *len })
            .collect();
        let headers = vectors
            .iter_mut()
            .zip(&mut self.senders)
            .map(|(vector, sender)| {
                // SAFETY: an all-zero msghdr is a valid one with nothing in it.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_name = (sender as *mut libc::sockaddr_in).cast();
                header.msg_hdr.msg_namelen = ADDR_LEN;
                header
            })
            .collect();
        (headers, vectors)
    }
}

pub fn pin_to(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set; CPU_SET writes within it for the small `core` given.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: pointer and length describe `set`; 0 means the calling thread.
    check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) }).map(drop)
}

/// Lets this thread run on every core again.
fn unpin() -> io::Result<()> {
    // SAFETY: a cpu_set_t is bits alone, so all of them may be set; cores that are not there are left out.
    let set: libc::cpu_set_t = unsafe { mem::transmute([0xff_u8; mem::size_of::<libc::cpu_set_t>()]) };
    // SAFETY: pointer and length describe `set`; 0 means the calling thread.
    check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) }).map(drop)
}

/// Makes the child a group of its own that is asked to end when we die in whatever way; pinned to `core`, if any.
pub fn confine_child(command: &mut Command, core: Option<usize>) {
    command.process_group(0);
    let confine = move || {
        core.map_or_else(unpin, pin_to)?;
        // SAFETY: no pointers are passed; the signal goes to this child when its parent's thread ends.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) }).map(drop)
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(confine) };
}

pub fn signal_group(leader: u32, signal: libc::c_int) {
    // SAFETY: no pointers are passed. A group that is gone already is no error for us.
    unsafe { libc::kill(-(leader as libc::pid_t), signal) };
}

/// Moves this thread, and so all its later children and sockets, into a network of its own with only a loopback.
pub fn enter_own_network() -> io::Result<()> {
    // SAFETY: no pointers are passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    let probe = socket(libc::SOCK_DGRAM)?;
    // SAFETY: an all-zero ifreq is valid; name and flags are set below.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives through the call.
    check(unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCSIFFLAGS, &mut request) }).map(drop)
}

/// Raises the soft limit of open files to the hard one and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_cur)
}

pub fn ticks_per_second() -> u64 {
    // SAFETY: no pointers are passed.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

/// Seconds that children which were waited for ran on a core.
pub fn children_time() -> io::Result<f64> {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one rusage.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) })?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

pub fn own_thread() -> i32 {
    // SAFETY: no pointers are passed, and it cannot fail.
    unsafe { libc::gettid() }
}
