-- +goose Up

-- What WordPress last said of itself, as JSON, and when; empty and 0: nothing yet.
ALTER TABLE wordpress_sites ADD COLUMN facts TEXT NOT NULL DEFAULT '';
ALTER TABLE wordpress_sites ADD COLUMN facts_at BIGINT NOT NULL DEFAULT 0;
