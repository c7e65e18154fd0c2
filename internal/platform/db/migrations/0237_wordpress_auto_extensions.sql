-- +goose Up

-- How many plugins and themes of a site are updated automatically, as its WordPress said last.
ALTER TABLE wordpress_sites ADD COLUMN auto_extensions BIGINT NOT NULL DEFAULT 0;
