//! Tests of the settings of sources.

use super::*;

#[test]
fn a_secret_can_stand_in_a_file() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("url"), "sqlite:secret.db\n").unwrap();
    let path = dir.path().join("tools.yaml");
    std::fs::write(&path, GOOD.replace("${DB_URL}", "${file:url}")).unwrap();
    let catalogue = Catalogue::load(&path, &BTreeMap::new()).unwrap();
    let (_, _, sources, _) = catalogue.into_parts();
    let SourceKind::Sql(sql) = &sources[0].kind else {
        panic!("not a database");
    };
    assert_eq!(sql.url, "sqlite:secret.db");
    std::fs::write(&path, GOOD.replace("${DB_URL}", "${file:gone}")).unwrap();
    let faults = Catalogue::load(&path, &BTreeMap::new()).unwrap_err();
    assert!(format_faults(&faults).contains("the file `gone` of `url` cannot be read"));
}

#[test]
fn definitions_do_not_depend_on_the_values_of_connections() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tools.yaml");
    std::fs::write(&path, GOOD.replace("DB_URL", "NOT_SET_ANYWHERE")).unwrap();
    let faults = Catalogue::load(&path, &BTreeMap::new()).unwrap_err();
    assert!(format_faults(&faults).contains("the variable `NOT_SET_ANYWHERE` of `url` is not set"));
    let variables = [("NOT_SET_ANYWHERE".to_owned(), "sqlite:rows.db".to_owned())];
    let opened = Catalogue::load(&path, &variables.into()).unwrap();
    let read = Catalogue::load_definitions(&path).unwrap();
    assert_eq!(read.version(), opened.version());
    assert_eq!(read.tools()[0].facts(), opened.tools()[0].facts());
}

