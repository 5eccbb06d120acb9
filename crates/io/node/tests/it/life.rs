//! The ordinary life of an execution.

use bursar_booking::execution::Exit;
use bursar_node::executor::Stream;

use crate::host::{Host, id};

#[tokio::test]
async fn an_exit_code_or_signal_is_told_as_it_was() {
    let host = Host::new();
    for (name, script, exit) in [
        ("zero", "exit 0", Exit::Code(0)),
        ("seven", "exit 7", Exit::Code(7)),
        ("signal", "kill -9 $$", Exit::Signal(9)),
    ] {
        assert_eq!(host.run(name, script).await, exit, "{name}");
    }
}

#[tokio::test]
async fn both_streams_are_kept_apart() {
    let host = Host::new();
    let exit = host
        .run(
            "a",
            "echo out; echo err >&2; echo $BURSAR_BOOKING $BURSAR_FENCE",
        )
        .await;
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(host.output(&id("a"), Stream::Stdout), "out\na 7\n");
    assert_eq!(host.output(&id("a"), Stream::Stderr), "err\n");
}
