//! What is asked for on the command line.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Changes Seaway's sources one place at a time, and tells which changes no test notices.

  seaway-mutants --checkout DIR --work DIR [--since REF] [--only TEXT] [--lived] [--list]

  --checkout DIR  whose sources are changed, in a copy
  --work DIR      where the copy is kept and built, outside of the checkout
  --target DIR    where it is built instead: no other checkout builds there, for cargo would take one's libraries for the other's
  --since REF     mutants of lines that changed since that commit, instead of the fixed sample
  --only TEXT     of these, the ones whose name has TEXT in it; may be given several times
  --lived         of these, the ones that lived when they were last tried
  --list          print them, and run nothing

All of the sample are built, whichever are tried: nothing is built again to try others.";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) checkout: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) target: Option<PathBuf>,
    pub(crate) since: Option<String>,
    pub(crate) only: Vec<String>,
    pub(crate) lived: bool,
    pub(crate) list: bool,
}

impl Options {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--checkout" => options.checkout = value()?.into(),
                "--work" => options.work = value()?.into(),
                "--target" => options.target = Some(value()?.into()),
                "--since" => options.since = Some(value()?),
                "--only" => options.only.push(value()?),
                "--lived" => options.lived = true,
                "--list" => options.list = true,
                _ => return Err(format!("{argument} is not known")),
            }
        }
        for (path, name) in [(&options.checkout, "--checkout"), (&options.work, "--work")] {
            if !path.is_absolute() {
                return Err(format!("{name} needs a folder by its whole path"));
            }
        }
        // It removes from its copy what the checkout does not have.
        if options.work.starts_with(&options.checkout) || options.checkout.starts_with(&options.work) {
            return Err("--work is outside of the checkout, and not around it".to_owned());
        }
        Ok(options)
    }

    /// All of the sample, and not a part.
    pub(crate) fn is_whole(&self) -> bool {
        self.since.is_none() && self.only.is_empty() && !self.lived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_never_in_the_checkout_nor_around_it() {
        let read = |text: &str| Options::read(text.split(' ').map(str::to_owned));
        assert!(read("--checkout /a/b --work /a/c --since HEAD --lived").is_ok());
        for (text, fault) in [
            ("--checkout /a/b --work /a/b/c", "--work is outside of the checkout, and not around it"),
            ("--checkout /a/b --work /a", "--work is outside of the checkout, and not around it"),
            ("--checkout /a/b", "--work needs a folder by its whole path"),
            ("--checkout a --work /c", "--checkout needs a folder by its whole path"),
            ("--since", "--since needs a value"),
            ("--other", "--other is not known"),
        ] {
            assert_eq!(read(text), Err(fault.to_owned()), "{text}");
        }
    }
}
