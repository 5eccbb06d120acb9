//! Alert rules, checked by Prometheus's own `promtool`: their syntax, and when they fire; and the syntax
//! of the queries in dashboards.
//!
//! Promises: `promtool` comes from the search path, or from Debian's package, which is only unpacked:
//! nothing is installed, and no server is started.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use crate::cache::{self, Scratch};
use crate::debian;
use crate::invocation::Invocation;
use crate::tree;

/// The rules.
const RULES: &str = "deploy/alerts.yaml";

/// Series, and the alerts that they raise.
const TESTS: &str = "deploy/alerts_test.yaml";

const PROMTOOL: &str = "promtool";

const PACKAGE: &str = "prometheus";

/// Folder of the dashboards.
const DASHBOARDS: &str = "deploy/grafana/";

/// Name of the part.
const PART: &str = "alerts";

/// Runs the part.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let promtool = find(root)?;
    let scratch = Scratch::new(&cache::directory(PART)?, "queries")?;
    let queries = scratch.path().join("queries.yaml");
    let rules = serde_json::to_vec(&recording(&dashboards(root)?)?)?;
    fs::write(&queries, rules).with_context(|| format!("cannot write {}", queries.display()))?;
    let queries = queries.to_string_lossy();
    for arguments in [
        ["check", "rules", RULES],
        ["test", "rules", TESTS],
        ["check", "rules", &queries],
    ] {
        Invocation::new(&promtool, &arguments).run(root)?;
    }
    Ok(())
}

/// The dashboards as JSON.
fn dashboards(root: &Path) -> anyhow::Result<Vec<Value>> {
    let files = tree::files(root)?.into_iter();
    let files = files.filter(|file| file.path.starts_with(DASHBOARDS));
    let read = |file: tree::File| {
        let dashboard = serde_json::from_str(&file.text);
        dashboard.with_context(|| format!("cannot read {}", file.path))
    };
    files.map(read).collect()
}

/// A file of recording rules, one for each query. JSON is YAML.
fn recording(dashboards: &[Value]) -> anyhow::Result<Value> {
    let panels = dashboards.iter().filter_map(|of| of["panels"].as_array());
    let targets = panels.flatten().filter_map(|of| of["targets"].as_array());
    let queries = targets.flatten().enumerate();
    let rules: Vec<Value> = queries
        .map(
            |(number, target)| json!({"record": format!("query_{number}"), "expr": target["expr"]}),
        )
        .collect();
    anyhow::ensure!(!rules.is_empty(), "{DASHBOARDS} has no queries");
    Ok(json!({"groups": [{"name": "queries", "rules": rules}]}))
}

/// Path of `promtool`; unpacked once if it is not on the search path.
fn find(root: &Path) -> anyhow::Result<String> {
    if Invocation::new(PROMTOOL, &["--version"]).succeeds(root) {
        return Ok(PROMTOOL.to_owned());
    }
    let cache = cache::directory(PART)?;
    let kept = cache.join(PROMTOOL);
    if !kept.exists() {
        let unpacked = if debian::is_here() {
            unpack(&cache, &kept)
        } else {
            Err(anyhow!("this is not Debian"))
        };
        // The hint comes last, after all causes.
        unpacked.map_err(|error| {
            anyhow!(
                "no {PROMTOOL} is on the search path: {error:#}\nhint: install the package `{PACKAGE}`, or put \
                 its {PROMTOOL} into {}; on Debian try `apt-get update` as root first",
                cache.display()
            )
        })?;
    }
    Ok(kept.to_string_lossy().into_owned())
}

fn unpack(cache: &Path, kept: &PathBuf) -> anyhow::Result<()> {
    let unpacked = Scratch::new(cache, "unpacked")?;
    debian::unpack(unpacked.path(), &[PACKAGE])?;
    let file = unpacked.path().join("usr/bin").join(PROMTOOL);
    fs::rename(&file, kept)
        .with_context(|| format!("cannot move {} to {}", file.display(), kept.display()))
}
