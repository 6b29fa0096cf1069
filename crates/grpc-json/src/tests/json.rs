use prost_reflect::prost_types::{Any, Timestamp};
use prost_reflect::{MessageDescriptor, Value as ProtoValue};

use super::*;

fn descriptor() -> MessageDescriptor {
    pool().get_message_by_name("parcels.v1.Parcel").unwrap()
}

fn round_trip(value: &Value) -> Value {
    let message = parcel(value);
    let bytes = message.encode_to_vec();
    let read = DynamicMessage::decode(descriptor(), bytes.as_slice()).unwrap();
    to_json(&read, LIMIT).unwrap()
}

#[test]
fn a_message_comes_back_as_it_was_written() {
    let value = json!({
        "parcelId": "p1",
        "grams": "9223372036854775807",
        "pieces": 4_294_967_295_u32,
        "fragile": true,
        "state": "STATE_SENT",
        "seal": "AP8=",
        "price": 1.5,
        "size": {"width": 3, "height": 4},
        "notes": [{"text": "a", "pages": [1, 2]}, {"text": "", "pages": []}],
        "contents": {"nails": 12},
        "remark": "",
        "bay": 7,
        "sentAt": "2026-01-31T12:00:00Z",
        "took": "1.500s",
        "more": {"deep": [1.0, null, {"x": "y"}]},
        "nickName": "box",
        "extra": {"@type": "type.googleapis.com/parcels.v1.Note", "text": "in", "pages": [3]},
        "byNumber": {"5": {"text": "five", "pages": []}},
    });
    assert_eq!(round_trip(&value), value);
}

#[test]
fn fields_without_presence_are_always_there_and_unset_ones_with_presence_never() {
    assert_eq!(
        round_trip(&json!({})),
        json!({
            "parcelId": "", "grams": "0", "pieces": 0, "fragile": false, "state": "STATE_UNSPECIFIED",
            "seal": "", "price": 0.0, "notes": [], "contents": {}, "byNumber": {},
        })
    );
}

#[test]
fn names_of_the_proto_file_and_64_bit_numbers_without_quotes_are_read_too() {
    let read = round_trip(&json!({"parcel_id": "p", "grams": 12, "nick_name": null, "state": 1}));
    assert_eq!(read["parcelId"], "p");
    assert_eq!(read["grams"], "12");
    assert_eq!(read["state"], "STATE_SENT");
    assert_eq!(read.get("nickName"), None);
}

#[test]
fn numbers_may_be_written_in_any_way_that_json_has() {
    let written =
        r#"{"price": 1.50, "grams": 9007199254740993.0, "pieces": 1e3, "more": {"n": 0.30}}"#;
    let read = round_trip(&serde_json::from_str(written).unwrap());
    assert_eq!(read["price"], json!(1.5));
    assert_eq!(read["grams"], "9007199254740993");
    assert_eq!(read["pieces"], 1_000);
    assert_eq!(read["more"]["n"], json!(0.3));
}

#[test]
fn a_number_that_its_field_represents_exactly_comes_back_with_the_same_digits() {
    let written = r#"{"price": 0.1, "measures": {
        "lengths": [9999999999999.99, "0.30", 1205e-1, "NaN"],
        "byName": {"a": 0.1},
        "weight": 16777216.0,
        "serial": 18446744073709551613.0,
        "ratio": 0.1
    }}"#;
    let read = round_trip(&serde_json::from_str(written).unwrap());
    assert_eq!(read["price"], json!(0.1));
    assert_eq!(
        read["measures"],
        json!({
            "lengths": [9_999_999_999_999.99, 0.3, 120.5, "NaN"],
            "byName": {"a": 0.1},
            "weight": 16_777_216.0,
            "serial": "18446744073709551613",
            "ratio": 0.1,
        })
    );
}