#[test]
fn definitions_of_every_kind_of_tool_do_not_depend_on_the_values_of_connections() {
    const TEXT: &str = r#"
sources:
  main: { type: postgres, url: "${NOT_SET_DATABASE}" }
  api:
    type: http
    base_url: http://10.1.2.3
    private: ["${NOT_SET_NETWORK}"]
    headers: { X-Key: "${NOT_SET_SECRET}" }
    auth:
      type: token_exchange
      token_url: "${NOT_SET_URL}"
      client_id: "${NOT_SET_SECRET}"
      client_secret: "${NOT_SET_SECRET}"
  depot: { type: grpc, url: "${NOT_SET_URL}", auth: { type: bearer, token: "${NOT_SET_SECRET}" } }
  remote: { type: mcp, url: "${NOT_SET_URL}", resources: all, headers: { X-Key: "${NOT_SET_SECRET}" } }
  local: { type: mcp, command: [sh, "${NOT_SET_SECRET}"], env: { KEY: "${NOT_SET_SECRET}" } }
types:
  search: { type: http, source: api, path: /search }
tools:
- { name: sql, input_schema: { type: object }, execute: { type: sql, source: main, statement: SELECT id FROM rows } }
- { name: http, input_schema: { type: object }, execute: { type: http, source: api, path: /rows } }
- { name: of_types, input_schema: { type: object }, execute: { type: search } }
- { name: jsonrpc, input_schema: { type: object }, execute: { type: jsonrpc, source: api, method: search } }
- { name: grpc, input_schema: { type: object }, execute: { type: grpc, source: depot, method: parcels.v1.Parcels/Get } }
- { name: mcp, input_schema: { type: object }, execute: { type: mcp, source: remote, tool: search } }
- { name: stdio, input_schema: { type: object }, execute: { type: mcp, source: local, tool: search } }
- { name: command, input_schema: { type: object }, execute: { type: command, argv: [sh] } }
"#;
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tools.yaml");
    std::fs::write(&path, TEXT).unwrap();
    let variables = [
        ("NOT_SET_DATABASE", "postgres://user@db.example.com/rows"),
        ("NOT_SET_NETWORK", "10.0.0.0/8"),
        ("NOT_SET_SECRET", "canary"),
        ("NOT_SET_URL", "https://service.example.com"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let opened = Catalogue::load(&path, &variables.into());
    let opened = opened.unwrap_or_else(|faults| panic!("{}", format_faults(&faults)));
    let read = Catalogue::load_definitions(&path);
    let read = read.unwrap_or_else(|faults| panic!("{}", format_faults(&faults)));
    for (read, opened) in read.sources().iter().zip(opened.sources()) {
        assert_ne!(read, opened, "the values are others");
    }
    assert_eq!((read.tools().len(), opened.tools().len()), (8, 8));
    for (read, opened) in read.tools().iter().zip(opened.tools()) {
        let name = &opened.facts().name;
        assert_eq!(read.facts(), opened.facts(), "{name}");
        assert_eq!(read.plan().source(), opened.plan().source(), "{name}");
    }
    assert_eq!(read.version(), opened.version());
}

#[test]
fn definitions_are_read_without_the_variables_and_files_of_any_connection() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tools.yaml");
    let write = |source: &str| {
        let source = source
            .replace('$', "${NOT_SET_ANYWHERE}")
            .replace('&', "${file:gone}");
        let text = format!("sources: {{ api: {{ {source} }} }}\ntools: []\n");
        std::fs::write(&path, text).unwrap();
    };
    for source in [
        "type: postgres, url: '$', max_connections: '$'",
        "type: mysql, url: 'mysql://me:&@db/rows'",
        "type: http, base_url: '$', headers: { X-Key: '&' }, hosts: ['$'], private: ['$'], proxy: '$'",
        "type: http, base_url: 'http://10.1.2.3', private: ['$']",
        "type: grpc, url: 'http://10.1.2.3', private: ['$']",
        "type: mcp, url: 'http://10.1.2.3/mcp', private: ['$']",
        "type: http, base_url: '$', tls: { ca: gone.pem }, auth: { type: bearer, token: '&' }",
        "type: http, base_url: '$', auth: { type: client_credentials, token_url: '$', client_id: '$', private_key: '&' }",
        "type: grpc, url: '$', proxy: '$', metadata: { x-key: '&', x-key-bin: '&' }",
        "type: mcp, url: '$', auth: { type: client_credentials, issuer: '$', client_id: '$', client_secret: '&' }",
        "type: mcp, command: ['$'], env: { KEY: '&' }",
    ] {
        write(source);
        assert!(
            Catalogue::load(&path, &BTreeMap::new()).is_err(),
            "{source}"
        );
        let read = Catalogue::load_definitions(&path);
        let read = read.unwrap_or_else(|faults| panic!("{source}: {}", format_faults(&faults)));
        assert_eq!(read.sources().len(), 1, "{source}");
    }
    // The kind of a source is a part of the definitions.
    write("type: '$', url: 'sqlite:rows.db'");
    let faults = Catalogue::load_definitions(&path).unwrap_err();
    assert!(
        format_faults(&faults).contains("the variable `NOT_SET_ANYWHERE` of `type` is not set")
    );
}

#[test]
fn the_way_to_a_source_is_checked_and_its_files_are_watched() {
    let dir = tempfile::TempDir::new().unwrap();
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\nAA==\n-----END {kind}-----\n");
    std::fs::write(dir.path().join("ca.pem"), pem("CERTIFICATE")).unwrap();
    std::fs::write(dir.path().join("key.pem"), pem("PRIVATE KEY")).unwrap();
    let path = dir.path().join("tools.yaml");
    let load = |source: &str| {
        let text = format!("sources: {{ api: {{ {source} }} }}\ntools: []\n");
        std::fs::write(&path, text).unwrap();
        let variables = [("PROXY", "http://me:canary@proxy")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Catalogue::load(&path, &variables.into())
    };
    let https = "type: http, base_url: 'https://api.example.com'";
    let files = "tls: { ca: ca.pem, cert: ca.pem, key: key.pem }";
    let mcp = "type: mcp, url: 'https://api.example.com/mcp'";
    for source in [
        format!("{https}, {files}, proxy: '${{PROXY}}'"),
        format!("{mcp}, {files}, proxy: '${{PROXY}}'"),
        format!("type: grpc, url: 'https://api.example.com', {files}, proxy: '${{PROXY}}'"),
    ] {
        let catalogue = load(&source).unwrap_or_else(|faults| panic!("{}", format_faults(&faults)));
        let watched = catalogue.secret_files();
        assert_eq!(watched.len(), 3, "{source}");
    }
    for (source, fault) in [
        (format!("{https}, tls: {{}}"), "`tls` is empty"),
        (
            format!("{https}, tls: {{ cert: ca.pem }}"),
            "`cert` requires a `key`, which is missing",
        ),
        (
            format!("{https}, tls: {{ ca: key.pem }}"),
            "`ca` contains no PEM certificate",
        ),
        (
            format!("{https}, tls: {{ cert: ca.pem, key: ca.pem }}"),
            "`key` contains no PEM private key",
        ),
        (
            format!("{https}, tls: {{ ca: gone.pem }}"),
            "the file of `ca` cannot be read",
        ),
        (
            "type: http, base_url: 'http://api.example.com', tls: { ca: ca.pem }".to_owned(),
            "the URL is http, which does not support TLS",
        ),
        (
            format!("{https}, proxy: 'socks5://me:canary@proxy'"),
            "`proxy` is not an http(s) URL",
        ),
        (
            format!("{https}, {files}, proxy: 'https://me:canary@proxy'"),
            "would receive the client certificate",
        ),
        (
            "type: grpc, url: 'https://api.example.com', proxy: 'https://me:canary@proxy'"
                .to_owned(),
            "the proxy of the source has an https URL",
        ),
    ] {
        let faults = format_faults(&load(&source).expect_err(&source));
        assert!(faults.contains(fault), "{source}: {faults}");
        assert!(!faults.contains("canary"), "{faults}");
    }
}

#[test]
fn a_url_is_never_shown() {
    let variables = BTreeMap::from([("DB_URL".to_owned(), "mysql://u:secret@h/d".to_owned())]);
    let faults = Catalogue::parse(&[file(GOOD)], &variables).unwrap_err();
    assert!(!format_faults(&faults).contains("secret"));
    let catalogue = parse(GOOD).unwrap();
    assert!(!format!("{catalogue:?}").contains("rows.db"));
}

#[test]
fn the_url_of_an_mcp_server_does_not_end_in_api() {
    let source = |url: &str| {
        let added = format!("  crm: {{ type: mcp, url: \"{url}\" }}\ntools:\n");
        parse(&GOOD.replacen("tools:\n", &added, 1))
    };
    for bad in [
        "https://crm.example.com/api",
        "https://crm.example.com/v2/api/",
    ] {
        let told = format_faults(&source(bad).unwrap_err());
        assert!(
            told.starts_with("tools.yaml:4:26: `url` ends with /api"),
            "{told}"
        );
    }
    for good in [
        "https://crm.example.com/mcp",
        "https://crm.example.com/api/mcp",
    ] {
        source(good).unwrap();
    }
}

#[test]
fn a_database_file_is_relative_to_the_catalogue_that_names_it() {
    let url = |written: &str| {
        let text = GOOD.replacen("\"${DB_URL}\"", written, 1);
        let file = FileText {
            path: PathBuf::from("shop/tools.yaml"),
            text,
        };
        let catalogue = Catalogue::parse(&[file], &variables()).unwrap();
        let SourceKind::Sql(settings) = &catalogue.sources()[0].kind else {
            panic!("no database");
        };
        settings.url.clone()
    };
    assert_eq!(
        url("\"sqlite:shop.sqlite?mode=ro\""),
        "sqlite:shop/shop.sqlite?mode=ro"
    );
    for kept in [
        "sqlite:/var/shop.sqlite",
        "sqlite://shop.sqlite",
        "sqlite::memory:",
    ] {
        assert_eq!(url(&format!("\"{kept}\"")), kept);
    }
    assert_eq!(
        url("\"${DB_URL}\""),
        "sqlite:rows.db",
        "of a variable as it is"
    );
}
