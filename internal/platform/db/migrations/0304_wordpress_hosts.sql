-- +goose Up

-- Written by package wordpress: the primary domain that a site's program knows, and the one that its content names. Empty: the site's own
-- address; -: noted when it is first looked at. old_hosts are primary domains of before, separated by spaces.
ALTER TABLE wordpress_sites ADD COLUMN host TEXT NOT NULL DEFAULT '-';
ALTER TABLE wordpress_sites ADD COLUMN content_host TEXT NOT NULL DEFAULT '-';
ALTER TABLE wordpress_sites ADD COLUMN old_hosts TEXT NOT NULL DEFAULT '';

-- The names by which sites are called.
CREATE VIEW primary_hosts AS SELECT site_id, name AS host FROM domains WHERE is_primary AND status = 'active';
