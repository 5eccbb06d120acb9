//! The bytes of every kind of command and event, so that none can drift unnoticed (L7, L8).

use bursar_engine::codec::{decode, encode};

/// Each line is a record as it is stored; a line is added for a new kind, and never changed.
pub(crate) const RECORDS: [&str; 31] = [
    r#"{"v":1,"seq":0,"t":1794823200000,"by":"bursar","cmd":{"genesis":{"ledger":"0198f3c2-1a2b-7abc-8def-0123456789ab","format":1}},"ev":[{"genesis":{"ledger":"0198f3c2-1a2b-7abc-8def-0123456789ab","format":1}}]}"#,
    r#"{"v":1,"seq":1,"t":1794823200001,"by":"bursar","cmd":{"resume":{"wall":1794823200003}},"ev":[{"resumed":{"wall":1794823200003}}]}"#,
    r#"{"v":1,"seq":2,"t":1794823200002,"by":"ada","cmd":{"reserve":{"id":"job-1","class":"python","tenant":"acme","slots":1,"ttlMs":60000}},"ev":[{"reserved":{"id":"job-1","class":"python","tenant":"acme","slots":1,"ttlMs":60000,"fence":8812}}]}"#,
    r#"{"v":1,"seq":3,"t":1794823200003,"by":"ada","cmd":{"reserve":{"id":"job-2","class":"python","tenant":"acme","slots":2,"cpuMilli":500,"memoryBytes":268435456,"gpus":1,"priority":"high","ttlMs":60000,"waitMs":30000,"executionId":"exec-1","cpuLimitMilli":2000,"memoryLimitBytes":"18446744073709551615"}},"ev":[{"reserved":{"id":"job-2","class":"python","tenant":"acme","slots":2,"cpuMilli":500,"memoryBytes":268435456,"gpus":1,"priority":"high","ttlMs":60000,"waitMs":30000,"executionId":"exec-1","cpuLimitMilli":2000,"memoryLimitBytes":"18446744073709551615"}}]}"#,
    r#"{"v":1,"seq":4,"t":1794823200004,"by":"ada","cmd":{"release":{"id":"job-1","fence":8812,"outcome":"ok","exitCode":0}},"ev":[{"ended":{"id":"job-1","end":"released","outcome":"ok","exitCode":0}},{"granted":{"id":"job-2","fence":8813}}]}"#,
    r#"{"v":1,"seq":5,"t":1794823200005,"by":"bursar","cmd":{"tick":{"renewed":[["job-2",1794823300000]]}},"ev":[{"renewed":{"id":"job-2","expires":1794823300000,"t":1794823200004}},{"ended":{"id":"job-3","end":"expired","t":1794823200004}},{"ended":{"id":"job-4","end":"wait-over"}},{"granted":{"id":"job-5","fence":8814,"t":1794823200004}},{"unsettled":{"more":true,"t":1794823200004}}]}"#,
    r#"{"v":1,"seq":6,"t":1794823200006,"by":"bursar","cmd":{"tick":{}},"ev":[{"unsettled":{"more":false}}]}"#,
    r#"{"v":1,"seq":7,"t":1794823200007,"by":"ada","cmd":{"renew":{"id":"job-2","fence":8813,"ttlMs":5000}},"ev":[]}"#,
    r#"{"v":1,"seq":8,"t":1794823200008,"by":"ada","cmd":{"cancel":{"id":"job-6"}},"ev":[{"ended":{"id":"job-6","end":"cancelled"}}]}"#,
    r#"{"v":1,"seq":9,"t":1794823200009,"by":"eve","cmd":{"force":{"id":"job-2","reason":"stuck"}},"ev":[{"ended":{"id":"job-2","end":"forced","outcome":"failed","exitCode":-9,"reason":"stuck"}}]}"#,
    r#"{"v":1,"seq":10,"t":1794823200010,"by":"eve","cmd":{"change":{"changes":[{"setLimit":{"name":"python","class":{"named":"python"},"slots":120,"cpu":{"exactly":60000},"memory":{"percent":80},"gpus":4,"maxQueue":10000,"maxWaitMs":86400000,"maxTtlMs":86400000}},{"dropLimit":{"name":"old"}},{"setNode":{"name":"a01","cpuMilli":96000,"memoryBytes":1073741824000,"gpus":8}},{"dropNode":{"name":"a02"}}]}},"ev":[{"limitSet":{"name":"python","class":{"named":"python"},"slots":120,"cpu":{"exactly":60000},"memory":{"percent":80},"gpus":4,"maxQueue":10000,"maxWaitMs":86400000,"maxTtlMs":86400000}},{"limitDropped":{"name":"old"}},{"nodeSet":{"name":"a01","cpuMilli":96000,"memoryBytes":1073741824000,"gpus":8}},{"nodeDropped":{"name":"a02"}}]}"#,
    r#"{"v":1,"seq":11,"t":1794823200011,"by":"eve","cmd":{"change":{"changes":[{"setLimit":{"name":"tenant","tenant":"each","slots":64,"maxQueue":10000,"maxWaitMs":86400000,"maxTtlMs":86400000,"weight":300}}]}},"ev":[{"limitSet":{"name":"tenant","tenant":"each","slots":64,"maxQueue":10000,"maxWaitMs":86400000,"maxTtlMs":86400000,"weight":300}}]}"#,
    r#"{"v":1,"seq":12,"t":1794823200012,"by":"eve","cmd":{"createToken":{"name":"ci","sha256":"000000000000000000000000000000000000000000000000000000000000002a","roles":["view","use","operate"],"tenants":["acme","größe"],"expires":1802599200012}},"ev":[{"tokenCreated":{"name":"ci","sha256":"000000000000000000000000000000000000000000000000000000000000002a","roles":["view","use","operate"],"tenants":["acme","größe"],"expires":1802599200012}}]}"#,
    r#"{"v":1,"seq":13,"t":1794823200013,"by":"eve","cmd":{"revokeToken":{"name":"ci"}},"ev":[{"tokenRevoked":{"name":"ci"}}]}"#,
    r#"{"v":1,"seq":14,"t":1794823200014,"by":"eve","cmd":{"rotateKey":{"key":"bursar+7d1c03aa+Ab","idempotency":"key-1"}},"ev":[{"keyed":{"key":"key-1","body":"000000000000000000000000000000000000000000000000000000000000002a"}},{"keyRotated":{"key":"bursar+7d1c03aa+Ab"}}]}"#,
    r#"{"v":1,"seq":15,"t":1794823200015,"by":"bursar","cmd":{"anchor":{"record":14,"sha256":"000000000000000000000000000000000000000000000000000000000000002a"}},"ev":[{"anchored":{"record":14,"sha256":"000000000000000000000000000000000000000000000000000000000000002a"}}]}"#,
    r#"{"v":1,"seq":16,"t":1794823200016,"by":"eve","cmd":{"prune":{"below":9}},"ev":[{"pruned":{"below":9}}]}"#,
    r#"{"v":1,"seq":17,"t":1794823200017,"by":"eve","cmd":{"restore":{"size":17}},"ev":[{"restored":{"generation":1}}]}"#,
    r#"{"v":1,"seq":18,"t":1794823200018,"by":"größe-\"x\"","cmd":{"tick":{}},"ev":[{"granted":{"id":"a","fence":"9007199254740992"}}]}"#,
    r#"{"v":1,"seq":19,"t":1794823200019,"by":"ada","cmd":{"submit":{"booking":{"id":"run-1","class":"python","tenant":"acme","slots":1},"order":{"work":"abababababababababababababababababababababababababababababababab","startTimeoutMs":60000,"maxTimeMs":3600000,"graceMs":10000}}},"ev":[{"submitted":{"booking":{"id":"run-1","class":"python","tenant":"acme","slots":1,"fence":8815},"order":{"work":"abababababababababababababababababababababababababababababababab","startTimeoutMs":60000,"maxTimeMs":3600000,"graceMs":10000}}}]}"#,
    r#"{"v":1,"seq":20,"t":1794823200020,"by":"ada","cmd":{"submit":{"booking":{"id":"run-2","class":"python","tenant":"acme","slots":2,"cpuMilli":500,"memoryBytes":268435456,"priority":"high","waitMs":30000,"cpuLimitMilli":2000,"memoryLimitBytes":1073741824},"order":{"work":"abababababababababababababababababababababababababababababababab","pids":64,"startTimeoutMs":30000,"maxTimeMs":7200000,"graceMs":0,"retryOf":"run-0"}}},"ev":[{"submitted":{"booking":{"id":"run-2","class":"python","tenant":"acme","slots":2,"cpuMilli":500,"memoryBytes":268435456,"priority":"high","waitMs":30000,"cpuLimitMilli":2000,"memoryLimitBytes":1073741824},"order":{"work":"abababababababababababababababababababababababababababababababab","pids":64,"startTimeoutMs":30000,"maxTimeMs":7200000,"graceMs":0,"retryOf":"run-0"}}}]}"#,
    r#"{"v":1,"seq":21,"t":1794823200021,"by":"bursar","cmd":{"started":{"id":"run-1","isolation":"cgroup"}},"ev":[{"started":{"id":"run-1","isolation":"cgroup"}}]}"#,
    r#"{"v":1,"seq":22,"t":1794823200022,"by":"bursar","cmd":{"started":{"id":"run-3","isolation":"none"}},"ev":[{"started":{"id":"run-3","isolation":"none"}}]}"#,
    r#"{"v":1,"seq":23,"t":1794823200023,"by":"ada","cmd":{"cancel":{"id":"run-1"}},"ev":[{"stopping":{"id":"run-1","cause":"cancelled"}}]}"#,
    r#"{"v":1,"seq":24,"t":1794823200024,"by":"bursar","cmd":{"tick":{}},"ev":[{"stopping":{"id":"run-3","cause":"timed-out","t":1794823200004}},{"stopping":{"id":"run-4","cause":"not-started"}}]}"#,
    r#"{"v":1,"seq":25,"t":1794823200025,"by":"bursar","cmd":{"stopFailed":{"id":"run-1","attempt":1}},"ev":[{"stopFailed":{"id":"run-1","attempt":1}}]}"#,
    r#"{"v":1,"seq":26,"t":1794823200026,"by":"bursar","cmd":{"exited":{"id":"run-1","exit":{"signal":9}}},"ev":[{"exited":{"id":"run-1","verdict":"cancelled","signal":9}},{"granted":{"id":"run-2","fence":8816}}]}"#,
    r#"{"v":1,"seq":27,"t":1794823200027,"by":"bursar","cmd":{"exited":{"id":"run-2","exit":{"code":0}}},"ev":[{"exited":{"id":"run-2","verdict":"completed","exitCode":0}}]}"#,
    r#"{"v":1,"seq":28,"t":1794823200028,"by":"bursar","cmd":{"exited":{"id":"run-3","exit":{"code":-7}}},"ev":[{"exited":{"id":"run-3","verdict":"timed-out","exitCode":-7}}]}"#,
    r#"{"v":1,"seq":29,"t":1794823200029,"by":"bursar","cmd":{"exited":{"id":"run-4","exit":{"notStarted":"no such file"}}},"ev":[{"exited":{"id":"run-4","verdict":"failed","reason":"no such file"}}]}"#,
    r#"{"v":1,"seq":30,"t":1794823200030,"by":"bursar","cmd":{"exited":{"id":"run-5","exit":"lost"}},"ev":[{"exited":{"id":"run-5","verdict":"lost"}}]}"#,
];

#[test]
fn the_bytes_of_every_kind_stay_as_they_are() {
    for (seq, bytes) in (0..).zip(RECORDS) {
        let record = decode(seq, bytes.as_bytes(), |_| None).expect("it reads");
        let encoded = encode(&record).expect("it writes");
        assert_eq!(String::from_utf8(encoded.bytes).unwrap(), bytes);
    }
}
