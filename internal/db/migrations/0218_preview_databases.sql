-- +goose Up

-- Written by package database: see 0080. Previews of a site share a twin of each of its
-- databases, which has the same name and place, and is empty when it is made.
ALTER TABLE databases ADD COLUMN preview BOOLEAN NOT NULL DEFAULT FALSE;
DROP INDEX databases_name;
DROP INDEX databases_place;
CREATE UNIQUE INDEX databases_name ON databases (site_id, preview, name) WHERE status <> 'deleting';
CREATE UNIQUE INDEX databases_place ON databases (site_id, preview, place) WHERE status <> 'deleting';
