//! Shows the status page with made-up numbers: `cargo run -p seaway-admin --example status_page [ADDRESS]`.

#[path = "../tests/sample/view.rs"]
mod view;

use std::{env, error::Error, sync::Arc, time::Instant};

use seaway_admin::{Binding, BoundSockets, Signals, logging};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let log = logging::start(logging::Format::Human, "info")?;
    let binding = match env::args().nth(1) {
        Some(address) => Binding::Exactly(vec![address.parse()?]),
        None => Binding::Loopback,
    };
    let start = Instant::now();
    let counting =
        seaway_admin::immediate_source(move || Arc::new(view::at(start.elapsed().as_millis() as u64)));
    let admin = BoundSockets::bind(&binding)?.serve(counting, log);
    for address in admin.addresses() {
        tracing::info!("open http://{address}");
    }
    Signals::listen()?.next().await;
    admin.stop().await;
    Ok(())
}
