//! A backup of all that a cluster knows, and its return to it: as after an operator restored etcd.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;

use super::{cluster::Cluster, plane::is_alive};
use crate::topology::until;

/// What etcd had at one moment; it goes with the control plane.
#[derive(Debug)]
pub struct Backup(PathBuf);

const CONTROL_PLANE: [&str; 4] = ["kube-scheduler", "kube-controller-manager", "apiserver", "etcd"];

impl Cluster {
    /// What etcd has on its disk, while it stands still: one that is started with it goes on from there.
    #[track_caller]
    pub fn back_up(&self) -> Backup {
        let folder = self.folder().join(format!("backup-{}", self.next()));
        self.signal("etcd", Signal::SIGSTOP);
        let copied = copy(&self.folder().join("data/etcd"), &folder);
        self.signal("etcd", Signal::SIGCONT);
        copied.expect("etcd's data is copied");
        Backup(folder)
    }

    /// Ends the control plane, and starts it with what was there then. Versions count on from that time; who watches is cut.
    #[track_caller]
    pub fn set_back(&self, to: &Backup) {
        self.put_back(to);
        self.start_api();
    }

    /// As above, but versions are greater than any that was told, and all that was told of before is forgotten: as `etcdutl
    /// snapshot restore --bump-revision N --mark-compacted` leaves it.
    #[track_caller]
    pub fn set_back_with_greater_versions(&self, to: &Backup) {
        let newest = self.plane().revision().expect("etcd says how far it is");
        self.put_back(to);
        // What was written while it ended is not in it.
        self.plane().bump_revision(newest + 1_000).expect("etcd is written to");
        self.start_api();
    }

    #[track_caller]
    fn put_back(&self, to: &Backup) {
        self.spoil();
        for name in CONTROL_PLANE {
            let process = self.signal(name, Signal::SIGKILL);
            until(&format!("{name} has ended"), || !is_alive(process));
        }
        let data = self.folder().join("data/etcd");
        fs::remove_dir_all(&data).expect("nobody uses it");
        copy(&to.0, &data).expect("the backup is there");
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => _ = fs::copy(entry.path(), to)?,
        }
    }
    Ok(())
}