#[test]
fn a_number_that_its_field_would_round_is_refused_and_named() {
    const DOUBLE: &str = "is not a number that a double represents exactly";
    const FLOAT: &str = "is not a number that a float represents exactly";
    for (written, place, problem) in [
        (r#"{"price": 0.1234567890123456789}"#, "price", DOUBLE),
        (r#"{"price": 99999999999999.99}"#, "price", DOUBLE),
        (r#"{"price": 9007199254740993}"#, "price", DOUBLE),
        (r#"{"price": 12345678901234567890123}"#, "price", DOUBLE),
        (r#"{"price": "0.1234567890123456789"}"#, "price", DOUBLE),
        (r#"{"price": "1e400"}"#, "price", DOUBLE),
        (r#"{"price": 1e-400}"#, "price", DOUBLE),
        (
            r#"{"inside": {"price": 9007199254740993}}"#,
            "inside.price",
            DOUBLE,
        ),
        (
            r#"{"measures": {"lengths": [0.5, 9007199254740993]}}"#,
            "measures.lengths[1]",
            DOUBLE,
        ),
        (
            r#"{"measures": {"ratio": 0.1234567890123456789}}"#,
            "measures.ratio",
            DOUBLE,
        ),
        (
            r#"{"measures": {"weight": 16777217}}"#,
            "measures.weight",
            FLOAT,
        ),
        (
            r#"{"measures": {"by_name": {"SECRET": 0.123456789}}}"#,
            "measures.by_name{}",
            FLOAT,
        ),
        (
            r#"{"more": {"SECRET": [1, 9007199254740993]}}"#,
            "more{}[1]",
            DOUBLE,
        ),
        (r#"{"more": {"SECRET": 1e400}}"#, "more{}", DOUBLE),
        (
            r#"{"extra": {"@type": "type.googleapis.com/parcels.v1.Measures", "weight": 16777217}}"#,
            "extra.weight",
            FLOAT,
        ),
        (
            r#"{"extra": {"@type": "type.googleapis.com/google.protobuf.DoubleValue", "value": 9007199254740993}}"#,
            "extra.value",
            DOUBLE,
        ),
        (
            r#"{"grams": -9223372036854775809}"#,
            "grams",
            "is not a 64-bit integer",
        ),
        (
            r#"{"grams": 9223372036854775808.0}"#,
            "grams",
            "is not a 64-bit integer",
        ),
        (
            r#"{"measures": {"serial": 18446744073709551616}}"#,
            "measures.serial",
            "is not a 64-bit integer from 0",
        ),
        (
            r#"{"pieces": 1.00000000000000000001}"#,
            "pieces",
            "is not a 32-bit integer from 0",
        ),
    ] {
        let misfit = to_message(&descriptor(), &serde_json::from_str(written).unwrap()).err();
        let misfit = misfit.unwrap_or_else(|| panic!("{written} fits"));
        assert_eq!(misfit.to_string(), format!("`{place}` {problem}"));
    }
}

#[test]
fn what_does_not_fit_is_named_without_its_value() {
    for (value, text) in [
        (
            json!([]),
            "the message is not an object that is a parcels.v1.Parcel",
        ),
        (
            json!({"grams": "SECRET"}),
            "`grams` is not a 64-bit integer",
        ),
        (
            json!({"pieces": -1}),
            "`pieces` is not a 32-bit integer from 0",
        ),
        (
            json!({"pieces": 4_294_967_296_u64}),
            "`pieces` is not a 32-bit integer from 0",
        ),
        (json!({"fragile": "SECRET"}), "`fragile` is not a boolean"),
        (json!({"parcel_id": 7}), "`parcel_id` is not a string"),
        (json!({"price": "SECRET"}), "`price` is not a number"),
        (
            json!({"seal": "%SECRET"}),
            "`seal` is not a string in Base64",
        ),
        (
            json!({"state": "SECRET"}),
            "`state` is not one of `STATE_UNSPECIFIED`, `STATE_SENT`",
        ),
        (json!({"notes": {}}), "`notes` is not a list"),
        (
            json!({"notes": [{}, {"pages": [1, "SECRET"]}]}),
            "`notes[1].pages[1]` is not a 32-bit integer",
        ),
        (
            json!({"notes": ["SECRET"]}),
            "`notes[0]` is not an object that is a parcels.v1.Note",
        ),
        (json!({"contents": []}), "`contents` is not an object"),
        (
            json!({"contents": {"SECRET": "SECRET"}}),
            "`contents{}` is not an entry with a 32-bit integer and a key of its type",
        ),
        (
            json!({"byNumber": {"5": {"text": 1}}}),
            "`byNumber{}.text` is not a string",
        ),
        (
            json!({"sentAt": "SECRET"}),
            "`sentAt` is not a time like \"2026-01-31T12:00:00Z\"",
        ),
        (json!({"took": 5}), "`took` is not a duration like \"1.5s\""),
        (
            json!({"size": {"depth": 1}}),
            "`size` has no field `depth`; it has `width`, `height`",
        ),
        (
            json!({"size": {"SECRET\n": 1}}),
            "`size` has no field of this name; it has `width`, `height`",
        ),
        (
            json!({"shelf": "SECRET", "bay": 7}),
            "the message contains a field twice, or two fields of which only one may be set",
        ),
        (
            json!({"notes": [{"inside": 1}]}),
            "`notes[0]` has no field `inside`; it has `text`, `pages`",
        ),
        (
            json!({"parcelId": "SECRET", "parcel_id": "SECRET"}),
            "the message contains a field twice, or two fields of which only one may be set",
        ),
        (
            json!({"extra": {"@type": "type.googleapis.com/SECRET"}}),
            "`extra` is not an object with an `@type` that the server describes",
        ),
        (
            json!({"byNumber": {"SECRET": {}}}),
            "the message contains a field twice, or two fields of which only one may be set",
        ),
    ] {
        let misfit = to_message(&descriptor(), &value).err();
        let misfit = misfit.unwrap_or_else(|| panic!("{value} fits")).to_string();
        assert_eq!(misfit, text, "{value}");
        assert!(!misfit.contains("SECRET"), "{misfit}");
    }
}

#[test]
fn an_answer_takes_no_more_bytes_of_json_than_the_limit() {
    // Each note has two bytes in protobuf and about a hundred in JSON, because of its defaults.
    let notes = vec![json!({}); 10_000];
    let message = parcel(&json!({ "notes": notes }));
    assert!(message.encoded_len() < 25_000);
    let whole = to_json(&message, LIMIT).unwrap().to_string().len();
    assert!(to_json(&message, whole).is_ok());
    assert_eq!(to_json(&message, whole - 1), Err(NotJson::TooLarge));
}

#[test]
fn messages_in_one_another_end_somewhere() {
    // prost starts counting again inside each `Any`, so only our own limit prevents a stack overflow.
    let any = pool().get_message_by_name("google.protobuf.Any").unwrap();
    let mut bytes = Vec::new();
    for _ in 0..5_000 {
        let type_url = "type.googleapis.com/google.protobuf.Any".to_owned();
        bytes = Any {
            type_url,
            value: bytes,
        }
        .encode_to_vec();
    }
    let deep = DynamicMessage::decode(any, bytes.as_slice()).unwrap();
    assert_eq!(to_json(&deep, LIMIT), Err(NotJson::Invalid));

    let nested = |levels| (0..levels).fold(json!({}), |inside, _| json!({ "inside": inside }));
    assert!(to_json(&parcel(&nested(60)), LIMIT).is_ok());
    assert_eq!(to_json(&parcel(&nested(110)), LIMIT), Err(NotJson::Invalid));
}

#[test]
fn values_without_a_json_form_are_refused() {
    let mut message = DynamicMessage::new(descriptor());
    let time = pool()
        .get_message_by_name("google.protobuf.Timestamp")
        .unwrap();
    let mut late = DynamicMessage::new(time);
    late.transcode_from(&Timestamp {
        seconds: i64::MAX,
        nanos: 0,
    })
    .unwrap();
    message.set_field_by_name("sent_at", ProtoValue::Message(late));
    assert_eq!(to_json(&message, LIMIT), Err(NotJson::Invalid));
}

#[test]
fn no_field_is_given_by_both_its_names() {
    let twice = json!({"parcelId": "a", "parcel_id": "b"});
    for value in [
        twice.clone(),
        json!({ "inside": twice }),
        json!({ "inside": { "inside": twice } }),
    ] {
        assert!(to_message(&descriptor(), &value).is_err(), "{value}");
    }
}
