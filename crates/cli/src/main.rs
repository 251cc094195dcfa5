//! The program `seaway`; all of it is the library beside it, where a fuzzer finds its parsers.

use std::process::ExitCode;

fn main() -> ExitCode {
    seaway_cli::main()
}
