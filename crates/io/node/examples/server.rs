//! A server that starts one execution and then waits to be killed, for tests.
//!
//! `server DIRECTORY LEDGER SHIM ID SCRIPT`; it prints a line when the execution runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use bursar_node::executor::{Executor, Job, Work};
use bursar_node::local::{Local, Options};
use bursar_units::BookingId;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, ledger, shim, id, script] = args.as_slice() else {
        return Err("see the top of this file".into());
    };
    let local = Local::open(Options {
        directory: directory.into(),
        ledger: ledger.clone(),
        shim: shim.into(),
        require_isolation: true,
        process: PathBuf::from("/proc/self"),
    })?;
    let work = local.keep(&Work {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.clone()],
        env: BTreeMap::new(),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    })?;
    let job = Job {
        work,
        fence: 1,
        note: String::new(),
        cpu_milli: None,
        memory_bytes: None,
        pids: None,
    };
    let id = BookingId::new(id)?;
    println!("{:?}", local.start(&id, &job).await);
    println!("{:?}", local.exit(&id).await);
    Ok(())
}
