//! The format of results for clients of every version.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wardgate_domain::DenialReason;
use wardgate_proto::toolrunner::v1 as pb;

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{PolicyAnswer, RunBehavior, listed_tool, tool_result, until_true};

/// Returns the body with placeholders for values that differ between runs: ids, digests and the version of the gateway.
pub(crate) async fn fetch_shape(request: reqwest::RequestBuilder) -> Value {
    let reply = Reply::to(request).await;
    let mut body = reply.json();
    name_changing(&mut body);
    json!([reply.status, body])
}

/// Returns the JSON of `value` with its numbers unchanged.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn name_changing(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(name_changing),
        Value::Object(members) => {
            for (key, member) in members {
                let changes = match &**key {
                    "dev.wardgate/callId" => Some("[call id]"),
                    "dev.wardgate/decisionId" => Some("[decision id]"),
                    "leafHash" => Some("[leaf hash]"),
                    "version" => Some("[version]"),
                    _ => None,
                };
                match changes {
                    Some(name) => *member = name.into(),
                    None => name_changing(member),
                }
            }
        }
        Value::String(text) if text.contains("Decision ") => {
            text.truncate(text.find("Decision ").unwrap());
            text.push_str("Decision [decision id].");
        }
        _ => {}
    }
}

#[tokio::test]
async fn discover() {
    let world = World::start().await;
    let answer = fetch_shape(world.message(MODERN, "server/discover", "")).await;
    assert_snapshot!(pretty(&answer), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "io.modelcontextprotocol/serverInfo": {
              "name": "wardgate",
              "title": "Wardgate",
              "version": "[version]"
            }
          },
          "cacheScope": "public",
          "capabilities": {
            "logging": {},
            "resources": {
              "listChanged": true,
              "subscribe": true
            },
            "tools": {
              "listChanged": true
            }
          },
          "instructions": "Tools give access to an organisation's data under its policy. A result contains only the rows and fields you may see; identifiers may be masked. Every call is recorded.",
          "resultType": "complete",
          "supportedVersions": [
            "2026-07-28",
            "2025-11-25",
            "2025-06-18",
            "2025-03-26"
          ],
          "ttlMs": 3600000
        }
      }
    ]
    "##);
}

#[tokio::test]
async fn initialize() {
    let world = World::start().await;
    let initialize = |version: &str| {
        let params = format!(
            r#""protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}"#
        );
        let bare = world.message(LEGACY, "initialize", &params);
        fetch_shape(bare)
    };
    let newest = initialize(LEGACY).await;
    assert_snapshot!(pretty(&newest), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "capabilities": {
            "logging": {},
            "resources": {
              "listChanged": true,
              "subscribe": true
            },
            "tools": {
              "listChanged": true
            }
          },
          "instructions": "Tools give access to an organisation's data under its policy. A result contains only the rows and fields you may see; identifiers may be masked. Every call is recorded.",
          "protocolVersion": "2025-11-25",
          "serverInfo": {
            "name": "wardgate",
            "title": "Wardgate",
            "version": "[version]"
          }
        }
      }
    ]
    "##);
    // Every version with a handshake is accepted. For any other version the newest of them is offered.
    for version in [LEGACY, "2025-06-18", OLDEST] {
        let answer = initialize(version).await;
        assert_eq!(answer[1]["result"]["protocolVersion"], version);
        let mut same = answer.clone();
        same[1]["result"]["protocolVersion"] = LEGACY.into();
        if version == OLDEST {
            // That version has no titles.
            same[1]["result"]["serverInfo"]["title"] = "Wardgate".into();
        }
        assert_eq!(same, newest);
    }
    for version in [MODERN, "2024-11-05", "1.0", ""] {
        assert_eq!(initialize(version).await, newest, "{version}");
    }
}

