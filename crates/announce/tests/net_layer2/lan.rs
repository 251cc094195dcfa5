//! A bridge with hosts and a client, and a gateway, which is the bridge.

use std::{net::IpAddr, process::Stdio};

use seaway_testkit::topology::{Namespace, Running, command, until};

use crate::host::{VARIABLE, control};

pub(crate) const V4: &str = "10.77.0.100";
pub(crate) const V6: &str = "fd77::100";
pub(crate) const KEY: &str = "a secret that has thirty-two characters";

pub(crate) struct Lan {
    pub(crate) switch: Namespace,
    pub(crate) client: Namespace,
    pub(crate) hosts: Vec<Machine>,
    has_v4: bool,
    /// Hosts that are started next know of those up to this one; of all, without.
    pub(crate) knows: Option<usize>,
}

pub(crate) struct Machine {
    pub(crate) namespace: Namespace,
    pub(crate) name: String,
    process: Option<Running>,
    /// Where its process takes commands.
    port: u16,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Lan {
    pub(crate) fn new(hosts: usize) -> Lan {
        Lan::of(hosts, true)
    }

    /// With IPv6, and with IPv4 or without.
    pub(crate) fn of(hosts: usize, has_v4: bool) -> Lan {
        let switch = Namespace::create("switch");
        switch.ip(&["link", "add", "br0", "type", "bridge"]);
        switch.address("br0", "10.77.0.254/24");
        switch.address("br0", "fd77::254/64");
        let plug = |role: &str, last: usize| {
            let namespace = Namespace::create(role);
            namespace.cable("eth0", &switch, &format!("p{last}"));
            switch.ip(&["link", "set", &format!("p{last}"), "master", "br0", "up"]);
            if has_v4 {
                namespace.address("eth0", &format!("10.77.0.{last}/24"));
                namespace.route("default", "10.77.0.254");
            }
            namespace.address("eth0", &format!("fd77::{last}/64"));
            namespace.route("default", "fd77::254");
            namespace
        };
        let client = plug("client", 9);
        let machine = |at: usize| Machine {
            namespace: plug(&format!("h{at}"), at + 1),
            name: format!("host-{at}"),
            process: None,
            port: 9,
        };
        let hosts = (0..hosts).map(machine).collect();
        Lan { switch, client, hosts, has_v4, knows: None }
    }

    pub(crate) fn start(&mut self, host: usize, addresses: &str) {
        self.start_with(host, addresses, KEY);
    }

    pub(crate) fn start_with(&mut self, host: usize, addresses: &str, key: &str) {
        self.start_by(host, addresses, key, &[]);
    }

    /// Without NET_RAW.
    pub(crate) fn start_restricted(&mut self, host: usize, addresses: &str) {
        self.start_by(
            host,
            addresses,
            KEY,
            &["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"],
        );
    }

    /// Another process on that host, which goes on when the one before, which it gives, has stopped.
    pub(crate) fn start_next(&mut self, host: usize, addresses: &str) -> Predecessor {
        let this = &mut self.hosts[host];
        let before = Predecessor { port: this.port, process: this.process.take().expect("it runs") };
        this.port += 1;
        self.start(host, addresses);
        before
    }

    fn start_by(&mut self, host: usize, addresses: &str, key: &str, by: &[&str]) {
        let knows = self.knows;
        let all = self.hosts.iter().enumerate().filter(|(at, _)| knows.is_none_or(|knows| *at <= knows));
        let net = if self.has_v4 { "10.77.0." } else { "fd77::" };
        let peers: Vec<String> = all.map(|(at, it)| format!("{}={net}{}", it.name, at + 1)).collect();
        let this = &mut self.hosts[host];
        let told = format!("{};{key};{};{addresses};{}", this.name, peers.join(","), this.port);
        let program = std::env::current_exe().expect("this test");
        let program = program.to_string_lossy();
        let line = [by, &[&*program]].concat();
        let mut command = this.namespace.command(line[0]);
        command
            .args(&line[1..])
            .args(["--ignored", "--exact", "host::a_host"])
            .env(VARIABLE, told)
            .stdout(Stdio::null());
        this.process = Some(Running::start(&mut command));
    }

    pub(crate) fn start_all(&mut self, addresses: &str) {
        (0..self.hosts.len()).for_each(|host| self.start(host, addresses));
    }

    pub(crate) fn at(&self, name: &str) -> usize {
        self.hosts.iter().position(|it| it.name == name).expect("a host of that name")
    }

    /// Takes a host off the network, though its link stays up: as a switch does that fails.
    pub(crate) fn cut(&self, host: usize) {
        self.switch.ip(&["link", "set", &format!("p{}", host + 1), "nomaster"]);
    }

    pub(crate) fn mend(&self, host: usize) {
        self.switch.ip(&["link", "set", &format!("p{}", host + 1), "master", "br0"]);
    }
}

pub(crate) struct Predecessor {
    port: u16,
    process: Running,
}

impl Predecessor {
    pub(crate) fn stop(self, on: &Namespace) {
        on.run(|| control(self.port, "stop ")).expect("it heard");
        drop(self.process);
    }
}

impl Machine {
    fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("it runs").id();
        command("kill", &[name, &id.to_string()]);
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn wake(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn tell(&self, command: &str) -> Option<String> {
        self.namespace.run(|| control(self.port, command))
    }

    pub(crate) fn states(&self) -> String {
        self.tell("states ").unwrap_or_default()
    }

    pub(crate) fn until_it_says(&self, what: &str) {
        until(&format!("{} says {what}", self.name), || self.states().contains(what));
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        mac(&self.namespace)
    }
}

pub(crate) fn mac(namespace: &Namespace) -> [u8; 6] {
    let told = namespace.ip(&["-br", "link", "show", "dev", "eth0"]);
    let text = told.split_whitespace().find(|it| it.matches(':').count() == 5).expect("a MAC");
    let bytes: Vec<u8> = text.split(':').map(|it| u8::from_str_radix(it, 16).expect("hexadecimal")).collect();
    bytes.try_into().expect("six bytes")
}
