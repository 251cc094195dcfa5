//! Whether this host keeps silent about addresses on `lo` when the network asks by ARP.
//!
//! By default Linux answers on any interface for an address on any other, so that every host with
//! an address of a pool would claim it. Of each setting, the larger one of `all` and of the
//! interface counts (Documentation/networking/ip-sysctl.rst). IPv6 has no such habit: a neighbour
//! solicitation is answered only where the address is.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::Link;

/// What sets the kernel's own defaults for all interfaces, to be typed as root.
pub const ARP_DEFAULTS: &str = "sysctl -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0";

/// The settings, where the kernel keeps them.
#[derive(Clone, Debug)]
pub struct ArpSettings {
    root: PathBuf,
}

impl Default for ArpSettings {
    fn default() -> ArpSettings {
        ArpSettings::at(Path::new("/proc/sys"))
    }
}

impl ArpSettings {
    /// Another place than `/proc/sys`, for tests.
    pub fn at(root: &Path) -> ArpSettings {
        ArpSettings { root: root.to_owned() }
    }

    /// What does not hold on these links.
    pub fn observe(&self, links: &[Link]) -> Vec<UnmetSetting> {
        Setting::ALL
            .into_iter()
            .flat_map(|setting| links.iter().filter_map(move |link| self.unmet(setting, link)))
            .collect()
    }

    /// Sets what does not hold, for all interfaces at once where that is enough, and says what
    /// still does not hold. Stricter settings of others stay.
    pub fn enforce(&self, links: &[Link]) -> Vec<UnmetSetting> {
        let missing = self.observe(links);
        if missing.is_empty() {
            return missing;
        }
        for setting in Setting::ALL {
            let of_setting = || missing.iter().filter(|unmet| unmet.setting == setting);
            if of_setting().next().is_some() && self.value(setting, ALL).is_ok_and(|all| !setting.holds(all))
            {
                // The outcome is what is read back below.
                let _ = self.set(setting, ALL);
            }
            for unmet in of_setting() {
                let effective = self.effective(setting, &unmet.interface);
                if effective.is_ok_and(|value| !setting.holds(value)) {
                    let _ = self.set(setting, &unmet.interface);
                }
            }
        }
        self.observe(links)
    }

    /// As [`ArpSettings::enforce`], and for interfaces that are yet to come.
    pub fn enforce_for_good(&self, links: &[Link]) -> EnforcedSettings {
        let all = Link { index: 0, name: ALL.to_owned(), up: true, loopback: false };
        let links: Vec<Link> = links.iter().cloned().chain([all]).collect();
        let (before, unmet) = (self.observe(&links), self.enforce(&links));
        let mut set: Vec<String> = before.iter().map(UnmetSetting::command).collect();
        set.retain(|command| !unmet.iter().any(|it| it.command() == *command));
        set.sort();
        set.dedup();
        EnforcedSettings { set, unmet }
    }

    fn unmet(&self, setting: Setting, link: &Link) -> Option<UnmetSetting> {
        if !link.up || link.loopback {
            return None;
        }
        let found = match self.effective(setting, &link.name) {
            Ok(value) if setting.holds(value) => return None,
            Ok(value) => Some(value),
            // An interface that went away in between answers nobody.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.has_all(setting) => {
                return None;
            }
            Err(_) => None,
        };
        let all_is_wrong = !self.value(setting, ALL).is_ok_and(|all| all == 0 || setting.holds(all));
        let own = self.value(setting, &link.name).unwrap_or(0);
        Some(UnmetSetting {
            setting,
            interface: link.name.clone(),
            found,
            // With a larger but weaker value on the interface, changing `all` would do nothing.
            remedy: if own > setting.required_value() && !all_is_wrong {
                link.name.clone()
            } else {
                ALL.to_owned()
            },
        })
    }

    fn effective(&self, setting: Setting, interface: &str) -> io::Result<u32> {
        Ok(self.value(setting, ALL)?.max(self.value(setting, interface)?))
    }

    fn has_all(&self, setting: Setting) -> bool {
        self.value(setting, ALL).is_ok()
    }

    fn value(&self, setting: Setting, interface: &str) -> io::Result<u32> {
        let text = fs::read_to_string(self.path(setting, interface))?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn set(&self, setting: Setting, interface: &str) -> io::Result<()> {
        fs::write(self.path(setting, interface), setting.required_value().to_string())
    }

    fn path(&self, setting: Setting, interface: &str) -> PathBuf {
        let folder = self.root.join("net/ipv4/conf").join(interface);
        folder.join(setting.name())
    }
}

