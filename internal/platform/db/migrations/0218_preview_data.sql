-- +goose Up

-- Databases of previews, see databases.preview: which preview of its site one is for, by
-- preview_hosts.branch. Empty: it is the site's own, which production uses.
ALTER TABLE databases ADD COLUMN preview TEXT NOT NULL DEFAULT '';
DROP INDEX databases_name;
DROP INDEX databases_place;
CREATE UNIQUE INDEX databases_name ON databases (site_id, preview, name) WHERE status <> 'deleting';
CREATE UNIQUE INDEX databases_place ON databases (site_id, preview, place) WHERE status <> 'deleting';

-- Written by package pushes: what the databases of a site's previews begin as: none, empty or copy.
ALTER TABLE git_settings ADD COLUMN preview_database TEXT NOT NULL DEFAULT 'empty';

-- Which previews there are. What belongs to one, its databases and its storage, ends with it.
CREATE VIEW preview_keys AS SELECT site_id, branch FROM preview_hosts;
