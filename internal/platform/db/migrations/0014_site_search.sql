-- +goose Up

-- Written by package site: name, slug and repository as searches see them. lower() does
-- until a site is next changed; on SQLite it leaves letters beyond ASCII as they are.
ALTER TABLE sites ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE sites SET search = lower(name || ' ' || slug || ' ' || repository);

-- A page of the sites of one status or type, without reading the others.
CREATE INDEX sites_of_status ON sites (owner_id, status, created_at DESC, id DESC) WHERE deleted_at = 0;
CREATE INDEX sites_of_type ON sites (owner_id, type, created_at DESC, id DESC) WHERE deleted_at = 0;

-- What searches for sites may know of domains.
CREATE VIEW site_domains AS
  SELECT owner_id, site_id, name FROM domains;