/// What came of settings that are to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnforcedSettings {
    /// What was done, as one would type it.
    pub set: Vec<String>,
    pub unmet: Vec<UnmetSetting>,
}

/// The pseudo-interface whose settings hold for all of them.
const ALL: &str = "all";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Answer only for addresses of the interface that was asked.
    ArpIgnore,
    /// Ask only in the name of addresses of the interface that asks.
    ArpAnnounce,
}

impl Setting {
    const ALL: [Setting; 2] = [Setting::ArpIgnore, Setting::ArpAnnounce];

    pub fn name(self) -> &'static str {
        match self {
            Setting::ArpIgnore => "arp_ignore",
            Setting::ArpAnnounce => "arp_announce",
        }
    }

    pub fn required_value(self) -> u32 {
        match self {
            Setting::ArpIgnore => 1,
            Setting::ArpAnnounce => 2,
        }
    }

    /// What to type, as root, to have both for all interfaces.
    pub(crate) fn commands() -> impl Iterator<Item = String> {
        Setting::ALL.into_iter().map(|setting| setting.command(ALL))
    }

    fn command(self, interface: &str) -> String {
        let (name, wanted) = (self.name(), self.required_value());
        // With slashes, a name may contain dots, as those of VLAN interfaces do.
        if interface.contains('.') {
            format!("sysctl -w net/ipv4/conf/{interface}/{name}={wanted}")
        } else {
            format!("sysctl -w net.ipv4.conf.{interface}.{name}={wanted}")
        }
    }

    /// 2 and 8 of arp_ignore are stricter than 1; 3 and the reserved values in between are weaker,
    /// although they are larger.
    fn holds(self, value: u32) -> bool {
        match self {
            Setting::ArpIgnore => matches!(value, 1 | 2 | 8),
            Setting::ArpAnnounce => value == 2,
        }
    }
}

/// A setting that does not hold on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetSetting {
    pub setting: Setting,
    pub interface: String,
    /// The value that counts there; none if it cannot be read.
    pub found: Option<u32>,
    remedy: String,
}

impl UnmetSetting {
    /// What to type, as root.
    pub fn command(&self) -> String {
        self.setting.command(&self.remedy)
    }
}