#[tokio::test]
async fn tools_list() {
    let world = World::start().await;
    world.policy.hide("writes");
    world.policy.hide("slow");
    let listed = fetch_shape(world.message(MODERN, "tools/list", "")).await;
    assert_snapshot!(pretty(&listed), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "io.modelcontextprotocol/serverInfo": {
              "name": "wardgate",
              "title": "Wardgate",
              "version": "[version]"
            }
          },
          "cacheScope": "private",
          "resultType": "complete",
          "tools": [
            {
              "annotations": {
                "readOnlyHint": true
              },
              "description": "Does as it is told.",
              "inputSchema": {
                "properties": {
                  "n": {
                    "type": "number"
                  }
                },
                "type": "object"
              },
              "name": "reads",
              "outputSchema": {
                "properties": {
                  "rows": {
                    "type": "array"
                  }
                },
                "type": "object"
              },
              "title": "A tool"
            }
          ],
          "ttlMs": 5000
        }
      }
    ]
    "##);
}

#[tokio::test]
async fn tools_list_of_older_versions() {
    let world = World::start().await;
    world.policy.hide("writes");
    world.policy.hide("slow");
    let list = |version| fetch_shape(world.message(version, "tools/list", ""));
    assert_snapshot!(pretty(&list(LEGACY).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "tools": [
            {
              "annotations": {
                "readOnlyHint": true
              },
              "description": "Does as it is told.",
              "inputSchema": {
                "properties": {
                  "n": {
                    "type": "number"
                  }
                },
                "type": "object"
              },
              "name": "reads",
              "outputSchema": {
                "properties": {
                  "rows": {
                    "type": "array"
                  }
                },
                "type": "object"
              },
              "title": "A tool"
            }
          ]
        }
      }
    ]
    "##);
    assert_eq!(list("2025-06-18").await, list(LEGACY).await);
    assert_snapshot!(pretty(&list(OLDEST).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "tools": [
            {
              "annotations": {
                "readOnlyHint": true
              },
              "description": "Does as it is told.",
              "inputSchema": {
                "properties": {
                  "n": {
                    "type": "number"
                  }
                },
                "type": "object"
              },
              "name": "reads"
            }
          ]
        }
      }
    ]
    "##);
}

#[tokio::test]
async fn an_output_schema_of_something_else_than_an_object_is_for_modern_clients_alone() {
    let world = World::start().await;
    let schema = json!({ "type": "array", "items": { "type": "object" } });
    let listing = json!({ "inputSchema": { "type": "object" }, "outputSchema": schema });
    world
        .tool_runner
        .configure(vec![listed_tool("lists", &listing)]);
    let listed = async |version| {
        let reply = Reply::to(world.message(version, "tools/list", "")).await;
        reply.at("/result/tools/0")
    };
    until_true("it is listed", async || {
        listed(MODERN).await["name"] == "lists"
    })
    .await;
    assert_eq!(listed(MODERN).await["outputSchema"], schema);
    for version in [LEGACY, "2025-06-18", OLDEST] {
        assert_eq!(listed(version).await["outputSchema"], Value::Null);
    }
}

#[tokio::test]
async fn tools_call() {
    let world = World::start().await;
    let call = |version| fetch_shape(world.tools_call(version, "reads", "{}"));
    assert_snapshot!(pretty(&call(MODERN).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "dev.wardgate/callId": "[call id]",
            "dev.wardgate/receipt": {
              "leafHash": "[leaf hash]"
            },
            "io.modelcontextprotocol/serverInfo": {
              "name": "wardgate",
              "title": "Wardgate",
              "version": "[version]"
            }
          },
          "content": [
            {
              "text": "the secret result",
              "type": "text"
            }
          ],
          "isError": false,
          "resultType": "complete",
          "structuredContent": {
            "rows": [
              1.1
            ]
          }
        }
      }
    ]
    "##);
    assert_snapshot!(pretty(&call(LEGACY).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "dev.wardgate/callId": "[call id]",
            "dev.wardgate/receipt": {
              "leafHash": "[leaf hash]"
            }
          },
          "content": [
            {
              "text": "the secret result",
              "type": "text"
            }
          ],
          "isError": false,
          "structuredContent": {
            "rows": [
              1.1
            ]
          }
        }
      }
    ]
    "##);
    assert_snapshot!(pretty(&call(OLDEST).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "dev.wardgate/callId": "[call id]",
            "dev.wardgate/receipt": {
              "leafHash": "[leaf hash]"
            }
          },
          "content": [
            {
              "text": "the secret result",
              "type": "text"
            }
          ],
          "isError": false
        }
      }
    ]
    "##);
}

