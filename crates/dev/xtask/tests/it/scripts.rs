//! Pages with scripts are found by their `console` blocks.

use xtask::scripts::among;
use xtask::tree::File;

#[test]
fn scripts_are_the_readme_and_the_pages_with_a_console_block() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let files = [
        file("ARCHITECTURE.md", "```console\n$ x\n```\n"),
        file("README.md", "Words.\n\n```console\n$ x\n```\n"),
        file(
            "docs/bookings.md",
            "* in a list:\n  ```console\n  $ x\n  ```\n",
        ),
        file("docs/plain.md", "```sh\nconsole\n```\n"),
        file("docs/session.trycmd", "```console\n$ x\n```\n"),
    ];
    assert_eq!(among(&files), ["README.md", "docs/bookings.md"]);
}
