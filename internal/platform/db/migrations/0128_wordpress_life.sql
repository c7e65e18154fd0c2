-- +goose Up

-- Written by package wordpress: see 0081.
ALTER TABLE wordpress_sites ADD COLUMN table_prefix TEXT NOT NULL DEFAULT 'wp_';
ALTER TABLE wordpress_sites ADD COLUMN auto_update TEXT NOT NULL DEFAULT 'off';   -- off, minor
ALTER TABLE wordpress_sites ADD COLUMN next_update BIGINT NOT NULL DEFAULT 0;      -- when it is looked for again
ALTER TABLE wordpress_sites ADD COLUMN purged_at BIGINT NOT NULL DEFAULT 0;        -- the last purge of its pages, for other nodes
CREATE INDEX wordpress_sites_purged ON wordpress_sites (purged_at);
CREATE INDEX wordpress_sites_update ON wordpress_sites (next_update);
