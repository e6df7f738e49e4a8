//! A node that dies while a file is being stored: its chunks go elsewhere, and the put succeeds.

use crate::support::{TestCluster, pattern};
use futures::io::AllowStdIo;
use std::io::{self, Read};

const STRIPE: usize = 256 << 10;

/// Bytes of which the second half is given when something has happened.
struct Halves<'a, F> {
    bytes: &'a [u8],
    half: usize,
    between: Option<F>,
}

impl<F: FnOnce()> Read for Halves<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.bytes.len() <= self.half
            && let Some(between) = self.between.take()
        {
            between();
        }
        self.bytes.read(into)
    }
}

#[test]
fn a_put_outlives_a_node_that_dies_while_it_is_under_way() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let bytes = pattern(48 * STRIPE, 12);
    let source = AllowStdIo::new(Halves {
        bytes: &bytes,
        half: bytes.len() / 2,
        between: Some(|| {
            cluster.run(&["chaos", "kill-node", "4"]);
        }),
    });
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a run-time");
    let summary = runtime.block_on(async {
        let client = cluster.client().await;
        client
            .put("f", None, source, bytes.len() as u64, &())
            .await
            .expect("the chunks of node 4 have other places")
    });
    assert_eq!((summary.stripe_count, summary.left_out_count), (48, 0));
    assert!(cluster.get("f") == bytes);
}
