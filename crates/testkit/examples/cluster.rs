//! A Kubernetes with nodes to look at, as root: `cargo run -p seaway-testkit --features kubernetes --example cluster -- 2`.
//! It is taken down when its input ends.
#![allow(clippy::print_stdout)]

use seaway_testkit::kubernetes::{Cluster, Options};

fn main() {
    let count = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1_usize);
    let Some(cluster) = Cluster::alone(&Options::default()) else { return };
    let nodes: Vec<_> = (1..=count).map(|number| cluster.node(&format!("node{number}"))).collect();
    let outside = cluster.neighbour("outside");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    for node in &nodes {
        println!("# {}: ip netns exec {} …", node.name(), node.namespace().name());
    }
    println!("# outside: ip netns exec {} curl …", outside.name());
    println!("# It ends with its input: type Control-D.");
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}
