use super::*;
use crate::tests::stores::each_store;

fn person(subject: &str, issuer: &str) -> Person {
    Person {
        tenant: String::new(),
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
    }
}

fn key<'a>(person: &'a Person, source: &'a str) -> ConnectionKey<'a> {
    ConnectionKey {
        person,
        source,
        service: "https://service.test/",
    }
}

#[tokio::test]
async fn one_alone_refreshes_and_who_was_disconnected_meanwhile_stays_so() {
    for (_database, store) in each_store().await {
        let ann = person("ann", "https://a.test");
        let key = key(&ann, "crm");
        store.connect(&key, b"first").await.unwrap();
        let held = store.connection(&key).await.unwrap().unwrap();
        assert_eq!(held.plain, b"first");
        let now = store.ambient.now();
        let until = now.plus(Duration::from_mins(1));
        let claim = || store.claim_refresh(&key, held.version, until);
        assert!(claim().await.unwrap());
        assert!(!claim().await.unwrap());
        store.release(&key, held.version).await.unwrap();
        assert!(claim().await.unwrap());
        assert!(store.replace(&key, held.version, b"second").await.unwrap());
        assert!(!store.replace(&key, held.version, b"third").await.unwrap());
        // A version that was replaced can be neither claimed nor deleted.
        assert!(!claim().await.unwrap());
        store.end(&key, held.version).await.unwrap();
        let held = store.connection(&key).await.unwrap().unwrap();
        assert_eq!(held.plain, b"second");
        assert_eq!(store.disconnect("ann", "", "").await.unwrap(), 1);
        assert!(!store.replace(&key, held.version, b"third").await.unwrap());
        assert!(store.connection(&key).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn connections_are_listed_and_forgotten_by_person_issuer_and_source() {
    for (_database, store) in each_store().await {
        let people = [
            person("ann", "https://a.test"),
            person("ann", "https://b.test"),
            person("ben", "https://a.test"),
        ];
        for person in &people {
            for source in ["crm", "notes"] {
                store.connect(&key(person, source), b"x").await.unwrap();
            }
        }
        assert_eq!(store.connections().await.unwrap().len(), 6);
        let forget = |issuer, source| store.disconnect("ann", issuer, source);
        assert_eq!(forget("https://b.test", "crm").await.unwrap(), 1);
        assert_eq!(forget("", "notes").await.unwrap(), 2);
        assert_eq!(forget("https://a.test", "").await.unwrap(), 1);
        let left = store.connections().await.unwrap();
        let left: Vec<_> = left.iter().map(|it| &*it.person.subject).collect();
        assert_eq!(left, ["ben", "ben"]);
    }
}

#[tokio::test]
async fn of_two_that_register_a_client_the_first_stays_until_it_expires() {
    for (_database, store) in each_store().await {
        let about = || About::new("a client");
        let now = store.ambient.now();
        let (past, later) = (
            now.minus(Duration::from_secs(1)),
            now.plus(Duration::from_mins(1)),
        );
        store.register_client(&about(), b"old", past).await.unwrap();
        assert_eq!(store.registered_client(&about()).await.unwrap(), None);
        for client in [&b"one"[..], b"two"] {
            store
                .register_client(&about(), client, later)
                .await
                .unwrap();
        }
        let kept = store.registered_client(&about()).await.unwrap();
        assert_eq!(kept.unwrap(), b"one");
        store.unregister_client(&about()).await.unwrap();
        assert_eq!(store.registered_client(&about()).await.unwrap(), None);
    }
}
