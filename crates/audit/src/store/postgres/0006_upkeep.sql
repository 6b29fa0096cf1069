-- How far each security tool has taken the record, and which process exports to it until when, in seconds since 1970.
CREATE TABLE audit.export_cursor (
    name          text PRIMARY KEY,
    position      bigint NOT NULL,      -- of the next record to send
    holder        text   NOT NULL,
    claimed_until double precision NOT NULL
);

-- Records below the minimum index were removed, in whole bundles of 256 (c2sp.org/tlog-tiles).
CREATE TABLE audit.retention (
    id              integer PRIMARY KEY CHECK (id = 1),
    minimum_index   bigint NOT NULL,
    hold_generation bigint NOT NULL     -- counts the changes of legal holds
);
INSERT INTO audit.retention VALUES (1, 0, 0);

-- The leaf hashes of the records of each bundle that was removed: every proof goes on.
CREATE TABLE audit.pruned_tile (
    position bigint PRIMARY KEY,
    hashes   bytea NOT NULL
);

-- What must not be removed: all, or what concerns a tenant or a data subject.
CREATE TABLE audit.legal_hold (
    name   text PRIMARY KEY,
    tenant text,                        -- of the callers, also of a data subject
    tag    bytea,                       -- of a data subject
    set_by text   NOT NULL,
    set_in text,                        -- the tenant of who set it; null: of none
    set_at bigint NOT NULL              -- microseconds since 1970
);

-- With the rights of the owner of the tables: who sets a hold changes nothing else of retention.
CREATE FUNCTION audit.count_hold_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS
$$ BEGIN
    UPDATE audit.retention SET hold_generation = hold_generation + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER legal_hold_changes AFTER INSERT OR UPDATE OR DELETE ON audit.legal_hold
FOR EACH ROW EXECUTE FUNCTION audit.count_hold_change();

CREATE OR REPLACE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF TG_OP = 'DELETE' AND current_setting('audit.pruning', true) = 'on' THEN RETURN NULL; END IF;
    RAISE EXCEPTION 'a record is never changed or removed';
END $$;

-- The one way to remove records: the next whole bundle that the tree covers, whose leaf hashes are kept. It runs with the
-- rights of the owner of the tables, and only for who may append.
CREATE FUNCTION audit.prune_bundle(bundle bigint, generation bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS
$$ DECLARE first bigint := bundle * 256;
BEGIN
    IF NOT has_table_privilege(session_user, 'audit.record', 'INSERT') THEN
        RAISE EXCEPTION 'only who may append removes records';
    END IF;
    -- Not where a legal hold was set that whoever asks does not know of.
    LOCK TABLE audit.legal_hold IN SHARE MODE;
    UPDATE audit.retention SET minimum_index = first + 256
    WHERE minimum_index = first AND hold_generation = generation
      AND first + 256 <= (SELECT size FROM audit.tree);
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO audit.pruned_tile (position, hashes)
    SELECT bundle, string_agg(leaf_hash, '' ORDER BY sequence) FROM audit.record
    WHERE sequence >= first AND sequence < first + 256 HAVING count(*) = 256;
    IF NOT FOUND THEN RAISE EXCEPTION 'a record of the bundle is missing'; END IF;
    DELETE FROM audit.data_subject AS subject USING audit.record AS record,
        jsonb_array_elements(convert_from(record.canonical, 'UTF8')::jsonb -> 'data_subjects') AS named
    WHERE record.sequence >= first AND record.sequence < first + 256 AND record.data_subjects > 0
      AND subject.tag = decode(named ->> 'hmac', 'hex') AND subject.time = record.time
      AND subject.sequence = record.sequence;
    PERFORM set_config('audit.pruning', 'on', true);
    DELETE FROM audit.record WHERE sequence >= first AND sequence < first + 256;
    PERFORM set_config('audit.pruning', 'off', true);
    RETURN true;
END $$;