impl fmt::Display for UnmetSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, interface) = (self.setting.name(), &self.interface);
        match self.found {
            Some(found) => write!(f, "{name} has the effective value {found} on {interface}")?,
            None => write!(f, "{name} of {interface} cannot be read")?,
        }
        write!(f, "; to set it, run as root: {}", self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(values: &[(&str, u32, u32)]) -> (tempfile::TempDir, Vec<Link>) {
        let root = tempfile::tempdir().expect("a temporary folder");
        let mut links = Vec::new();
        for (index, (name, ignore, announce)) in (1..).zip(values) {
            let folder = root.path().join("net/ipv4/conf").join(name);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("arp_ignore"), format!("{ignore}\n")).expect("a file");
            fs::write(folder.join("arp_announce"), format!("{announce}\n")).expect("a file");
            links.push(Link { index, name: (*name).to_owned(), up: true, loopback: *name == "lo" });
        }
        links.retain(|link| link.name != ALL);
        (root, links)
    }

    #[track_caller]
    fn check(values: &[(&str, u32, u32)], unmet: &[&str], afterwards: &[(&str, u32, u32)]) {
        let (root, links) = host(values);
        let arp = ArpSettings::at(root.path());
        let commands: Vec<_> = arp.observe(&links).iter().map(UnmetSetting::command).collect();
        assert_eq!(commands, unmet, "{values:?}");
        assert_eq!(arp.enforce(&links), []);
        for (name, ignore, announce) in afterwards {
            assert_eq!(arp.value(Setting::ArpIgnore, name).ok(), Some(*ignore), "{name}");
            assert_eq!(arp.value(Setting::ArpAnnounce, name).ok(), Some(*announce), "{name}");
        }
    }

    #[test]
    fn one_setting_for_all_interfaces_is_enough() {
        check(
            &[("all", 0, 0), ("lo", 0, 0), ("eth0", 0, 0)],
            &["sysctl -w net.ipv4.conf.all.arp_ignore=1", "sysctl -w net.ipv4.conf.all.arp_announce=2"],
            &[("all", 1, 2), ("eth0", 0, 0), ("lo", 0, 0)],
        );
    }

    #[test]
    fn stricter_settings_of_others_stay() {
        check(&[("all", 2, 2), ("eth0", 0, 0)], &[], &[("all", 2, 2)]);
        check(&[("all", 0, 0), ("eth0", 8, 2)], &[], &[("all", 0, 0)]);
    }

    #[test]
    fn a_larger_value_that_is_weaker_is_replaced_where_it_counts() {
        check(
            &[("all", 1, 2), ("eth0.100", 3, 0)],
            &["sysctl -w net/ipv4/conf/eth0.100/arp_ignore=1"],
            &[("all", 1, 2), ("eth0.100", 1, 0)],
        );
        check(
            &[("all", 3, 2), ("eth0", 0, 0)],
            &["sysctl -w net.ipv4.conf.all.arp_ignore=1"],
            &[("all", 1, 2)],
        );
    }

    #[test]
    fn what_cannot_be_set_is_named_with_the_command() {
        let (root, links) = host(&[("all", 0, 2), ("eth0", 0, 0)]);
        let file = root.path().join("net/ipv4/conf/all/arp_ignore");
        fs::remove_file(&file).expect("a file");
        fs::create_dir(&file).expect("a folder in its place");
        let unmet = ArpSettings::at(root.path()).enforce(&links);
        let told: Vec<_> = unmet.iter().map(UnmetSetting::to_string).collect();
        assert_eq!(
            told,
            ["arp_ignore of eth0 cannot be read; to set it, run as root: \
              sysctl -w net.ipv4.conf.all.arp_ignore=1"]
        );
    }

    #[test]
    fn what_is_made_for_good_holds_on_interfaces_to_come_and_is_made_once() {
        // As others made it, for what was there then.
        let (root, links) = host(&[("all", 0, 2), ("eth0", 1, 0)]);
        let arp = ArpSettings::at(root.path());
        assert_eq!(arp.observe(&links), []);
        let set = vec!["sysctl -w net.ipv4.conf.all.arp_ignore=1".to_owned()];
        assert_eq!(arp.enforce_for_good(&links), EnforcedSettings { set, unmet: vec![] });
        assert_eq!(arp.value(Setting::ArpIgnore, ALL).ok(), Some(1));
        assert_eq!(arp.enforce_for_good(&links), EnforcedSettings { set: vec![], unmet: vec![] });
    }

    #[test]
    fn links_that_are_down_or_gone_are_passed_over() {
        let (root, mut links) = host(&[("all", 0, 0), ("eth0", 0, 0)]);
        links[0].up = false;
        let mut gone = links[0].clone();
        gone.name = "eth1".to_owned();
        gone.up = true;
        links.push(gone);
        assert_eq!(ArpSettings::at(root.path()).observe(&links), []);
    }
}
