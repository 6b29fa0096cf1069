//! Guesses of column classes from the names of columns. A person has to confirm them before they take effect.

/// Words in names of columns, and the class that they suggest. The first matching entry applies.
const HINTS: [(&[&str], &str); 12] = [
    (&["email", "mail"], "contact.email"),
    (&["phone", "mobile", "telephone", "tel"], "contact.phone"),
    (&["fax"], "contact.fax"),
    (&["zip", "postcode", "postal", "plz"], "contact.postcode"),
    (&["address", "street", "city"], "contact.address"),
    (&["insurance", "insurer"], "finance.insurance"),
    (
        &["iban", "account", "card", "bank", "salary"],
        "finance.account",
    ),
    (
        &["birth", "birthday", "birthdate", "dob", "deceased"],
        "phi.date",
    ),
    (&["ssn", "passport", "nin", "nhs", "mrn"], "id.person"),
    (
        &["name", "firstname", "lastname", "fullname", "surname"],
        "phi.name",
    ),
    (
        &[
            "sex",
            "gender",
            "blood",
            "icd",
            "diagnosis",
            "allergies",
            "allergy",
        ],
        "phi.code",
    ),
    (
        &["note", "notes", "comment", "remark", "reason", "complaint"],
        "phi.text",
    ),
];

/// Words in names of columns that no tool should return.
const CREDENTIALS: [&str; 8] = [
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
];

/// Returns a class for the column, or `unclassified`, which policies must permit explicitly.
pub(super) fn suggest(table: &str, column: &str) -> String {
    let words = words(column);
    let hint = HINTS
        .iter()
        .find(|(hints, _)| words.iter().any(|word| hints.contains(&word.as_str())));
    let last = words.last().map(String::as_str);
    match (hint, last) {
        (Some((_, class)), _) => (*class).to_owned(),
        (None, Some("age")) => "phi.age".to_owned(),
        (None, Some("id")) if words.len() == 1 => format!("id.{table}"),
        (None, Some("id")) => format!("id.{}", words[..words.len() - 1].join("_")),
        _ => "unclassified".to_owned(),
    }
}

/// Returns whether the name of the column indicates a credential.
pub(super) fn is_credential(column: &str) -> bool {
    let words = words(column);
    let pairs = words.windows(2).map(<[String]>::concat);
    words
        .iter()
        .cloned()
        .chain(pairs)
        .any(|word| CREDENTIALS.contains(&word.as_str()))
}

/// Splits a name into lower-case words: `firstName` and `first_name` become `first` and `name`.
pub(super) fn words(column: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in column.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_columns_name_hints_at_its_class() {
        for (column, class) in [
            ("id", "id.patients"),
            ("patient_id", "id.patient"),
            ("firstName", "phi.name"),
            ("FULL_NAME", "phi.name"),
            ("emailAddress", "contact.email"),
            ("home_phone", "contact.phone"),
            ("insurance_no", "finance.insurance"),
            ("birth_date", "phi.date"),
            ("patient_age", "phi.age"),
            ("page", "unclassified"),
            ("created_at", "unclassified"),
            ("検索", "unclassified"),
        ] {
            assert_eq!(suggest("patients", column), class, "{column}");
        }
    }

    #[test]
    fn credentials_are_known_by_name() {
        for column in [
            "password",
            "passwordHash",
            "api_key",
            "reset_token",
            "clientSecret",
        ] {
            assert!(is_credential(column), "{column}");
        }
        for column in ["key", "tokenized", "author", "monkey"] {
            assert!(!is_credential(column), "{column}");
        }
    }
}
