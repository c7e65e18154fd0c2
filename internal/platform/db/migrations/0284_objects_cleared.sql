-- +goose Up

-- Written by package wordpress: see 0081.
ALTER TABLE wordpress_sites ADD COLUMN cleared_at BIGINT NOT NULL DEFAULT 0; -- when its object cache was last cleared, for other nodes
