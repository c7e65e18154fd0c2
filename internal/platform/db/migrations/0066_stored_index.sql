-- +goose Up

-- What an owner stores is added up whenever they deploy: from the index alone.
DROP INDEX deployments_stored;
CREATE INDEX deployments_stored ON deployments (owner_id, site_id, id, stored_bytes, added_bytes) WHERE stored_bytes > 0 AND release <> '';