#[tokio::test]
async fn a_visible_denial() {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::Forbidden,
        visible: true,
    });
    let call = |version| fetch_shape(world.tools_call(version, "reads", "{}"));
    assert_snapshot!(pretty(&call(MODERN).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "dev.wardgate/callId": "[call id]",
            "dev.wardgate/decisionId": "[decision id]",
            "dev.wardgate/receipt": {
              "leafHash": "[leaf hash]"
            },
            "io.modelcontextprotocol/serverInfo": {
              "name": "wardgate",
              "title": "Wardgate",
              "version": "[version]"
            }
          },
          "content": [
            {
              "text": "Not permitted with these arguments (forbidden). Decision [decision id].",
              "type": "text"
            }
          ],
          "isError": true,
          "resultType": "complete"
        }
      }
    ]
    "##);
    assert_snapshot!(pretty(&call(OLDEST).await), @r##"
    [
      200,
      {
        "id": 7,
        "jsonrpc": "2.0",
        "result": {
          "_meta": {
            "dev.wardgate/callId": "[call id]",
            "dev.wardgate/decisionId": "[decision id]",
            "dev.wardgate/receipt": {
              "leafHash": "[leaf hash]"
            }
          },
          "content": [
            {
              "text": "Not permitted with these arguments (forbidden). Decision [decision id].",
              "type": "text"
            }
          ],
          "isError": true
        }
      }
    ]
    "##);
}

#[tokio::test]
async fn what_else_a_server_says_in_a_result_goes_on_byte_for_byte() {
    let world = World::start().await;
    for version in [OLDEST, LEGACY, MODERN] {
        let content = r#"[{"type":"text","text":"\u0000 \ud800","big":12345678901234567890123}]"#;
        let given = pb::ToolResult {
            content_json: content.into(),
            other_members_json: r#"{"x-new":{"b":1.10}}"#.into(),
            meta_json: r#"{"fastmcp":{"wrap_result":true},"n":1E400}"#.into(),
            ..tool_result("", &Value::Null)
        };
        world.tool_runner.next([RunBehavior::Give(Box::new(given))]);
        let params = r#""name":"reads","arguments":{}"#;
        let mut request = world.message(version, "tools/call", params);
        if version == MODERN {
            request = request.header("mcp-name", "reads");
        }
        let answer = Reply::to(request).await.text;
        assert!(answer.contains(content), "{version}: {answer}");
        assert!(
            answer.contains(r#","x-new":{"b":1.10},"_meta":{"#),
            "{answer}"
        );
        assert!(
            answer.contains(r#","fastmcp":{"wrap_result":true},"n":1E400}"#),
            "{answer}"
        );
        assert!(answer.contains(r#""dev.wardgate/callId":""#), "{answer}");
    }
}

#[tokio::test]
async fn a_json_rpc_error_of_an_upstream_is_one_for_the_client_too() {
    let world = World::start().await;
    for (version, code, data, told, said) in [
        (
            MODERN,
            -32001,
            r#"{"until":1.50}"#,
            -32001,
            r#""until":1.50}"#,
        ),
        (
            LEGACY,
            -32001,
            r#"{"until":1.50}"#,
            -32001,
            r#""until":1.50}"#,
        ),
        (MODERN, -32002, r#""a text""#, -32602, r#""data":"a text""#),
        (LEGACY, -32002, r#""a text""#, -32002, r#""data":"a text""#),
        (
            OLDEST,
            -32042,
            "null",
            -32603,
            r#""data":{"dev.wardgate/callId""#,
        ),
    ] {
        let failed = pb::ToolResult {
            error_json: format!(r#"{{"code":{code},"message":"n\"o","data":{data}}}"#).into(),
            is_error: true,
            ..tool_result("no", &Value::Null)
        };
        world
            .tool_runner
            .next([RunBehavior::Give(Box::new(failed))]);
        let reply = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert_eq!((reply.status, reply.code()), (200, told), "{reply:?}");
        assert_eq!(reply.at("/error/message"), "n\"o");
        assert!(reply.text.contains(said), "{reply:?}");
    }
}
